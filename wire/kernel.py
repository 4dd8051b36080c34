"""Functions compiled to machine code, and where the compiled code is kept.

Lives here: `kernel`, the one decorator of all kernels. Does not live here: what they compute.

Invariant: compiled code that is taken from a file is that of the very function, types, processor,
and called kernels and constants that are asked for. numba's own cache does not promise that, and
what it then runs is silently wrong (measured, docs/decisions/0031-kept-kernels.md):
- its index and its data are two files, so two processes that compile two variants of a function at
  once may leave one's code under the other's types;
- it looks whether the file of a function has changed, not those of the kernels that it calls or of
  the constants that are built into it.
Here each variant is one file, named by its types, that says in full what it is.
"""

from __future__ import annotations

import hashlib
import logging
import os
import pickle
import uuid
from collections.abc import Callable
from enum import EnumMeta
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any, Final, TypeVar, cast

import numpy as np

from ratchet.core.errors import OperatorError
from ratchet.owned import distrust_code
from ratchet.resources import make_folder
from ratchet.wire.numbaconfig import take_no_settings_file

take_no_settings_file()  # before the first import of numba

import numba  # noqa: E402
from numba.core.caching import CompileResultCacheImpl, FunctionCache  # noqa: E402
from numba.core.dispatcher import Dispatcher  # noqa: E402
from numba.core.serialize import dumps  # noqa: E402

log: Final = logging.getLogger(__name__)

F = TypeVar("F", bound=Callable[..., Any])


def kernel(function: F) -> F:
    """Compile a function when it is first called, once for all types it is called with.

    It lets go of the interpreter while it runs; a division by zero raises nothing. What is compiled
    is kept beside the source or in NUMBA_CACHE_DIR; where neither can be written, each process
    compiles for itself.
    """
    compiled: Any = numba.njit(nogil=True, error_model="numpy")(function)
    try:
        compiled._cache = _KernelCache(function)  # noqa: SLF001 - as its enable_caching does
    except RuntimeError as error:  # there is no folder for it
        log.debug("%s is not kept: %s", function.__qualname__, error)
    return cast("F", compiled)


def _unshared(locator: Any) -> Any:
    """One of numba's ways to find a folder, which lets nobody else write to what it makes."""

    class Unshared(locator):  # type: ignore[misc]
        def ensure_cache_path(self) -> None:
            make_folder(Path(self.get_cache_path()))
            super().ensure_cache_path()

    return Unshared


class _Place(CompileResultCacheImpl):
    _locator_classes: Any = tuple(map(_unshared, CompileResultCacheImpl._locator_classes))  # noqa: SLF001 - no public way


class _KernelCache(FunctionCache):
    """numba's cache of one function, with other files."""

    _impl_class = _Place

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__(function)  # type: ignore[no-untyped-call]
        base = Path(self._cache_path, self._impl.filename_base)
        self._cache_file: Any = _Variants(base, cast("FunctionType", function))

    def save_overload(self, sig: object, data: object) -> None:
        """Keep a variant; a full disk costs the next process time, no more."""
        try:
            super().save_overload(sig, data)  # type: ignore[no-untyped-call]
        except OSError as error:
            log.debug("%s is not kept: %s", self, error)


class _Variants:
    """The compiled variants of a function: what a cache of numba's does with files.

    Args:
        base: folder, and what the files' names begin with.
        function: as written.
    """

    def __init__(self, base: Path, function: FunctionType) -> None:
        self._base = base
        self._function = function
        self._identity = ""

    def load(self, key: object) -> object | None:
        """What was saved under a key; None if there is nothing that can be used."""
        path = self._path(key)
        self._refuse_foreign(path)
        try:
            identity, found, data = pickle.loads(path.read_bytes())  # noqa: S301 - see above
        except FileNotFoundError:
            return None
        except Exception as error:  # noqa: BLE001 - a file cut short; it is written anew
            log.debug("%s: %s", path, error)
            return None
        return data if (identity, found) == (self._what(), key) else None

    def save(self, key: object, data: object) -> None:
        """Keep it, whole or not at all."""
        path = self._path(key)
        part = path.with_name(f"{path.name}.{uuid.uuid4().hex}")
        try:
            # Writable by nobody else, whatever the umask says: see `_refuse_foreign`.
            with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644), "wb") as out:
                out.write(_pickled((self._what(), key, data)))
            part.replace(path)
        finally:
            part.unlink(missing_ok=True)

    def flush(self) -> None:
        """Nothing is kept from now on that was saved before."""
        for path in self._base.parent.glob(f"{self._base.name}-*.nbc"):
            path.unlink(missing_ok=True)

    def _refuse_foreign(self, path: Path) -> None:
        """Unpickling runs code: nobody else may have written what is taken from here.

        Raises:
            OperatorError: somebody else may have.
        """
        program = Path(self._function.__code__.co_filename)
        if reason := distrust_code(path, program=program):
            raise OperatorError(
                f"the folder of compiled code is not safe: {reason}",
                operation="load compiled code",
                hint="set NUMBA_CACHE_DIR to a folder of this user's own, in whose place nobody "
                f"else can put another one; or remove {path.parent}, if only its own mode is "
                "wrong, and start Ratchet with a umask of 022 or stricter",
            )

    def _path(self, key: object) -> Path:
        name = hashlib.sha256(repr(key).encode()).hexdigest()[:16]
        return self._base.with_name(f"{self._base.name}-{name}.nbc")

    def _what(self) -> str:
        # Not before it is asked for: what the function calls may be defined behind it.
        if not self._identity:
            self._identity = _identity(self._function)
        return self._identity


def _pickled(value: object) -> bytes:
    return cast("bytes", dumps(value))  # type: ignore[no-untyped-call]


def _identity(function: FunctionType) -> str:
    """A digest of all that a kernel's code comes from: itself, what it calls, what is built in."""
    digest = hashlib.sha256(numba.__version__.encode())
    todo, done = [function], {function}
    while todo:
        one = todo.pop()
        digest.update(_of_code(one.__code__))
        for name, value in _globals(one):
            if isinstance(value, Dispatcher) and value.py_func not in done:
                done.add(value.py_func)
                todo.append(value.py_func)
            digest.update(f"{name}={_of_value(value)}\n".encode())
    return digest.hexdigest()


def _of_code(code: CodeType) -> bytes:
    constants = [_of_code(c) if isinstance(c, CodeType) else c for c in code.co_consts]
    return repr((code.co_name, code.co_code, constants, code.co_names)).encode()


def _globals(function: FunctionType) -> list[tuple[str, object]]:
    """What the names in a function stand for, those of attributes of modules included."""
    names = function.__code__.co_names
    scope = function.__globals__
    found = [(name, scope[name]) for name in names if name in scope]
    modules = [value for _, value in found if isinstance(value, ModuleType) and value is not np]
    members = [(name, getattr(m, name)) for m in modules for name in names if hasattr(m, name)]
    return sorted(found + members, key=lambda one: one[0])


def _of_value(value: object) -> str:
    if isinstance(value, Dispatcher):
        return str(value.py_func.__qualname__)
    if isinstance(value, np.ndarray):
        return f"{value.dtype} {value.shape} {hashlib.sha256(value.tobytes()).hexdigest()}"
    if isinstance(value, EnumMeta):
        return repr(list(value))
    if isinstance(value, ModuleType | FunctionType):
        return value.__name__
    return repr(value)
