"""Bring a backup into an installation: checked whole first, then objects, then all rows in one transaction.

A mark in the data folder stands from the first change to the last. A restore that is killed leaves it: the product does not
start over half of the data, and the next restore begins anew.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from django.conf import settings

from webapp import schema
from webapp.backup import check, rows, tools
from webapp.backup.check import Checked, backup_check, open_keys
from webapp.backup.errors import BackupError, Damaged, Progress, Refused
from webapp.backup.make import profile_of
from webapp.backup.manifest import ROWS, Digest, Kept, Manifest, choose, part_key, pool_key, read_manifest, read_objects
from webapp.backup.seal import VARIABLE
from webapp.backup.stores import Store, product_store

_MOST_NAMED = 5         # faults or tables that a message names


@dataclass(frozen=True)
class Restored:
    manifest: Manifest
    lost: dict[str, str]        # objects that the backup had damaged, left out on request
    notes: list[str]            # what is to be known or done


def backup_restore(place: Store, name: str | None, *, say: Callable[[str], None], passphrase: str | None = None,
                   replace: bool = False, without_keys: bool = False, skip_damaged: bool = False) -> Restored:
    """Fill this installation from a backup. Raises Refused, Damaged and other BackupErrors.

    Nothing is changed before the whole backup was read and found whole.
    """
    name = choose(place, name)
    manifest = read_manifest(place, name)
    _refuse_versions(manifest)
    keys = _keys(place, manifest, passphrase, without_keys)
    home = Path(settings.HOME)
    target = product_store()
    if not replace and check.marked(home) is None:
        _refuse_data(target)
    rows.refuse_company()
    say(f"checking {name}")
    checked = backup_check(place, name, say=say)
    _refuse_damage(checked, skip_damaged)
    objects = [record for record in read_objects(place, manifest) if record.key not in checked.objects]

    check.mark(home, place.name, name)
    rows.drop_all()
    _clear(target, {record.key for record in objects})
    _copy(place, target, objects, say)
    say("writing the rows")
    _load(place, manifest)
    _compare_counts(manifest)
    schema.bring_up_to_date()
    lost_profiles = {pk for key in checked.objects if (pk := profile_of(key)) is not None}
    rows.settle(manifest.deleted, manifest.deleted_captures, {*manifest.reread, *lost_profiles,
                                                                          *rows.users_of(checked.objects)})
    for pk in manifest.deleted:
        _clear(target, set(), f"profiles/{pk}")
    notes = _put_keys(home, keys, manifest)
    shutil.rmtree(home / "cache" / "objects", ignore_errors=True)       # copies of a bucket's objects
    check.unmark(home)
    return Restored(manifest, checked.objects, notes)


def _refuse_versions(manifest: Manifest) -> None:
    if later := rows.unknown(manifest.migrations):
        raise Refused(f"{manifest.name} was made by a later version of Ridgepoint (its schema has {later[-1]}): install that one "
                      "first")
    server = rows.server_major()
    if server < manifest.postgres:
        raise Refused(f"{manifest.name} comes from PostgreSQL {manifest.postgres}, this server is {server}: use "
                      f"{manifest.postgres} or later")
    tools.find_tool("pg_restore", max(server, manifest.postgres))


def _refuse_data(target: Store) -> None:
    held = rows.describe_data()
    if next(target.list(), None):
        held.append(f"objects in {target.name}")
    if held:
        more = f" and {len(held) - _MOST_NAMED} more" if len(held) > _MOST_NAMED else ""
        raise Refused(f"this installation holds data ({', '.join(held[:_MOST_NAMED])}{more}). Restore into an empty one, or add "
                      "--replace: all of it is deleted then")


def _refuse_damage(checked: Checked, skip_damaged: bool) -> None:
    faults = checked.faults if skip_damaged else checked.describe()
    if faults:
        more = f"\n  and {len(faults) - _MOST_NAMED:,} more" if len(faults) > _MOST_NAMED else ""
        advice = ("" if checked.faults else "\n--skip-damaged leaves these objects out and ingests their profiles again; "
                  "`backup --list` shows other backups")
        named = "\n  ".join(faults[:_MOST_NAMED])
        raise Damaged(f"{checked.manifest.name} is damaged; nothing was changed:\n  {named}{more}{advice}")


def _keys(place: Store, manifest: Manifest, passphrase: str | None, without: bool) -> dict[str, str]:
    if not manifest.has_keys or without:
        return {}
    if passphrase is None:
        raise BackupError(f"{manifest.name} holds the secret key under a passphrase: give it by {VARIABLE} or {VARIABLE}_FILE, or "
                          "add --without-keys (then sign-ins end and stored secrets cannot be read)")
    try:
        return open_keys(place, manifest, passphrase)
    except FileNotFoundError:
        raise Damaged(f"{manifest.name}: the sealed keys are missing. --without-keys restores without them") from None


def _clear(target: Store, keep: set[str], prefix: str = "") -> None:
    for entry in list(target.list(prefix)):
        if entry.key not in keep:
            target.delete(entry.key)


def _copy(place: Store, target: Store, objects: list[Kept], say: Callable[[str], None]) -> None:
    progress = Progress(say, "restored", len(objects), sum(record.size for record in objects))
    for record in objects:
        try:
            with place.open(pool_key(record.sha256)) as file:
                digest = Digest(file)
                target.write(record.key, digest)
        except FileNotFoundError:
            raise Damaged(f"{pool_key(record.sha256)} vanished while it was restored") from None
        if digest.sha256 != record.sha256:
            raise Damaged(f"{pool_key(record.sha256)} reads differently than it did a moment ago: {place.name} may be failing")
        progress.step(record.size)
    say(progress.line)


def _load(place: Store, manifest: Manifest) -> None:
    with place.open(part_key(manifest.name, ROWS)) as file:
        tools.load_dump(file, max(rows.server_major(), manifest.postgres))


def _compare_counts(manifest: Manifest) -> None:
    now = rows.counts()
    wrong = [f"{table}: {now.get(table, 0):,} rows in place of {number:,}" for table, number in manifest.rows.items()
             if now.get(table, 0) != number]
    if wrong:
        raise Damaged(f"the rows are not those of the manifest: {', '.join(wrong[:_MOST_NAMED])}")


def _put_keys(home: Path, keys: Mapping[str, str], manifest: Manifest) -> list[str]:
    notes = list(manifest.left_out)
    key = keys.get("secret_key")
    if key is None:
        return notes
    if os.environ.get("RIDGEPOINT_SECRET_KEY"):
        if os.environ["RIDGEPOINT_SECRET_KEY"] != key:
            notes.append("RIDGEPOINT_SECRET_KEY differs from the backup's key: stored secrets cannot be read under it")
        return notes
    fresh = home / f"secret_key.{os.getpid()}"
    with contextlib.suppress(FileNotFoundError):
        fresh.unlink()
    with open(os.open(fresh, os.O_CREAT | os.O_WRONLY | os.O_EXCL, 0o600), "w") as out:
        out.write(key)
    os.replace(fresh, home / "secret_key")
    return notes
