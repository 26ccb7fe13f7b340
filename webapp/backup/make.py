"""Make a backup while the product runs.

1  Objects are copied once, which takes long; rows and objects may change meanwhile.
2  The rows are held at one moment. Whatever a row of that moment claims is in the store by then: a row is committed after its
   objects. So the objects that came since step 1 are copied now, which is short, and then the rows are written.
3  Rows are read once more: a profile that was deleted since the moment, or whose derived objects were being written anew, is
   named in the manifest, and a restore deletes it or ingests it again. So no row comes back without its objects.
"""

from __future__ import annotations

import fcntl
import io
import json
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from django.conf import settings
from django.db import connection
from django.utils import timezone

from profiles.models import Profile, StoredUpload
from webapp.backup import rows, seal, tools
from webapp.backup.errors import BackupError, Progress, Refused, readable
from webapp.backup.manifest import (
    FOLDER,
    KEYS,
    MANIFEST,
    OBJECTS,
    POOL,
    ROWS,
    STARTED,
    Digest,
    Kept,
    Manifest,
    Part,
    names,
    new_name,
    part_key,
    pool_key,
    read_manifest,
    read_objects,
    write_manifest,
    write_objects,
    write_part,
)
from webapp.backup.stores import Entry, Folder, Store, product_store

# ---- what goes ----
# Backups that were not finished, those beyond the newest N, and objects that none of the rest needs.

_MAY_STILL_RUN = timedelta(days=1)      # a bucket knows no lock: an unfinished backup of today may be at work


def clear_unfinished(place: Store) -> list[str]:
    """Remove what backups that ended half-way left, and return their names. A folder must be held alone."""
    gone = [name for name, whole in names(place).items() if not whole and (isinstance(place, Folder) or _is_old(name))]
    for name in gone:
        _remove(place, name)
    return gone


def prune(place: Store, keep: int) -> list[str]:
    """Keep the newest `keep` finished backups; return the names of those that were removed.

    Raises BackupError where a backup that stays cannot be read: then no object is removed, for it may need any.
    """
    states = names(place)
    finished = [name for name, whole in states.items() if whole]
    gone = finished[:-keep]
    for name in gone:
        place.delete(part_key(name, MANIFEST))      # from here on it is unfinished
        _remove(place, name)
    if [name for name, whole in states.items() if not whole]:
        return gone                                 # another one is being made, and its list is not written yet
    try:
        needed = {pool_key(kept.sha256) for name in finished[-keep:] for kept in read_objects(place, read_manifest(place, name))}
    except BackupError as error:
        raise BackupError(f"the backup is made and older ones are removed, but their objects stay: {error}") from None
    for entry in place.list(POOL):
        if entry.key not in needed:
            place.delete(entry.key)
    return gone


def _remove(place: Store, name: str) -> None:
    for entry in list(place.list(f"{FOLDER}/{name}")):
        place.delete(entry.key)


def _is_old(name: str) -> bool:
    return datetime.now(UTC) - datetime.strptime(name[:17] + "+0000", "%Y-%m-%dT%H%M%S%z") > _MAY_STILL_RUN


# ---- make a backup while the product runs ----

_TRIES, _PAUSE_S = 4, 0.25          # of an object that changes while it is read


@dataclass(frozen=True)
class Made:
    manifest: Manifest
    copied: int             # objects that no earlier backup had
    copied_bytes: int
    pruned: list[str]       # names of older backups that were removed


def backup_make(place: Store, *, say: Callable[[str], None], passphrase: str | None = None, keep: int | None = None,
                full: bool = False) -> Made:
    """Write a backup into `place` and return what it came to. `full` trusts no copy of an earlier backup.

    Raises BackupError; what was begun is then no backup and is cleared by the next one.
    """
    source = product_store()
    _refuse_overlap(source, place)
    with exclusive(place):
        tools.find_tool("pg_dump", rows.server_major())         # before hours of copying
        clear_unfinished(place)
        name = new_name(timezone.now())
        place.write(part_key(name, STARTED), io.BytesIO(json.dumps({"pid": os.getpid()}).encode()))
        copier = Copier(source, place, {} if full else _known(place), say)
        copier.copy_all("saved")
        with rows.snapshot() as moment:
            made = timezone.now().isoformat(timespec="milliseconds")
            objects = _claimed(copier.copy_all("saved since"), moment.claims)
            later = _now_claims()
            parts = {OBJECTS: write_objects(place, name, objects)}
            say("writing the rows")
            counts = rows.counts()              # of the moment too; after the objects, which must not wait
            parts[ROWS] = _write_rows(place, name, moment.name)
        left_out = [] if passphrase else [
            f"the secret key: no passphrase was given ({seal.VARIABLE}). Keep RIDGEPOINT_HOME/secret_key or RIDGEPOINT_SECRET_KEY "
            "elsewhere; without it, sign-ins end and secrets of webhooks and engines cannot be read"]
        if settings.FLEET_URL:
            left_out.append("the fleet's sums in ClickHouse: use its own BACKUP command")
        if passphrase:
            parts[KEYS] = write_part(place, name, KEYS, io.BytesIO(seal.seal({"secret_key": settings.SECRET_KEY}, passphrase)))
        deleted = sorted(set(moment.claims.profiles) - set(later.profiles))
        manifest = Manifest(
            name=name, made=made, postgres=rows.server_major(), migrations=moment.migrations, parts=parts, objects=len(objects),
            object_bytes=sum(record.size for record in objects), rows=counts, deleted=deleted,
            deleted_captures=sorted(moment.claims.captures - later.captures),
            reread=_changed(moment.claims, later, copier.unsettled), left_out=left_out)
        write_manifest(place, manifest)
        pruned = prune(place, keep) if keep else []
    return Made(manifest, copier.copied, copier.copied_bytes, pruned)


class Copier:
    """Brings objects of the store into the pool of a place; `unsettled`: keys that changed at each try to read them."""

    def __init__(self, source: Store, place: Store, known: Mapping[str, Kept], say: Callable[[str], None]) -> None:
        self.source, self.place, self.say = source, place, say
        self.known = dict(known)
        self.pool = {entry.key: entry.size for entry in place.list(POOL)}
        self.unsettled: set[str] = set()
        self.copied = self.copied_bytes = 0

    def copy_all(self, verb: str) -> list[Kept]:
        """Copy what the pool lacks and return the objects as they stand now."""
        self.unsettled.clear()
        entries = list(self.source.list())
        progress = Progress(self.say, verb, len(entries), sum(entry.size for entry in entries))
        records = []
        for entry in entries:
            if record := self._copy(entry):
                records.append(record)
                self.known[record.key] = record
            progress.step(entry.size)
        self.say(progress.line)
        return records

    def _copy(self, entry: Entry) -> Kept | None:
        """Return the object with its digest, None where it is gone or does not stop changing."""
        for attempt in range(_TRIES):
            if attempt:
                time.sleep(_PAUSE_S)        # somebody writes it
                now = self.source.stat(entry.key)
                if now is None:
                    return None
                entry = now
            if record := self._reusable(entry):
                return record
            try:
                with self.source.open(entry.key) as file:
                    digest = Digest(file)
                    key = self.place.add(digest, lambda digest=digest: pool_key(digest.sha256))     # type: ignore[misc]
            except FileNotFoundError:
                return None
            if digest.size == entry.size and self.source.stat(entry.key) == entry:
                if key not in self.pool:
                    self.copied, self.copied_bytes = self.copied + 1, self.copied_bytes + digest.size
                self.pool[key] = digest.size
                self.unsettled.discard(entry.key)
                return Kept(entry.key, entry.size, digest.sha256, entry.stamp)
        self.unsettled.add(entry.key)
        return None

    def _reusable(self, entry: Entry) -> Kept | None:
        kept = self.known.get(entry.key)
        if kept and (kept.size, kept.stamp) == (entry.size, entry.stamp) and self.pool.get(pool_key(kept.sha256)) == kept.size:
            return kept
        return None


@contextmanager
def exclusive(place: Store) -> Iterator[None]:
    """Hold a folder alone. Raises Refused where another backup is being made there; a bucket knows no such lock."""
    if not isinstance(place, Folder):
        yield
        return
    place.root.mkdir(parents=True, exist_ok=True, mode=0o700)
    with open(place.root / ".lock", "w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise Refused(f"another backup is being made in {place.name}: wait until it has ended") from None
        place.clear_fresh()
        yield


def _known(place: Store) -> dict[str, Kept]:
    """Return the objects of the newest backup that can be read."""
    for name in [name for name, whole in names(place).items() if whole][::-1]:
        try:
            return {record.key: record for record in read_objects(place, read_manifest(place, name))}
        except BackupError:
            continue
    return {}


def _write_rows(place: Store, name: str, snapshot: str) -> Part:
    with tools.dump_stream(snapshot, rows.server_major()) as stream:
        return write_part(place, name, ROWS, stream)


def _now_claims() -> rows.Claims:
    """Return the claims of this moment, by a connection of its own: this thread's reads the snapshot."""
    def ask() -> rows.Claims:
        try:
            return rows.claims()
        finally:
            connection.close()

    with ThreadPoolExecutor(1) as other:
        return other.submit(ask).result()


def _claimed(objects: Iterable[Kept], claims: rows.Claims) -> list[Kept]:
    """Leave out objects that have no row at the moment: uploads that come in."""
    def has_row(key: str) -> bool:
        if key.startswith(f"{StoredUpload.FOLDER}/"):
            return key in claims.uploads
        return (owner := profile_of(key)) is None or owner in claims.profiles

    return [record for record in objects if has_row(record.key)]


def _changed(before: rows.Claims, after: rows.Claims, unsettled: Iterable[str]) -> list[int]:
    """Return profiles that were ready at the moment and whose derived objects were written anew since."""
    ready = {pk for pk, (status, _) in before.profiles.items() if status == Profile.Status.READY}
    moved = {pk for pk in ready if pk in after.profiles and after.profiles[pk] != before.profiles[pk]}
    return sorted(moved | (ready & {pk for key in unsettled if (pk := profile_of(key)) is not None and pk in after.profiles}))


def profile_of(key: str) -> int | None:
    """Return the profile whose object this is: "profiles/7/upload/x" → 7."""
    first, _, rest = key.partition("/")
    owner = rest.partition("/")[0]
    return int(owner) if first == "profiles" and owner.isascii() and owner.isdigit() else None


def _refuse_overlap(source: Store, place: Store) -> None:
    if isinstance(source, Folder) and isinstance(place, Folder) and (
            source.root == place.root or source.root in place.root.parents or place.root in source.root.parents):
        raise Refused(f"{place.name} and the object store {source.name} lie in each other: name a folder elsewhere, on another "
                      "disk at best")
    if not isinstance(source, Folder) and not isinstance(place, Folder) and (place.name + "/").startswith(source.name + "/"):
        raise Refused(f"{place.name} lies in the object store {source.name}: name another bucket")


def summary(made: Made) -> str:
    """Return what a backup came to, in one line."""
    manifest = made.manifest
    rows_size = readable(manifest.parts[ROWS].size)
    return (f"{manifest.name}: {sum(manifest.rows.values()):,} rows ({rows_size}), {manifest.objects:,} objects "
            f"({readable(manifest.object_bytes)}), of which {made.copied:,} ({readable(made.copied_bytes)}) are new")
