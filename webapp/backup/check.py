"""Read a backup again, all of it, and say what is missing or damaged."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, MutableMapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from webapp.backup import tools
from webapp.backup.errors import BackupError, Damaged, Progress
from webapp.backup.manifest import (
    KEYS,
    OBJECTS,
    ROWS,
    Digest,
    Kept,
    Manifest,
    names,
    part_key,
    pool_key,
    read_manifest,
    read_objects,
)
from webapp.backup.stores import Store

# The mark of a restore that has not ended, and the data folder that a restore is to fill. Read before any settings.

MARK = "restore.unfinished"
_FOREIGN = ("DATABASE_URL", "RIDGEPOINT_S3_BUCKET")
_ALLOWED = ("restore", "backup", "dbshell", "help", "version", "check")


def mark(home: Path, place: str, name: str) -> None:
    """Say that a restore has begun; it survives a kill and a power loss."""
    fresh = home / f"{MARK}.{os.getpid()}"
    with open(fresh, "w") as out:
        json.dump({"place": place, "backup": name}, out)
        out.flush()
        os.fsync(out.fileno())
    os.replace(fresh, home / MARK)


def unmark(home: Path) -> None:
    (home / MARK).unlink(missing_ok=True)


def marked(home: Path) -> dict[str, str] | None:
    """Return {"place", "backup"} of the restore that has not ended, None where there is none."""
    try:
        said = json.loads((home / MARK).read_text())
        return {"place": str(said["place"]), "backup": str(said["backup"])}
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError):
        return {"place": "", "backup": ""}


def refuse_half_restored(home: Path, command: str) -> str | None:
    """Return why a command may not run over a half restored installation, None where it may."""
    if command in _ALLOWED or (said := marked(home)) is None:
        return None
    again = f"manage.py restore {said['place'] or 'DIR'}" + (f" --backup {said['backup']}" if said["backup"] else "")
    return f"a restore into {home} has not ended, so its data is not complete: run `{again}` again, which begins anew"


def choose_home(arguments: Sequence[str], env: MutableMapping[str, str]) -> str | None:
    """Make `--to FOLDER` of a restore the data folder of this process. Return what is wrong with it, None for nothing."""
    for number, word in enumerate(arguments):
        named, separator, value = word.partition("=")
        if named == "--to":
            folder = value if separator else next(iter(arguments[number + 1:]), "")
            foreign = [name for name in _FOREIGN if env.get(name)]
            if foreign and folder:
                return (f"--to {folder}: {' and '.join(foreign)} name where data lies, which a folder does not change. "
                        "Unset them, or leave out --to")
            if folder:
                env["RIDGEPOINT_HOME"] = str(Path(folder).expanduser().resolve())
    return None


@dataclass
class Checked:
    """`faults`: what is wrong with the backup itself, in words; `objects`: those that are missing or damaged, and how."""

    manifest: Manifest
    faults: list[str] = field(default_factory=list)
    objects: dict[str, str] = field(default_factory=dict)       # key in the product → what is wrong

    @property
    def is_whole(self) -> bool:
        return not self.faults and not self.objects

    def describe(self) -> list[str]:
        """Return one line for each fault."""
        return self.faults + [f"{key}: {wrong}" for key, wrong in self.objects.items()]


def backup_check(place: Store, name: str, *, say: Callable[[str], None], passphrase: str | None = None) -> Checked:
    """Read every byte of a backup and compare digests. Raises Damaged where its manifest cannot be read."""
    checked = Checked(read_manifest(place, name))
    manifest = checked.manifest
    for part in (ROWS, OBJECTS):
        if part not in manifest.parts:
            checked.faults.append(f"{part}: the manifest does not name it")
    for part, entry in manifest.parts.items():
        if wrong := _compare(place, part_key(name, part), entry.size, entry.sha256):
            checked.faults.append(f"{part_key(name, part)}: {wrong}")
    if not checked.faults:
        try:
            with place.open(part_key(name, ROWS)) as dump:
                tools.read_dump(dump, manifest.postgres)
        except Damaged as error:
            checked.faults.append(f"{part_key(name, ROWS)}: {error}")
        if passphrase and manifest.has_keys:
            open_keys(place, manifest, passphrase)
    try:
        objects = list(read_objects(place, manifest))
    except Damaged as error:
        if not any(OBJECTS in fault for fault in checked.faults):
            checked.faults.append(str(error))
        return checked
    checked.objects = _check_objects(place, objects, say)
    return checked


def open_keys(place: Store, manifest: Manifest, passphrase: str) -> dict[str, str]:
    """Return the sealed keys. Raises BackupError for a wrong passphrase."""
    from webapp.backup import seal  # here: only where there are keys

    with place.open(part_key(manifest.name, KEYS)) as file:
        return seal.unseal(file.read(1 << 20), passphrase)


def _check_objects(place: Store, objects: list[Kept], say: Callable[[str], None]) -> dict[str, str]:
    progress = Progress(say, "read", len(objects), sum(record.size for record in objects))
    wrong: dict[str, str] = {}
    problems: dict[str, str] = {}           # by digest: equal bytes lie once in the pool
    for record in objects:
        if record.sha256 not in problems:
            problems[record.sha256] = _compare(place, pool_key(record.sha256), record.size, record.sha256)
        if problems[record.sha256]:
            wrong[record.key] = f"{problems[record.sha256]} ({pool_key(record.sha256)})"
        progress.step(record.size)
    say(progress.line)
    return wrong


def _compare(place: Store, key: str, size: int, sha256: str) -> str:
    """Return what is wrong with the bytes under a key, "" for nothing."""
    try:
        with place.open(key) as file:
            digest = Digest(file)
            while digest.read():
                pass
    except FileNotFoundError:
        return "missing"
    except OSError as error:
        return f"cannot be read: {error.strerror or error}"
    if digest.size != size:
        return f"damaged: {digest.size:,} bytes in place of {size:,}"
    return "" if digest.sha256 == sha256 else "damaged: its bytes are others than those that were stored"


def backups_describe(place: Store) -> list[dict[str, object]]:
    """Return one row for each backup of a place, the oldest first."""
    listed: list[dict[str, object]] = []
    for name, whole in names(place).items():
        row: dict[str, object] = {"name": name, "state": "finished" if whole else "unfinished"}
        if whole:
            try:
                manifest = read_manifest(place, name)
                row |= {"objects": manifest.objects, "object_bytes": manifest.object_bytes, "rows": sum(manifest.rows.values()),
                        "dump_bytes": manifest.parts[ROWS].size, "postgres": manifest.postgres, "keys": manifest.has_keys}
            except (BackupError, KeyError) as error:
                row |= {"state": "damaged", "error": str(error)}
        listed.append(row)
    return listed
