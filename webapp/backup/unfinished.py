"""The mark of a restore that has not ended, and the data folder that a restore is to fill. Read before any settings."""

from __future__ import annotations

import json
import os
from collections.abc import MutableMapping, Sequence
from pathlib import Path

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
