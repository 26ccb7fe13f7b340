"""What goes: backups that were not finished, those beyond the newest N, and objects that none of the rest needs."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from webapp.backup.errors import BackupError
from webapp.backup.manifest import FOLDER, MANIFEST, POOL, names, part_key, pool_key, read_manifest, read_objects
from webapp.backup.stores import Folder, Store

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
    known = names(place)
    finished = [name for name, whole in known.items() if whole]
    gone = finished[:-keep]
    for name in gone:
        place.delete(part_key(name, MANIFEST))      # from here on it is unfinished
        _remove(place, name)
    if [name for name, whole in known.items() if not whole]:
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
