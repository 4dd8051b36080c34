"""Puts into an object store that depend on what is there: what Arrow's file systems lack.

Lives here: creating an object unless there is one, and replacing the one that was read. Does not
live here: every other way to touch the lake (`files`).

Invariant: of several writers at the same moment one wins, and the others are told. S3 does it by
If-None-Match and If-Match, the others' stores by their own conditions; obstore knows which.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import TYPE_CHECKING, Final

import obstore
from obstore.exceptions import AlreadyExistsError, BaseError, PreconditionError
from obstore.store import from_url

if TYPE_CHECKING:
    from obstore import UpdateVersion
    from obstore.store import ObjectStore, RetryConfig

SCHEMES: Final = frozenset({"s3", "s3a", "gs", "abfs", "abfss"})
RETRIES: RetryConfig = {"max_retries": 3}  # as Arrow's client does; callers try again later


def create(root: str, path: str, content: bytes) -> bool:
    """Write an object unless there is one; False if there is.

    That one may be ours: a put whose answer was lost is tried again, and then meets itself.

    Args:
        root: the lake's URL, whose scheme is one of SCHEMES.
        path: relative to it.
        content: all of it.

    Raises:
        OSError: the store cannot be reached, or refuses.
    """
    with _errors():
        try:
            obstore.put(_store(root), path, content, mode="create")
        except AlreadyExistsError:
            return False
        return True


def read(root: str, path: str) -> tuple[bytes, UpdateVersion] | None:
    """An object's content and which version of it that is, for `replace`; None if it is missing.

    Raises:
        OSError: see create.
    """
    with _errors():
        try:
            found = obstore.get(_store(root), path)
        except FileNotFoundError:
            return None
        version: UpdateVersion = {}
        if found.meta["e_tag"] is not None:
            version["e_tag"] = found.meta["e_tag"]
        if found.meta["version"] is not None:
            version["version"] = found.meta["version"]
        return bytes(found.bytes()), version


def read_range(root: str, path: str, offset: int, length: int) -> bytes:
    """So many bytes of an object, or all that there are of them.

    Args:
        root: see create.
        path: relative to it.
        offset: of the first.
        length: how many; at least one.

    Raises:
        FileNotFoundError: it is missing.
        OSError: see create.
    """
    with _errors():
        return bytes(obstore.get_range(_store(root), path, start=offset, length=length))


def exists(root: str, path: str) -> bool:
    """Whether there is an object.

    Raises:
        OSError: see create.
    """
    with _errors():
        try:
            obstore.head(_store(root), path)
        except FileNotFoundError:
            return False
        return True


def replace(root: str, path: str, content: bytes, version: UpdateVersion) -> bool:
    """Put an object in the place of the version that was read; False if that is not there any more.

    What is there instead may be ours; see create.

    Raises:
        OSError: see create.
    """
    with _errors():
        try:
            obstore.put(_store(root), path, content, mode=version)
        except (PreconditionError, FileNotFoundError):  # stores differ where it is gone
            return False
        return True


def copy(root: str, path: str, to: str) -> None:
    """Copy an object within the store, which does it by itself.

    Raises:
        OSError: see create.
    """
    with _errors():
        obstore.copy(_store(root), path, to)


@contextmanager
def _errors() -> Iterator[None]:
    try:
        yield
    except BaseError as error:
        # Behind the first line stand the library's own structures.
        raise OSError(str(error).partition("\n")[0]) from None


@lru_cache(maxsize=16)
def _store(root: str) -> ObjectStore:
    """Credentials and endpoint come from the environment (AWS_*, GOOGLE_*, AZURE_*)."""
    url = "s3" + root[3:] if root.startswith("s3a:") else root
    http = os.environ.get("AWS_ENDPOINT_URL", "").startswith("http://")
    return from_url(
        url, client_options={"allow_http": True} if http else None, retry_config=RETRIES
    )
