"""What a backup says of itself. A backup is finished when its manifest is there: it is written last.

    objects/<2 hex>/<sha256>        bytes, once for all backups of this place
    backups/<name>/started.json     written first
                   rows.dump        pg_dump of one snapshot
                   keys.json        keys under a passphrase, where one was given
                   objects.jsonl.gz {"key", "size", "sha256", "stamp"} a line
                   manifest.json
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import re
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field, fields
from datetime import UTC, datetime
from typing import Any

from webapp.backup.errors import BackupError, Damaged
from webapp.backup.stores import CHUNK_BYTES, Readable, Store

FORMAT = 1
STARTED, ROWS, KEYS, OBJECTS, MANIFEST = "started.json", "rows.dump", "keys.json", "objects.jsonl.gz", "manifest.json"
POOL, FOLDER = "objects", "backups"
_NAME = re.compile(r"\d{4}-\d\d-\d\dT\d{6}(?:\.\d{3})?Z")
_SHA256 = re.compile(r"[0-9a-f]{64}")
MOST_MANIFEST_BYTES, MOST_LINE_BYTES = 64 << 20, 8192


@dataclass(frozen=True)
class Part:
    """A file of a backup."""

    size: int           # bytes
    sha256: str


@dataclass(frozen=True)
class Kept:
    """An object of the store: its bytes lie in the pool under their digest."""

    key: str
    size: int           # bytes
    sha256: str
    stamp: str          # `stores.Entry.stamp` when it was read


@dataclass(frozen=True)
class Manifest:
    name: str
    made: str                               # ISO, UTC: the moment of the rows
    postgres: int                           # major version of the server
    migrations: list[list[str]]             # [app, name] applied
    parts: dict[str, Part]                  # by file name
    objects: int
    object_bytes: int
    rows: dict[str, int]                    # rows by table
    deleted: list[int] = field(default_factory=list)        # profiles that were deleted while this backup was made
    deleted_captures: list[int] = field(default_factory=list)
    reread: list[int] = field(default_factory=list)         # profiles whose derived objects changed meanwhile
    left_out: list[str] = field(default_factory=list)       # what a restore does not bring back, in words
    format: int = FORMAT

    @property
    def has_keys(self) -> bool:
        return KEYS in self.parts


def new_name(now: datetime) -> str:
    return f"{now.astimezone(UTC):%Y-%m-%dT%H%M%S}.{now.microsecond // 1000:03d}Z"


def pool_key(sha256: str) -> str:
    return f"{POOL}/{sha256[:2]}/{sha256}"


def part_key(name: str, part: str) -> str:
    return f"{FOLDER}/{name}/{part}"


def names(place: Store) -> dict[str, bool]:
    """Return the backups of a place by name, the oldest first, and whether each is finished."""
    states: dict[str, bool] = {}
    for entry in place.list(FOLDER):
        _, name, *rest = entry.key.split("/")
        if _NAME.fullmatch(name):
            states[name] = states.get(name, False) or rest == [MANIFEST]
    return dict(sorted(states.items()))


def choose(place: Store, wanted: str | None) -> str:
    """Return the named finished backup, else the newest. Raises BackupError."""
    finished = [name for name, whole in names(place).items() if whole]
    if wanted is None and finished:
        return finished[-1]
    if wanted in finished:
        return wanted
    there = f"it holds {', '.join(finished)}" if finished else "it holds no finished backup"
    raise BackupError(f"{place.name}: no backup {wanted or ''}; {there}".replace("  ", " ").replace(" ;", ";"))


class Digest:
    """A source that is read once: what passed, counted and hashed."""

    def __init__(self, source: Readable) -> None:
        self.source, self.size, self._sha256 = source, 0, hashlib.sha256()

    def read(self, size: int = CHUNK_BYTES, /) -> bytes:
        chunk = self.source.read(size if size and size > 0 else CHUNK_BYTES)
        self.size += len(chunk)
        self._sha256.update(chunk)
        return chunk

    @property
    def sha256(self) -> str:
        return self._sha256.hexdigest()

    @property
    def part(self) -> Part:
        return Part(self.size, self.sha256)


def write_part(place: Store, name: str, part: str, source: Readable) -> Part:
    """Store a file of a backup and return its size and digest."""
    digest = Digest(source)
    place.write(part_key(name, part), digest)
    return digest.part


def write_objects(place: Store, name: str, objects: Iterable[Kept]) -> Part:
    """Store the list of objects."""
    packed = io.BytesIO()
    with gzip.GzipFile(fileobj=packed, mode="wb", mtime=0) as out:
        for record in objects:
            out.write(json.dumps(asdict(record)).encode() + b"\n")
    packed.seek(0)
    return write_part(place, name, OBJECTS, packed)


def read_objects(place: Store, manifest: Manifest) -> Iterator[Kept]:
    """Yield the objects of a backup. Raises Damaged."""
    number = 0
    try:
        with place.open(part_key(manifest.name, OBJECTS)) as packed, gzip.GzipFile(fileobj=packed) as lines:
            while line := lines.readline(MOST_LINE_BYTES):
                number += 1
                row = json.loads(line)
                record = Kept(str(row["key"]), int(row["size"]), str(row["sha256"]), str(row["stamp"]))
                if not _SHA256.fullmatch(record.sha256):
                    raise ValueError("no digest")
                yield record
    except FileNotFoundError:
        raise Damaged(f"{manifest.name}: {OBJECTS} is missing") from None
    except (OSError, EOFError, ValueError, KeyError, TypeError, zlib.error) as error:
        raise Damaged(f"{manifest.name}: {OBJECTS} is damaged in line {number + 1}: {error}") from None
    if number != manifest.objects:
        raise Damaged(f"{manifest.name}: {OBJECTS} lists {number:,} objects, the manifest {manifest.objects:,}")


def write_manifest(place: Store, manifest: Manifest) -> None:
    """Finish a backup."""
    content = asdict(manifest)
    document = {"sha256": _digest(content), "manifest": content}
    place.write(part_key(manifest.name, MANIFEST), io.BytesIO(json.dumps(document, indent=1).encode()))


def read_manifest(place: Store, name: str) -> Manifest:
    """Return a backup's manifest. Raises Damaged, and BackupError for one of a later version."""
    try:
        with place.open(part_key(name, MANIFEST)) as file:
            text = file.read(MOST_MANIFEST_BYTES)
        document = json.loads(text)
        content: dict[str, Any] = document["manifest"]
        if isinstance(content.get("format"), int) and content["format"] > FORMAT:
            raise BackupError(f"{name} was made by a later version of Ridgepoint (format {content['format']}): use that one")
        if document["sha256"] != _digest(content) or content["name"] != name:
            raise ValueError("its digest is another")
        parts = {part: Part(**entry) for part, entry in content["parts"].items()}
        return Manifest(**{each.name: content[each.name] for each in fields(Manifest)} | {"parts": parts})
    except FileNotFoundError:
        raise Damaged(f"{name}: {MANIFEST} is missing") from None
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise Damaged(f"{name}: {MANIFEST} is damaged: {error}") from None


def _digest(content: Any) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
