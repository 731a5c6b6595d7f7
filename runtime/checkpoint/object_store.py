"""Checkpoint files in an object store: S3 and what speaks its protocol, Google Cloud Storage, Azure Blob Storage.

The only module that knows obstore (the object_store library of the Arrow project); loaded where a URI asks for it.
A file up to one part is a single conditional put: it is there whole or not at all, and never replaces another. A larger
one is a multipart upload, part by part while it is written; it is seen when the upload is completed. Reads are ranges.
Credentials and endpoints come from the environment under the names of each provider's tools (`AWS_ACCESS_KEY_ID`,
`AWS_ENDPOINT_URL`, `GOOGLE_APPLICATION_CREDENTIALS`, …) or from the instance. Failed requests are repeated for a
minute, then an OSError says what happened.
"""

from __future__ import annotations

import errno
import functools
import io
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import Any
from urllib.parse import urlsplit

import obstore
import pyarrow as pa
from obstore.exceptions import AlreadyExistsError, BaseError, PermissionDeniedError, UnauthenticatedError
from obstore.store import AzureStore, GCSStore, S3Store

from connectors.api import StoredFile
from runtime.checkpoint.files import BufferedFileWriter, checked_path

PART_BYTES = 8 << 20
"""S3 takes 10,000 parts: files of up to 80 GB."""
PARTS_ON_THEIR_WAY_MAX = 4
READ_AHEAD_BYTES = 8 << 20
"""Fetched at once where a file is read from front to back."""
RANDOM_READ_BYTES = 64 << 10
RETRY_TIME_S = 60
REQUEST_TIMEOUT_S = 60
CONNECT_TIMEOUT_S = 5
_DELETED_AT_ONCE = 1000

_RETRIES = {
    "max_retries": 20,
    "retry_timeout": timedelta(seconds=RETRY_TIME_S),
    "backoff": {"init_backoff": timedelta(milliseconds=100), "max_backoff": timedelta(seconds=5), "base": 2},
}


class ObjectStoreFiles:
    """A prefix of a bucket. Implements JobFiles; may be pickled."""

    def __init__(self, uri: str) -> None:
        self._uri = uri
        scheme, bucket, path, _, _ = urlsplit(uri)
        self._scheme, self._bucket = scheme, bucket
        self._prefix = path.strip("/")

    @property
    def uri(self) -> str:
        return self._uri

    def locate(self, path: str) -> str:
        return f"{self._uri}/{path}"

    def create(self, path: str) -> ObjectWriter:
        return ObjectWriter(self._store, path, self._key(checked_path(path)), self.locate(path))

    def open(self, path: str) -> pa.NativeFile:
        key = self._key(checked_path(path))
        with _as_os_errors(self.locate(path)):
            size = int(obstore.head(self._store, key)["size"])
        return pa.PythonFile(_RangeReader(self._store, key, size, self.locate(path)), mode="r")

    def byte_size(self, path: str) -> int:
        with _as_os_errors(self.locate(path)):
            return int(obstore.head(self._store, self._key(checked_path(path)))["size"])

    def delete(self, path: str) -> None:
        with _as_os_errors(self.locate(path)), suppress(FileNotFoundError):
            obstore.delete(self._store, self._key(checked_path(path)))

    def unsealed(self) -> list[str]:
        """None that can be told: the rest of a broken upload goes by a rule of the bucket."""
        return []

    def discard_unsealed(self, path: str) -> None:
        """See `unsealed`."""

    def clear(self) -> None:
        paths = [self._key(stored.path) for stored in self.list("")]
        for first in range(0, len(paths), _DELETED_AT_ONCE):
            with _as_os_errors(self._uri), suppress(FileNotFoundError):
                obstore.delete(self._store, paths[first : first + _DELETED_AT_ONCE])

    def list(self, prefix: str) -> list[StoredFile]:
        folder = self._key(checked_path(prefix)) if prefix else self._prefix
        cut = len(self._prefix) + 1 if self._prefix else 0
        with _as_os_errors(self._uri):
            found = [meta for chunk in obstore.list(self._store, folder or None) for meta in chunk]
        return [StoredFile(meta["path"][cut:], int(meta["size"]), "") for meta in found]

    @property
    def _store(self) -> Any:
        with _as_os_errors(self._uri):
            return _connect(self._scheme, self._bucket)

    def _key(self, path: str) -> str:
        return f"{self._prefix}/{path}" if self._prefix else path


class ObjectWriter(BufferedFileWriter):
    """See FileWriter."""

    def __init__(self, store: Any, path: str, key: str, shown: str) -> None:
        super().__init__(path, PART_BYTES)
        self._store = store
        self._key = key
        self._shown = shown
        self._first: bytes | None = None
        self._upload: Any = None

    def _append(self, piece: memoryview) -> None:
        with _as_os_errors(self._shown):
            if self._upload is None:
                if self._first is None:
                    self._first = bytes(piece)
                    return
                self._upload = obstore.open_writer(
                    self._store, self._key, buffer_size=PART_BYTES, max_concurrency=PARTS_ON_THEIR_WAY_MAX
                )
                self._upload.write(self._first)
                self._first = None
            self._upload.write(bytes(piece))

    def _complete(self) -> None:
        if self._upload is None:
            _put_new(self._store, self._key, self._first or b"", self._shown)
            return
        with _as_os_errors(self._shown):
            if _exists(self._store, self._key):
                # Its parts stay hidden; completing would replace the other file.
                self._upload = None
                raise _taken(self._shown)
            self._upload.close()

    def _abandon(self) -> None:
        """The library cannot take back an upload that has begun: it is completed and deleted. Nobody knows its name."""
        upload, self._upload = self._upload, None
        if upload is not None:
            with suppress(OSError), _as_os_errors(self._shown):
                if not _exists(self._store, self._key):
                    upload.close()
                    obstore.delete(self._store, self._key)


class _RangeReader(io.RawIOBase):
    """Arrow's file object over ranged requests. Holds one stretch of the file: reading on from its end fetches a long
    one, jumping a short one, the last of them up to the end."""

    def __init__(self, store: Any, key: str, size: int, shown: str) -> None:
        self._store = store
        self._key = key
        self._size = size
        self._shown = shown
        self._position = 0
        self._held_from = 0
        self._held = b""

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def size(self) -> int:
        return self._size

    def seek(self, offset: int, whence: int = os.SEEK_SET, /) -> int:
        base = {os.SEEK_SET: 0, os.SEEK_CUR: self._position, os.SEEK_END: self._size}[whence]
        self._position = max(0, base + offset)
        return self._position

    def read(self, size: int | None = -1, /) -> bytes:
        end = self._size if size is None or size < 0 else min(self._size, self._position + size)
        start = self._position
        if start >= end:
            return b""
        held_to = self._held_from + len(self._held)
        if not (self._held_from <= start and end <= held_to):
            self._fetch(start, end, reads_on=self._held_from <= start <= held_to)
        self._position = end
        return self._held[start - self._held_from : end - self._held_from]

    def _fetch(self, start: int, end: int, *, reads_on: bool) -> None:
        wanted = max(end, start + (READ_AHEAD_BYTES if reads_on else RANDOM_READ_BYTES))
        first, last = start, min(wanted, self._size)
        if last == self._size:
            first = max(0, min(start, self._size - RANDOM_READ_BYTES))
        with _as_os_errors(self._shown):
            found = bytes(obstore.get_range(self._store, self._key, start=first, end=last))
        if len(found) != last - first:
            raise OSError(errno.EIO, f"{len(found)} bytes instead of {last - first}", self._shown)
        self._held_from, self._held = first, found


@functools.lru_cache(maxsize=64)
def _connect(scheme: str, bucket: str) -> Any:
    """One client with its connections per bucket and process."""
    client: dict[str, Any] = {
        "timeout": timedelta(seconds=REQUEST_TIMEOUT_S),
        "connect_timeout": timedelta(seconds=CONNECT_TIMEOUT_S),
    }
    make: dict[str, Callable[..., Any]] = {"s3": S3Store, "gs": GCSStore, "az": AzureStore}
    config: dict[str, str] = {}
    if scheme == "s3":
        config = s3_options(os.environ, bucket)
        client["allow_http"] = config.get("endpoint", "").startswith("http://")
    return make[scheme](bucket, config=config, client_options=client, retry_config=_RETRIES)


def s3_options(environment: Mapping[str, str], bucket: str) -> dict[str, str]:
    """What the library does not take from the environment as it is. Where hosts carry the bucket's name it wants the
    endpoint to have it already; where nothing is said the bucket is part of the path at an endpoint of the user's, and
    of the host at Amazon's."""
    endpoint = environment.get("AWS_ENDPOINT_URL_S3") or environment.get("AWS_ENDPOINT_URL", "")
    is_hosted = environment.get("AWS_VIRTUAL_HOSTED_STYLE_REQUEST", "false" if endpoint else "true").lower() == "true"
    options = {"virtual_hosted_style_request": str(is_hosted).lower()}
    if endpoint:
        scheme, host, *_ = urlsplit(endpoint)
        options["endpoint"] = f"{scheme}://{bucket}.{host}" if is_hosted else endpoint.rstrip("/")
    return options


def _put_new(store: Any, key: str, data: bytes, shown: str) -> None:
    try:
        with _as_os_errors(shown):
            obstore.put(store, key, data, mode="create", use_multipart=False)
    except FileExistsError:
        # A request whose answer was lost is repeated, and finds what it has put itself.
        with _as_os_errors(shown):
            if bytes(obstore.get(store, key).bytes()) != data:
                raise


def _exists(store: Any, key: str) -> bool:
    try:
        obstore.head(store, key)
    except FileNotFoundError:
        return False
    return True


def _taken(shown: str) -> FileExistsError:
    return FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), shown)


@contextmanager
def _as_os_errors(shown: str) -> Iterator[None]:
    """The library's errors as the operating system's, with its first line: the rest is its own source text."""
    try:
        yield
    except FileNotFoundError as error:
        raise FileNotFoundError(errno.ENOENT, _not_found(str(error)), shown) from None
    except AlreadyExistsError:
        raise _taken(shown) from None
    except (PermissionDeniedError, UnauthenticatedError) as error:
        raise PermissionError(errno.EACCES, _first_line(error), shown) from None
    except BaseError as error:
        raise OSError(errno.EIO, _first_line(error), shown) from None


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0].strip()


def _not_found(text: str) -> str:
    return "the bucket does not exist" if "NoSuchBucket" in text else os.strerror(errno.ENOENT)
