"""Keep what jobs compiled for other hosts of the project: bytes once, by their hash, bounded, those unused longest go first."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from django.core.files.base import ContentFile
from django.core.files.storage import default_storage
from django.db.models import QuerySet, Sum
from django.utils import timezone

from profiles.base.refused import Refused
from tuner.models import CompiledFile
from workers.scope import current

log = logging.getLogger(__name__)
FOLDER = "compiled"
MOST_BYTES = 8 * 2**30                     # of one project; at more, what was not used for longest goes
TRIM_TO = 0.9                              # of MOST_BYTES
ANSWER_BYTES = 32 * 2**20                  # of one answer; what does not fit is a miss, and is asked for alone
TRIM_EVERY = 16                            # files that come; adding up takes as long as there are files


@dataclass(frozen=True)
class Tool:
    """`replaces`: a later file of the same key and name is the better one; else the first stays, whoever sends another."""

    most_bytes: int
    replaces: bool


TOOLS = {"triton": Tool(16 * 2**20, False), "helion": Tool(2**18, True)}


def put_file(*, owner: Any, tool: str, key: str, name: str, data: bytes) -> bool:
    """Keep a file; False where one of this key and name stays. Raises Refused."""
    rule = TOOLS[tool]
    if len(data) > rule.most_bytes:
        raise Refused(f"{name}: {len(data):,} bytes; {tool} may keep {rule.most_bytes:,} of one file", whole="content")
    sha256 = hashlib.sha256(data).hexdigest()
    there = CompiledFile.objects.filter(tool=tool, key=key, name=name).first()
    if there is not None and there.sha256 != sha256 and not rule.replaces:
        return False
    path = _path(current().project, sha256)
    if not default_storage.exists(path):
        saved = default_storage.save(path, ContentFile(data))
        if saved != path:                  # another request was faster
            default_storage.delete(saved)
    now = timezone.now()
    row, is_new = CompiledFile.objects.update_or_create(tool=tool, key=key, name=name, defaults={
        "sha256": sha256, "size_bytes": len(data), "owner": owner, "used": now, "created": now})
    if there is not None and there.sha256 != sha256:
        _delete_bytes(current().project, [there.sha256])
    if is_new and row.pk % TRIM_EVERY == 0:
        _trim()
    return True


def get_files(tool: str, key: str, names: Sequence[str]) -> dict[str, bytes]:
    """Return the files of a key that are here, as many as fit into one answer."""
    contents: dict[str, bytes] = {}
    rows = CompiledFile.objects.filter(tool=tool, key=key, name__in=names).order_by("size_bytes")
    room, pks = ANSWER_BYTES, []
    for row in rows:
        room -= row.size_bytes
        if (room < 0 and contents) or (data := _read(row)) is None:
            continue
        contents[row.name] = data
        pks.append(row.pk)
    day_ago = timezone.now() - timedelta(days=1)
    CompiledFile.objects.filter(pk__in=pks, used__lt=day_ago).update(used=timezone.now())
    return contents


def newest_files(tool: str, most: int) -> list[tuple[str, str, bytes]]:
    """Return (key, name, bytes) of the newest files of a tool."""
    rows = CompiledFile.objects.filter(tool=tool).order_by("-created", "-pk")[:most]
    return [(row.key, row.name, data) for row in rows if (data := _read(row)) is not None]


def delete_file(row: CompiledFile) -> None:
    """Delete a row, and its bytes where no other row has them."""
    row.delete()
    _delete_bytes(int(row.project_id or 0), [row.sha256])


def files_bytes(rows: QuerySet[CompiledFile]) -> int:
    """Return what the files of these rows take, those of the same bytes once."""
    return sum(size_bytes for _, size_bytes in rows.order_by().values_list("sha256", "size_bytes").distinct())


def freed_bytes(rows: QuerySet[CompiledFile]) -> int:
    """Return what the store gains when these rows go: bytes that other rows have stay."""
    others = CompiledFile.objects.exclude(pk__in=rows.order_by().values("pk")).values("sha256")
    return files_bytes(rows.exclude(sha256__in=others))


def _read(row: CompiledFile) -> bytes | None:
    """Return a row's bytes; None where the store lost or changed them: then the row goes."""
    try:
        with default_storage.open(_path(int(row.project_id or 0), row.sha256), "rb") as file:
            data: bytes = file.read(TOOLS[row.tool].most_bytes + 1)
    except FileNotFoundError:
        data = b""
    if hashlib.sha256(data).hexdigest() == row.sha256:
        return data
    log.warning("compiled file %s: its bytes are not in the object store as they came", row.pk)
    row.delete()
    return None


def _path(project: int, sha256: str) -> str:
    return f"{FOLDER}/{project}/{sha256[:2]}/{sha256}"


def _trim() -> None:
    """Delete what was not used for longest where the project has more than MOST_BYTES."""
    total = CompiledFile.objects.aggregate(sum=Sum("size_bytes"))["sum"] or 0
    if total <= MOST_BYTES:
        return
    gone: list[CompiledFile] = []
    for row in CompiledFile.objects.order_by("used", "pk").iterator():
        if total <= MOST_BYTES * TRIM_TO:
            break
        gone.append(row)
        total -= row.size_bytes
    CompiledFile.objects.filter(pk__in=[row.pk for row in gone]).delete()
    _delete_bytes(current().project, {row.sha256 for row in gone})


def _delete_bytes(project: int, digests: Iterable[str]) -> None:
    """Delete bytes that no row of the project has. A row that came meanwhile finds them gone and is a miss."""
    gone = set(digests)
    for sha256 in gone - set(CompiledFile.objects.filter(sha256__in=gone).values_list("sha256", flat=True)):
        default_storage.delete(_path(project, sha256))
