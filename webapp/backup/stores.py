"""A folder or a bucket as the same few verbs. What is written appears whole or not at all, kill -9 and power loss included."""

from __future__ import annotations

import contextlib
import os
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Protocol
from urllib.parse import urlsplit

from django.core.files.storage import FileSystemStorage, default_storage

from webapp.backup.errors import BackupError

CHUNK_BYTES = 1 << 20
S3 = "s3://"
_SPOOL_BYTES = 32 << 20
_FRESH = ".fresh-"          # prefix of files that are being written


class Readable(Protocol):
    def read(self, size: int, /) -> bytes: ...


@dataclass(frozen=True)
class Entry:
    """One object; two entries of equal key, size and stamp hold equal bytes."""

    key: str
    size: int       # bytes
    stamp: str      # time of change in ns, or a bucket's ETag


class Store(ABC):
    name: str       # as people write it

    @abstractmethod
    def list(self, prefix: str = "") -> Iterator[Entry]:
        """Yield every object whose key begins with the folder `prefix` ("" or "a/b")."""

    @abstractmethod
    def stat(self, key: str) -> Entry | None:
        """Return the object's entry, None where it is not there."""

    @abstractmethod
    def open(self, key: str) -> IO[bytes]:
        """Open for reading. Raises FileNotFoundError."""

    @abstractmethod
    def add(self, source: Readable, key_of: Callable[[], str]) -> str:
        """Store what `source` gives under the key that is known when all was read; return it."""

    def write(self, key: str, source: Readable) -> None:
        """Store what `source` gives; it is there when all of it is stored."""
        self.add(source, lambda: key)

    @abstractmethod
    def delete(self, key: str) -> None:
        """Remove an object; one that is not there is none."""


class Folder(Store):
    def __init__(self, root: Path, *, private: bool = True) -> None:
        self.root, self.name, self.private = root, str(root), private

    def list(self, prefix: str = "") -> Iterator[Entry]:
        base = str(self.root)
        for folder, _, files in os.walk(self.root / prefix):
            for name in files:
                path = os.path.join(folder, name)
                with contextlib.suppress(FileNotFoundError):        # deleted since it was listed
                    if not name.startswith(_FRESH):
                        yield _entry(os.path.relpath(path, base), os.stat(path))

    def stat(self, key: str) -> Entry | None:
        try:
            return _entry(key, os.stat(self._path(key)))
        except (FileNotFoundError, NotADirectoryError):
            return None

    def open(self, key: str) -> IO[bytes]:
        return open(self._path(key), "rb")

    def add(self, source: Readable, key_of: Callable[[], str]) -> str:
        self.root.mkdir(parents=True, exist_ok=True, mode=0o700 if self.private else 0o777)
        handle, fresh = tempfile.mkstemp(prefix=_FRESH, dir=self.root)      # readable by its owner alone
        try:
            with os.fdopen(handle, "wb") as out:
                while chunk := source.read(CHUNK_BYTES):
                    out.write(chunk)
                out.flush()
                if not self.private:
                    os.fchmod(out.fileno(), 0o666 & ~_umask())
                os.fsync(out.fileno())
            key = key_of()
            path = self._path(key)
            path.parent.mkdir(parents=True, exist_ok=True)
            os.replace(fresh, path)
        except BaseException:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(fresh)
            raise
        _sync_folder(path.parent)
        return key

    def delete(self, key: str) -> None:
        path = self._path(key)
        with contextlib.suppress(FileNotFoundError):
            path.unlink()
        for folder in path.parents:         # empty folders say nothing
            if folder == self.root:
                return
            with contextlib.suppress(OSError):
                folder.rmdir()

    def clear_fresh(self) -> None:
        """Remove what killed writers left. Only for whoever holds the folder alone."""
        for path in self.root.glob(f"{_FRESH}*"):
            path.unlink(missing_ok=True)

    def _path(self, key: str) -> Path:
        path = Path(os.path.normpath(self.root / key))
        if self.root not in path.parents:
            raise BackupError(f"{self.name}: the key {key!r} leads out of the folder; nothing was read or written there")
        return path


class Bucket(Store):
    """A prefix of a bucket of an S3-compatible server; `storage` is django-storages' S3Storage."""

    def __init__(self, storage: Any) -> None:
        self.bucket, self.prefix = storage.bucket, storage.location.strip("/")
        self.name = f"{S3}{storage.bucket_name}/{self.prefix}".rstrip("/")

    def list(self, prefix: str = "") -> Iterator[Entry]:
        start = self._key(prefix).rstrip("/") + "/" if self._key(prefix) else ""
        for row in self.bucket.objects.filter(Prefix=start):
            key = row.key[len(self.prefix) + 1:] if self.prefix else row.key
            yield Entry(key, row.size, row.e_tag.strip('"'))

    def stat(self, key: str) -> Entry | None:
        ClientError = self.bucket.meta.client.exceptions.ClientError  # a class
        row = self.bucket.Object(self._key(key))
        try:
            return Entry(key, row.content_length, row.e_tag.strip('"'))
        except ClientError as error:
            if error.response["Error"]["Code"] in ("404", "NoSuchKey"):
                return None
            raise

    def open(self, key: str) -> IO[bytes]:
        ClientError = self.bucket.meta.client.exceptions.ClientError
        try:
            body: IO[bytes] = self.bucket.Object(self._key(key)).get()["Body"]
        except ClientError as error:
            if error.response["Error"]["Code"] in ("404", "NoSuchKey"):
                raise FileNotFoundError(key) from None
            raise
        return body

    def add(self, source: Readable, key_of: Callable[[], str]) -> str:
        with tempfile.SpooledTemporaryFile(max_size=_SPOOL_BYTES) as spool:     # the key is known when all was read
            while chunk := source.read(CHUNK_BYTES):
                spool.write(chunk)
            spool.seek(0)
            key = key_of()
            self.bucket.upload_fileobj(spool, self._key(key))
        return key

    def delete(self, key: str) -> None:
        self.bucket.Object(self._key(key)).delete()

    def _key(self, key: str) -> str:
        return "/".join(filter(None, (self.prefix, key)))


def open_place(place: str) -> Store:
    """Return the folder or `s3://bucket/prefix` that a person named; the folder need not exist yet."""
    if not place.startswith(S3):
        if "://" in place:
            raise BackupError(f"{place}: name a folder, or {S3}bucket/prefix")
        return Folder(Path(place).expanduser().resolve())
    from storages.backends.s3 import S3Storage  # here: boto3 takes a quarter of a second

    parts = urlsplit(place)
    if not parts.netloc:
        raise BackupError(f"{place}: the bucket's name is missing ({S3}bucket/prefix)")
    return Bucket(S3Storage(bucket_name=parts.netloc, location=parts.path.strip("/"),
                            endpoint_url=os.environ.get("AWS_ENDPOINT_URL_S3"), default_acl=None))


def is_bucket_error(error: Exception) -> bool:
    """Return whether an S3 client raised it; its classes are known only where one was used."""
    return any(kind.__module__.startswith(("boto3.", "botocore.")) for kind in type(error).__mro__)


def product_store() -> Store:
    """Return the object store of this installation."""
    if isinstance(default_storage, FileSystemStorage):
        return Folder(Path(default_storage.location).resolve(), private=False)
    return Bucket(default_storage)


def _entry(key: str, status: os.stat_result) -> Entry:
    return Entry(key, status.st_size, str(status.st_mtime_ns))


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _umask() -> int:
    mask = os.umask(0)          # it is read by setting it
    os.umask(mask)
    return mask
