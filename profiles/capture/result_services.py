"""What becomes of the files that a capture left: profiles to ingest, and files kept for download.

What a Chakra execution trace holds, in a sentence: such a file is kept for download and not read further.
"""

from __future__ import annotations

import gzip
import zlib
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
from django.core.files.base import File
from django.db import transaction

from profiles.analysis.core.sentences import plural
from profiles.capture.tools.tool import KEPT, OWNERS, PROFILE, Result
from profiles.models import Capture, CaptureFile, Profile
from profiles.store.objects import bytes_store, capture_objects_delete, capture_prefix
from profiles.upload.files_services import uploads_discard
from profiles.upload.services import profile_create

MOST_BYTES = 256 << 20          # unpacked; of a larger one nothing is said
MOST_NAMES = 3
_NAME_CHARS = 60


class _Inputs(msgspec.Struct):
    shapes: list[object] = []


class _Node(msgspec.Struct):
    id: int
    name: str
    ctrl_deps: int = 0
    inputs: _Inputs = msgspec.field(default_factory=_Inputs)


class _Trace(msgspec.Struct):
    schema: str
    nodes: list[_Node]


def holds(path: Path) -> str:
    """Return nodes, operators, collectives and depth of a .json or .json.gz file; why not, where it cannot be told."""
    try:
        with (gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb")) as stream:
            data = stream.read(MOST_BYTES + 1)
    except (OSError, EOFError, zlib.error):
        return "cut short"
    if len(data) > MOST_BYTES:
        return f"more than {MOST_BYTES >> 20} MB unpacked: not looked into"
    try:
        trace = msgspec.json.decode(data, type=_Trace)
    except (msgspec.DecodeError, RecursionError):       # a ValidationError is one
        return "no execution trace that can be read"
    return _sentence(trace.nodes) if "chakra" in trace.schema else "no Chakra trace by its schema"


def _sentence(nodes: list[_Node]) -> str:
    operators = [node for node in nodes if "::" in node.name]
    kinds = Counter(node.name[:_NAME_CHARS] for node in operators)
    collectives = sum("record_param_comms" in node.name for node in nodes)
    most = ", ".join(f"{name} × {count:,}" for name, count in kinds.most_common(MOST_NAMES))
    shaped = sum(bool(node.inputs.shapes) for node in operators)
    return "; ".join(part for part in (
        plural(len(nodes), "node"),
        f"{plural(len(operators), 'operator')} of {plural(len(kinds), 'kind')}, {shaped:,} with inputs' shapes",
        f"{_depth(nodes)} deep", plural(collectives, "collective") if collectives else "", most) if part)


def _depth(nodes: list[_Node]) -> int:
    """Return the most nodes on a way from a root: by the callers that nodes name, however they are ordered."""
    parents = {node.id: node.ctrl_deps for node in nodes}
    depths: dict[int, int] = {}
    for start in parents:
        way, node_id = [], start
        while node_id in parents and node_id not in depths and parents[node_id] != node_id:
            depths[node_id] = 0                   # being walked: a circle ends here
            way.append(node_id)
            node_id = parents[node_id]
        depth = depths.get(node_id, 1 if node_id in parents else 0)
        for step_id in reversed(way):
            depth += 1
            depths[step_id] = depth
    return max(depths.values(), default=0)


@dataclass(frozen=True)
class Found:
    """One file of the capture's folder and what the tool says of it."""

    path: Path
    result: Result


def results_find(folder: Path, results: Sequence[Result]) -> list[Found]:
    """Return the files that the tool wrote, in the order of its table and of their names; each belongs to the first that fits."""
    found_by_path: dict[Path, Found] = {}
    for result in results:
        for path in sorted(folder.glob(result.name)):
            if path.is_file() and not path.is_symlink() and path.stat().st_size:
                found_by_path.setdefault(path, Found(path, result))
    return list(found_by_path.values())


def results_store(capture: Capture, worker: str, files: Sequence[Found], *, name: str, notes: str) -> bool:
    """Create the profiles and rows of files and end the capture as done, in one transaction.

    `files` holds at least one PROFILE file; several are the ranks of one job. False, with nothing stored, when the capture
    is no longer `worker`'s. Raises TraceError for a file beyond the bound on uploads.
    """
    profiles: list[Profile] = []
    try:
        with transaction.atomic():
            if Capture.leases.lock(capture.pk, worker) is None:
                return False
            main = [file for file in files if file.result.role == PROFILE]
            profile = _profile(capture, main, name, notes)
            profiles.append(profile)
            rows = _rows_of_profile(capture, main, profile)
            for file in files:
                if file.result.role in (KEPT, OWNERS):
                    rows.append(_kept(capture, file))
                elif file.result.role != PROFILE:
                    linked = _profile(capture, [file], f"{name} · {file.result.what or file.path.name}", notes)
                    profiles.append(linked)
                    rows += _rows_of_profile(capture, [file], linked)
            CaptureFile.objects.bulk_create(rows)
            return Capture.leases.end(capture.pk, worker, Capture.Status.DONE, profile=profile)
    except BaseException:               # the store knows no transaction
        for each_made in profiles:
            uploads_discard(each_made)
        capture_objects_delete(capture.pk)
        raise


def dump_store(capture: Capture, worker: str, file: Found, *, name: str) -> bool:
    """Create the profile of one file while the capture goes on. False, with nothing stored, when it is no longer `worker`'s.

    The capture's row is not locked meanwhile: its heartbeat goes on. Raises TraceError.
    """
    if not Capture.leases.is_held(capture.pk, worker):
        return False
    profile = None
    try:
        with transaction.atomic():
            profile = _profile(capture, [file], f"{name} · {file.result.what} ({file.path.stem})",
                               f"Asked for while capture {capture.pk} ran.")
            CaptureFile.objects.bulk_create(_rows_of_profile(capture, [file], profile))
    except BaseException:               # the store knows no transaction
        if profile is not None:
            uploads_discard(profile)
        raise
    return True


def results_keep(capture: Capture, worker: str, files: Sequence[Found]) -> None:
    """Keep for download what a capture left that cannot become a profile. Raises TraceError, with nothing stored."""
    try:
        with transaction.atomic():
            if Capture.leases.lock(capture.pk, worker) is not None:
                CaptureFile.objects.bulk_create([_kept(capture, file) for file in files])
    except BaseException:
        capture_objects_delete(capture.pk)
        raise


def _profile(capture: Capture, found: Sequence[Found], name: str, notes: str) -> Profile:
    with ExitStack() as opened:
        files = [File(opened.enter_context(file.path.open("rb")), name=f"capture-{capture.pk}-{file.path.name}") for file in found]
        return profile_create(owner=capture.owner, file=files[0], more_files=files[1:], name=name, build=capture.build,
                              model=capture.model, tags=capture.tags, notes=notes)


def _rows_of_profile(capture: Capture, files: Sequence[Found], profile: Profile) -> list[CaptureFile]:
    stored: Sequence[dict[str, Any]] = profile.metadata.get("files") or [
        {"bytes": profile.upload_bytes, "sha256": profile.sha256}]
    return [CaptureFile(capture=capture, role=file.result.role, name=file.path.name, what=file.result.what, profile=profile,
                        bytes=row["bytes"], sha256=row["sha256"]) for file, row in zip(files, stored, strict=True)]


def _kept(capture: Capture, file: Found) -> CaptureFile:
    """Store one file for download, whatever its role was to be."""
    with file.path.open("rb") as stream:
        stored = bytes_store(capture_prefix(capture.pk), File(stream, name=file.path.name))
    role = OWNERS if file.result.role == OWNERS else KEPT
    return CaptureFile(capture=capture, role=role, what=file.result.what, **stored)
