"""Room on the disks that Ridgepoint writes to: how much is free, how much is kept, and what an error says of a full one.

New uploads and captures are refused while less than the kept room (RIDGEPOINT_DISK_REST) is free, so that what runs can end.
What runs stops at a quarter of it, so that PostgreSQL and Valkey, which often share the disk, can still write.
"""

from __future__ import annotations

import errno
import re
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import redis
from django.conf import settings

from workers.away import causes

FULL_BYTES = 1 << 20                # less than this is none: the servers' next file does not fit
_UNITS = {"": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12}
_PART = re.compile(r"(\d+(?:\.\d+)?)\s*(%|[kmgt]?b|)", re.IGNORECASE)
_NO_SPACE = (errno.ENOSPC, errno.EDQUOT)
_DATABASE_FULL = "53100"            # PostgreSQL's disk_full
HINT = "delete profiles that nobody needs or make room on the server; what waits goes on by itself"


@dataclass(frozen=True)
class Place:
    """One disk and what lies on it. `rest_bytes` are kept free of new work."""

    names: tuple[str, ...]
    path: str
    free_bytes: int
    total_bytes: int
    rest_bytes: int

    @property
    def is_short(self) -> bool:
        """Return whether new work is refused."""
        return self.free_bytes < self.rest_bytes

    @property
    def is_spent(self) -> bool:
        """Return whether running work has to stop too."""
        return self.free_bytes < self.rest_bytes // 4

    @property
    def is_full(self) -> bool:
        return self.free_bytes < FULL_BYTES

    @property
    def title(self) -> str:
        return ", ".join(self.names)

    def as_json(self) -> dict[str, Any]:
        return {"names": list(self.names), "free_bytes": self.free_bytes, "total_bytes": self.total_bytes,
                "rest_bytes": self.rest_bytes, "short": self.is_short}


class NoRoom(OSError):
    """Too little room for new or further work. `what` and `hint` are for people, without a final stop."""

    def __init__(self, place: Place) -> None:
        free, rest = size(place.free_bytes), size(place.rest_bytes)
        self.place, self.hint = place, HINT
        self.what = f"the disk is full: {free} free, {rest} are kept for what runs ({place.title})"
        super().__init__(errno.ENOSPC, self.what)

    def __str__(self) -> str:
        return self.what


def rest_parse(text: str) -> list[tuple[float, str]]:
    """Return (number, unit) of each part of "2 GB, 5 %". Raises ValueError with what would be right."""
    parts = [_PART.fullmatch(part.strip()) for part in text.split(",")]
    if not all(parts):
        raise ValueError(f"RIDGEPOINT_DISK_REST is {text!r}: a size or a share of the disk, “2 GB”, “5 %”, or both with a comma: "
                         "the smaller one holds")
    return [(float(part[1]), part[2].lower()) for part in parts if part]


def rest_bytes(total_bytes: int, text: str) -> int:
    """Return how much of a disk of `total_bytes` is kept free: the smallest of the parts of `text`."""
    return int(min(number * total_bytes / 100 if unit == "%" else number * _UNITS[unit] for number, unit in rest_parse(text)))


def places() -> list[Place]:
    """Return the disks of the data folder, of temporary files and of the object store where it is a folder; each disk once."""
    store = settings.STORAGES["default"].get("OPTIONS", {}).get("location")
    folders_by_name = {"data folder": settings.HOME, "temporary files": settings.FILE_UPLOAD_TEMP_DIR or tempfile.gettempdir(),
                       **({"object store": store} if store else {})}
    entries: dict[int, tuple[list[str], Path]] = {}
    for name, folder in folders_by_name.items():
        path = _existing(Path(folder))
        entries.setdefault(path.stat().st_dev, ([], path))[0].append(name)
    return [_place(names, path) for names, path in entries.values()]


def _place(names: list[str], path: Path) -> Place:
    usage = shutil.disk_usage(path)
    return Place(tuple(names), str(path), usage.free, usage.total, rest_bytes(usage.total, settings.DISK_REST))


def _existing(path: Path) -> Path:
    """Return the folder, or the nearest one above it that exists."""
    return next(folder for folder in (path, *path.parents) if folder.is_dir())


def shortage() -> Place | None:
    """Return a disk that has too little room for new work; None where all have enough."""
    return next((place for place in places() if place.is_short), None)


def least_free_bytes(*, less_rest: bool = False) -> int:
    """Return what is free on the fullest disk; less_rest: without a quarter of what is kept."""
    return min(place.free_bytes - (place.rest_bytes // 4 if less_rest else 0) for place in places())


def require_room() -> None:
    """Refuse new work. Raises NoRoom."""
    if place := shortage():
        raise NoRoom(place)


def require_rest() -> None:
    """Stop running work before the disk is full. Raises NoRoom."""
    if place := next((place for place in places() if place.is_spent), None):
        raise NoRoom(place)


def is_full_error(error: BaseException | None) -> bool:
    """Return whether an error, or what it was raised from, says that a disk is full: ours, PostgreSQL's or Valkey's."""
    return any(map(_says_full, causes(error)))


def _says_full(error: BaseException) -> bool:
    if isinstance(error, OSError) and error.errno in _NO_SPACE:
        return True
    if isinstance(error, redis.ResponseError):
        return any(word in str(error) for word in ("MISCONF ", "OOM command"))
    # DuckDB, Arrow and programs that a stage starts pass the system's words on, without its number
    return getattr(error, "sqlstate", None) == _DATABASE_FULL or "No space left on device" in str(error)


def size(number: int) -> str:
    """Return bytes with three digits and their unit."""
    for unit in ("B", "kB", "MB", "GB"):
        if number < 1000:
            return f"{number:.3g} {unit}"
        number /= 1000      # type: ignore[assignment]
    return f"{number:.3g} TB"
