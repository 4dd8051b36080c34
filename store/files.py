"""The lake's files: the only way (besides Spark and Delta) that Ratchet touches them.

A lake is a folder or a URL that Arrow, deltalake and Spark can all write. Paths given to `Lake` are
relative to its root, as store.layout builds them. Every failure becomes a LakeError that says what
to do (`failures`). JSON files are replaced whole or not at all.
"""

from __future__ import annotations

import errno
import json
import os
import re
import shutil
import stat
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pyarrow as pa
import pyarrow.dataset
import pyarrow.fs

from ratchet.core.errors import LakeAwayError, LakeError
from ratchet.store import layout, objects
from ratchet.store.failures import lake_errors, sound
from ratchet.store.filelock import locked
from ratchet.store.folders import create_in, removal_order, remove_seen

_NO_LINKS = frozenset({errno.EXDEV, errno.EPERM, errno.EMLINK, errno.ENOTSUP, errno.ENOSYS})
_DELETERS = 16  # at a time: they wait most of their time
_SMALL = 256 << 10  # bytes: less than what a request costs, beside reading them all
_PIECE = 8 << 20  # bytes that are read at a time
_PARQUET = pa.dataset.ParquetFileFormat()
_UNFINISHED = re.compile(r"\..+\.[0-9a-f]{32}\.tmp", re.DOTALL)  # see Lake._temporary


@dataclass(frozen=True, slots=True)
class LakeFile:
    """A file in the lake.

    Attributes:
        path: relative to the root.
        size: bytes.
        modified_at: microseconds since the epoch, UTC; 0 if the store does not tell.
    """

    path: str
    size: int
    modified_at: int


@dataclass(frozen=True, slots=True)
class Lake:
    """A lake by its root. Cheap to pickle: the connection is made where it is used.

    Attributes:
        root: absolute local path without a trailing slash, or a URL ("s3://bucket/prefix").
        epoch: of whoever holds the lake (store.lease): all that is committed by it is bound to it,
            wherever in a process that is done. 0: nobody does; then a lake that was ever held can
            only be read.
    """

    root: str
    epoch: int = 0

    @classmethod
    def at(cls, root: str | os.PathLike[str]) -> Lake:
        """The lake at a path (made absolute) or URL; neither read nor created."""
        text = os.fspath(root)
        if "%" in text:  # deltalake decodes %XX in local paths when it reads, not when it creates
            raise LakeError(
                f"a lake's path cannot hold a percent sign: {text}",
                operation="open the lake",
                hint="give `lake:` another name",
            )
        if _scheme(text) == "file":
            text = urlsplit(text).path
        if _scheme(text):
            return cls(text.rstrip("/"))
        return cls(str(Path(text).expanduser().absolute()))

    @property
    def is_local(self) -> bool:
        """Whether it is a folder of this machine."""
        return not _scheme(self.root)

    @property
    def filesystem(self) -> pa.fs.FileSystem:
        """Arrow's file system; give it `self.absolute(path)`."""
        return _filesystem(self.root)[0]

    def absolute(self, path: str = "") -> str:
        """The path for Arrow's file system."""
        base = _filesystem(self.root)[1]
        return f"{base}/{path}" if path else base

    def hadoop_uri(self, path: str = "") -> str:
        """The path as Spark takes it."""
        root = f"file://{self.root}" if self.is_local else self.root
        if _scheme(root) == "s3":
            root = "s3a" + root[2:]
        return f"{root}/{path}" if path else root

    def delta_uri(self, path: str = "") -> str:
        """The path as deltalake takes it."""
        if self.is_local:
            return self.absolute(path)
        root = "s3" + self.root[3:] if _scheme(self.root) == "s3a" else self.root
        return f"{root}/{path}" if path else root

    @property
    def storage_options(self) -> dict[str, str]:
        """Options for deltalake, from the environment (AWS_*, AZURE_*, GOOGLE_*); never logged."""
        if self.is_local:
            return {}
        options = {
            name: value
            for name, value in os.environ.items()
            if name.startswith(("AWS_", "AZURE_", "GOOGLE_"))
        }
        if options.get("AWS_ENDPOINT_URL", "").startswith("http://"):
            options.setdefault("AWS_ALLOW_HTTP", "true")
        return options

    def exists(self, path: str) -> bool:
        """Whether a file or folder is there."""
        with lake_errors("look for a file", path):
            return bool(self._info(path).type != pa.fs.FileType.NotFound)

    def is_file(self, path: str) -> bool:
        """Whether a file is there. Of an object store that is one request."""
        with lake_errors("look for a file", path):
            if not self.is_local:
                return objects.exists(self.root, path)
            return bool(self._info(path).type == pa.fs.FileType.File)

    def list(
        self, path: str = "", *, recursive: bool = True, unfinished: bool = False
    ) -> list[LakeFile]:
        """The files under a folder, by path; empty if the folder is missing.

        Args:
            path: the folder.
            recursive: whether folders within it count.
            unfinished: whether files count that are just being written, or that a killed process
                has left behind half written. They have no content yet that anybody may read.
        """
        with lake_errors("list files", path):
            found: Sequence[LakeFile]
            if self.is_local:
                found = tuple(_walk(self.absolute(path), path, recursive=recursive))
            else:
                found = self._objects(path, recursive=recursive)
        return sorted(
            (
                file
                for file in found
                if unfinished or not _UNFINISHED.fullmatch(file.path.rpartition("/")[2])
            ),
            key=lambda file: file.path,
        )

    def _objects(self, path: str, *, recursive: bool) -> Sequence[LakeFile]:
        base = self.absolute()
        selector = pa.fs.FileSelector(
            self.absolute(path), allow_not_found=True, recursive=recursive
        )
        return [
            LakeFile(i.path[len(base) :].lstrip("/"), int(i.size), int((i.mtime_ns or 0) // 1000))
            for i in self.filesystem.get_file_info(selector)
            if i.type == pa.fs.FileType.File
        ]

    def size(self, path: str) -> int:
        """Bytes of a file.

        Raises:
            LakeError: it is missing.
        """
        with lake_errors("read a file's size", path):
            info = self._info(path)
            if info.type != pa.fs.FileType.File:
                raise FileNotFoundError(errno.ENOENT, "no such file", path)
            return int(info.size)

    def open_output(self, path: str) -> pa.NativeFile:
        """A new file, its folders made. Call within `lake_errors` while writing to it."""
        with lake_errors("create a file", path):
            self._make_parent(path)
            return self.filesystem.open_output_stream(self.absolute(path))

    def open_input(self, path: str, *, size: int | None = None) -> pa.NativeFile:
        """A file for reading at any offset.

        Args:
            path: the file.
            size: bytes, if they are known and the file never changes. It spares an object store the
                question, and a small file is read by one request then.
        """
        with lake_errors("open a file", path):
            if self.is_local or size is None:
                return self.filesystem.open_input_file(self.absolute(path))
            if size <= _SMALL:
                return pa.BufferReader(self.read_buffer(path))
            # The file systems of pyarrow take no size, but a fragment's source does.
            return _PARQUET.make_fragment(
                self.absolute(path), self.filesystem, file_size=size
            ).open()

    def delete(self, path: str) -> None:
        """Remove a file; nothing happens if it is not there."""
        # Somebody else may remove it between the look and the removal.
        with lake_errors("remove a file", path), suppress(FileNotFoundError):
            if self._info(path).type == pa.fs.FileType.File:
                self.filesystem.delete_file(self.absolute(path))

    def delete_files(self, paths: Iterable[str]) -> None:
        """Remove several files; in an object store some at a time.

        Raises:
            LakeError: one cannot be removed.
        """
        if not self.is_local:
            with ThreadPoolExecutor(_DELETERS, "delete-files") as pool:
                list(pool.map(self.delete, paths))
            return
        for path in paths:
            self.delete(path)
            # Hadoop's checksums lie beside what Spark writes into a folder.
            folder, _, last = path.rpartition("/")
            self.delete(f"{folder}/.{last}.crc")

    def delete_folder(self, path: str) -> None:
        """Remove a folder and everything in it; nothing happens if it is not there."""
        if not path.strip("/"):
            raise LakeError("will not remove the lake itself", operation="remove a folder")
        with lake_errors("remove a folder", path), suppress(FileNotFoundError):
            if self._info(path).type == pa.fs.FileType.Directory:
                self.filesystem.delete_dir(self.absolute(path))

    def delete_seen(self, path: str, look: Callable[[], None]) -> None:
        """Remove a folder whose name may come again, with what is in it now.

        Args:
            path: the folder; nothing happens if it is not there.
            look: called before the first removal, when all is listed; it may raise. What somebody
                puts there later stays. In an object store a name that comes again does not.

        Raises:
            LakeError: something cannot be removed.
        """
        if not path.strip("/"):
            raise LakeError("will not remove the lake itself", operation="remove a folder")
        with lake_errors("remove a folder", path):
            if self.is_local:
                remove_seen(self.absolute(path), look)
                return
            files = [file.path for file in self.list(path, unfinished=True)]
            look()
            self.delete_files(sorted(files, key=removal_order))

    def clear_way(self, path: str) -> bool:
        """Remove a file that stands in the place of a folder, or of one above it.

        Args:
            path: of the folder; in an object store nothing can stand there.

        Returns:
            Whether there was one.
        """
        parts = path.split("/")
        for upto in range(1, len(parts) + 1) if self.is_local else ():
            above = "/".join(parts[:upto])
            if self.is_file(above):
                self.delete(above)
                return True
        return False

    def read_file(self, path: str) -> bytes | None:
        """A small file, whole; None if it is missing. Of an object store that is one request."""
        with lake_errors("read", path):
            if not self.is_local:
                found = objects.read(self.root, path)
                return None if found is None else found[0]
            # No look before: somebody else may remove it in between.
            try:
                with self.filesystem.open_input_stream(self.absolute(path)) as stream:
                    return bytes(stream.read())
            except FileNotFoundError:
                return None

    def read_buffer(self, path: str) -> pa.Buffer:
        """A file, whole. Of an object store that is one request.

        Raises:
            LakeError: it is missing, or cannot be read.
        """
        with lake_errors("read", path):
            if self.is_local:
                with self.filesystem.open_input_file(self.absolute(path)) as stream:
                    return stream.read_buffer()
            found = objects.read(self.root, path)
            if found is None:
                raise FileNotFoundError(errno.ENOENT, "no such file", path)
            return pa.py_buffer(found[0])

    def read_through(self, path: str) -> None:
        """Read a file to its end, in pieces: whether the storage hands out all of it.

        Raises:
            LakeError: it is missing, or cannot be read.
        """
        with (
            lake_errors("read", path),
            self.filesystem.open_input_stream(self.absolute(path)) as stream,
        ):
            while stream.read(_PIECE):
                pass

    def read_range(self, path: str, offset: int, length: int) -> bytes:
        """So many bytes of a file, or all that there are of them; length is at least one.

        Raises:
            LakeError: it is missing, or cannot be read.
        """
        with lake_errors("read", path):
            if not self.is_local:
                return objects.read_range(self.root, path, offset, length)
            with self.filesystem.open_input_file(self.absolute(path)) as stream:
                stream.seek(offset)
                return bytes(stream.read(length))

    def read_json(self, path: str) -> Any:
        """A JSON file's value; None if the file is missing.

        Raises:
            LakeError: it cannot be read, or is not JSON.
        """
        text = self.read_file(path)
        return None if text is None else _parsed(path, text)

    def write_json(self, path: str, value: Any) -> bytes:
        """Put a JSON file in the place of the old one: readers see the one or the other.

        Returns:
            The file's text.
        """
        text = _dump(value)
        with lake_errors("write", path):
            self._make_parent(path)
            if self.is_local:
                self._temporary(path, text).replace(self.absolute(path))
            else:  # a put into an object store is atomic
                self._put(path, text)
        return text

    def change_json(self, path: str, change: Callable[[Any], Any]) -> None:
        """Replace a JSON file by what a function makes of it, with nobody else's change in between.

        Args:
            path: the file. In a folder a file `.lock` lies beside it.
            change: value (None: there is no file) -> the new value (None: there is to be no file).
                What it raises leaves the file as it is. It is called again with the newest value
                if somebody else's change came first, or if it is not sure that ours did not.

        Raises:
            LakeError: another process stands still amid a change of it, or it cannot be changed.
        """
        if self.is_local:
            lock = f"{path.rpartition('.')[0]}.lock"
            with lake_errors("lock a file", lock):
                self._make_parent(lock)
            with locked(Path(self.absolute(lock))):
                self._set_json(path, change(self.read_json(path)))
            return
        while not self._swap_json(path, change):
            pass

    def _swap_json(self, path: str, change: Callable[[Any], Any]) -> bool:
        with lake_errors("read", path):
            found = objects.read(self.root, path)
        if found is None:
            new = change(None)
            with lake_errors("write", path):
                return new is None or objects.create(self.root, path, _dump(new))
        new = change(_parsed(path, found[0]))
        if new is None:
            # No store removes an object only if it is a certain one.
            self.delete(path)
            return True
        with lake_errors("write", path):
            return objects.replace(self.root, path, _dump(new), found[1])

    def _set_json(self, path: str, value: Any) -> None:
        if value is None:
            self.delete(path)
        else:
            self.write_json(path, value)

    def create_json(self, path: str, value: Any) -> bool:
        """Write a JSON file unless there is one; False if there is. See `create_file`."""
        return self.create_file(path, _dump(value))

    def create_file(self, path: str, content: bytes) -> bool:
        """Write a whole file unless there is one; False if there is.

        Of several writers at the same moment one gets True. (On an object store all do that write
        the very same.)
        """
        with lake_errors("write", path):
            if not self.is_local:
                return objects.create(self.root, path, content) or self.read_file(path) == content
            if self._info(path).type != pa.fs.FileType.NotFound:
                return False
            self._make_parent(path)
            temporary = self._temporary(path, content)
            try:
                os.link(temporary, self.absolute(path))
            except FileExistsError:
                return False
            finally:
                temporary.unlink()
        return True

    def create_behind(
        self, path: str, content: bytes, before: str, look: Callable[[bytes | None], None]
    ) -> bool:
        """As `create_file`, in a folder that has another file, which may be removed with all of it.

        Args:
            path: the file.
            content: of it.
            before: the other file, in the same folder.
            look: called with what the other one has in it, None if it is not there; it may raise,
                and nothing is written then. If the folder is removed after that look, and made
                anew, nothing is written there. In an object store it is.

        Raises:
            LakeError: it cannot be written.
        """
        if not self.is_local:
            look(self.read_file(before))
            return self.create_file(path, content)
        with lake_errors("write", path):
            folder, _, name = self.absolute(path).rpartition("/")
            return create_in(folder, name, content, before.rpartition("/")[2], look)

    def copy(self, path: str, to: str) -> None:
        """Give a file that is never written again a second place, unless there is one already.

        On a local disk both places are of one file; where that cannot be, it is copied.
        """
        with lake_errors("copy", path):
            if not self.is_local:
                objects.copy(self.root, path, to)
                return
            self._make_parent(to)
            try:
                os.link(self.absolute(path), self.absolute(to))
            except FileExistsError:
                return
            except OSError as error:
                if error.errno not in _NO_LINKS:
                    raise
                self._copy(path, to)

    def _copy(self, path: str, to: str) -> None:
        target = Path(self.absolute(to))
        name = target.with_name(f".{target.name}.{uuid.uuid4().hex}.tmp")
        try:
            shutil.copyfile(self.absolute(path), name)
            with name.open("rb+") as stream:
                os.fsync(stream.fileno())
            name.replace(target)
        except OSError:
            name.unlink(missing_ok=True)
            raise

    def _put(self, path: str, content: bytes) -> None:
        with self.filesystem.open_output_stream(self.absolute(path)) as stream:
            stream.write(content)

    def _temporary(self, path: str, content: bytes) -> Path:
        target = Path(self.absolute(path))
        name = target.with_name(f".{target.name}.{uuid.uuid4().hex}.tmp")
        try:
            with name.open("wb") as stream:
                stream.write(content)
                stream.flush()
                os.fsync(stream.fileno())
        except OSError:
            name.unlink(missing_ok=True)
            raise
        return name

    def _info(self, path: str) -> pa.fs.FileInfo:
        return self.filesystem.get_file_info(self.absolute(path))

    def _make_parent(self, path: str) -> None:
        """Make a file's folder; but never the lake's own, once there was one."""
        if not self.is_local:
            return
        if self.epoch and not Path(self.absolute(layout.FORMAT_FILE)).is_file():
            raise LakeAwayError(
                f"there is no longer a lake at {self.root}",
                operation="write in the lake",
                hint="its folder was moved, or is not mounted: put it back, then start again; "
                "nothing was written to the empty place",
            )
        Path(self.absolute(path)).parent.mkdir(parents=True, exist_ok=True)


def _walk(folder: str, path: str, *, recursive: bool) -> Iterator[LakeFile]:
    """The files in a folder; what others remove meanwhile is not there, and no error.

    Arrow's listing fails where a folder is made between its two looks for it, or goes while it is
    listed.

    Args:
        folder: where the operating system has it.
        path: the same, relative to the lake's root.
        recursive: whether folders within it count.
    """
    try:
        entries = list(os.scandir(folder))
    except FileNotFoundError:
        return
    for entry in entries:
        name = f"{path}/{entry.name}" if path else entry.name
        try:
            found = entry.stat()
        except FileNotFoundError:
            continue
        if stat.S_ISREG(found.st_mode):
            yield LakeFile(name, found.st_size, found.st_mtime_ns // 1000)
        elif recursive and stat.S_ISDIR(found.st_mode):
            yield from _walk(entry.path, name, recursive=True)


def _parsed(path: str, text: bytes) -> Any:
    with sound(path):
        found = json.loads(text)
        if found is None:
            raise ValueError(path)
        return found


def _dump(value: Any) -> bytes:
    # Without `indent`: Python's fast encoder knows none, and takes a tenth of the time.
    return json.dumps(value, sort_keys=True).encode() + b"\n"


def _scheme(text: str) -> str:
    head, found, _ = text.partition("://")
    return head.lower() if found else ""


@lru_cache(maxsize=16)
def _filesystem(root: str) -> tuple[pa.fs.FileSystem, str]:
    if not _scheme(root):
        return pa.fs.LocalFileSystem(), root
    if _scheme(root) in {"s3", "s3a"}:
        endpoint = os.environ.get("AWS_ENDPOINT_URL", "")
        scheme, _, address = endpoint.rpartition("://")
        filesystem = pa.fs.S3FileSystem(
            endpoint_override=address or None,
            scheme=scheme or "https",
            region=os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION"),
            allow_delayed_open=True,  # a small file is put by one request, not by three
        )
        return filesystem, root.partition("://")[2]
    if _scheme(root) not in objects.SCHEMES:
        raise LakeError(
            f"cannot open {root}",
            operation="open the lake",
            hint="use a folder or a URL with s3://, gs:// or abfs://",
        )
    with lake_errors("open the lake"):
        filesystem, base = pa.fs.FileSystem.from_uri(root)
    return filesystem, base.rstrip("/")
