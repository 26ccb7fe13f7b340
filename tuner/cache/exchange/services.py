"""Import files of other projects into the cache.

An imported configuration is evidence of its own kind: unverified, never before a tune job's. A list without times says nothing of
which is best, so it becomes a job that measures it. Trials of a whole space are kept for the portability matrix.
"""

from __future__ import annotations

import bz2
import gzip
import hashlib
import io
import json
import lzma
import re
import tempfile
import zipfile
import zlib
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from django.db import transaction

from tuner.cache import formats, rules
from tuner.cache.entries.services import evidence_put, shape_key
from tuner.cache.formats import FORMATS, triton_text
from tuner.cache.formats.document import Document, FormatError, Row, check_config, one_line
from tuner.jobs.create_services import tune_create
from tuner.models import CachedConfig, ImportedFile, TuneJob
from tuner.tuning.measure.landscape import Landscape, LandscapeError, RecordedShape
from tuner.tuning.operators import Operator, find, limits
from tuner.tuning.search.strategies import DEFAULT
from tuner.tuning.trial import Measured, config_key

MAX_BYTES = 32 * 2**20                 # as sent
MAX_EXPANDED = 96 * 2**20
MAX_SHAPES = 500                       # each is an entry with its history: 8 ms
MAX_LISTED = 200                       # configurations of a list without times that a job measures
MAX_SHAPE_TEXT = 160                   # characters; the column of the bucket that it is rounded to has 200
_DIM = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,39}")
_UNPACK: dict[bytes, Callable[..., Any]] = {b"\x1f\x8b": gzip.open, b"\xfd7": lzma.open, b"BZ": bz2.open}


@dataclass(frozen=True)
class Hints:
    """What a person says of a file; the file's own word goes first."""

    operator: str = ""
    dtype: str = ""
    gpu: str = ""
    toolkit: str = ""
    shape: Mapping[str, int] = field(default_factory=dict)


# ---- in ----

def import_file(*, owner: Any, name: str, data: bytes, format: str = "", hints: Hints | None = None) -> ImportedFile:
    """Read a file and keep its content. Raises FormatError; then nothing is kept."""
    name, hints = one_line(name.replace("\\", "/")[-255:]), hints or Hints()
    if len(data) > MAX_BYTES:
        raise FormatError(name, f"holds more than {MAX_BYTES // 2**20} MiB")
    digest, size = hashlib.sha256(data).hexdigest(), len(data)
    data = _unpack(data, name)
    chosen = format or formats.guess_format(name, data[:1 << 20])
    if chosen not in FORMATS:
        raise FormatError(name, "is none of the formats known here", f"Choose its format: {', '.join(FORMATS)}.")
    file = ImportedFile(name=name, format=chosen, sha256=digest, size_bytes=size, owner=owner)
    with transaction.atomic():
        if FORMATS[chosen].trials:
            return _import_trials(file, data, hints)
        return _import_configs(file, formats.read_configs(chosen, data, name, hints.operator, hints.shape), hints)


def _unpack(data: bytes, name: str) -> bytes:
    opener = next((candidate for magic, candidate in _UNPACK.items() if data.startswith(magic)), None)
    if opener is None:
        return data
    try:
        with opener(io.BytesIO(data), "rb") as stream:
            text: bytes = stream.read(MAX_EXPANDED + 1)
    except (OSError, EOFError, zlib.error, lzma.LZMAError) as error:
        raise FormatError(name, f"cannot be unpacked: {error}") from error
    if len(text) > MAX_EXPANDED:
        raise FormatError(name, f"unpacks to more than {MAX_EXPANDED // 2**20} MiB")
    return text


def _import_configs(file: ImportedFile, document: Document, hints: Hints) -> ImportedFile:
    facts = _with_hints(document, hints)
    _fill_in_names(file, facts, hints)
    refused: Counter[str] = Counter(document.refused)
    rows, groups = list(document.rows), dict[str, list[Row]]()
    definition = find(file.operator)
    kernels = sorted({", ".join(triton_text.own_names(row.config)) for row in rows if row.median_ms is None})
    if definition is None and len(kernels) > 1:         # of an operator here the others are refused one by one
        raise FormatError(file.name, f"holds configurations of more than one kernel: {'; '.join(kernels[:5])[:300]}",
                          "Give the list of one kernel at a time.")
    for row in rows:
        shape = {name: size for name, size in {**hints.shape, **row.shape}.items() if name != "topk"}
        problem = _config_problem(definition, file.dtype, shape, row.config)
        if problem:
            refused[problem] += 1
        else:
            groups.setdefault(json.dumps(shape, sort_keys=True), []).append(replace(row, shape=shape))
    if len(groups) > MAX_SHAPES:
        raise FormatError(file.name, f"is for {len(groups):,} shapes; at most {MAX_SHAPES} at once", "Give it in parts.")
    file.refused, file.n_trials = dict(refused.most_common(20)), len(rows)
    file.save()
    for group in groups.values():
        file.entries += _import_shape(file, document, group)
    file.save()
    if not groups:
        raise FormatError(file.name, f"none of its {len(rows)} configurations can be used: {'; '.join(refused)}",
                          "Say what it is for: operator, type, shape and GPU.")
    return file


def _import_shape(file: ImportedFile, document: Document, rows: list[Row]) -> int:
    """Write entries of one shape: the fastest with times, or the only one; others wait."""
    timed = sorted((row for row in rows if row.median_ms is not None), key=lambda row: row.median_ms or 0)
    if not timed and len(rows) > 1:
        file.shape = dict(rows[0].shape)
        complete = _make_completer(file.operator)
        file.tested = _pack_times({config_key(complete(row.config)): None for row in rows[:MAX_LISTED]})
        return 0
    best = (timed or rows)[0]
    config = _make_completer(file.operator)(best.config)
    evidence = {"file": file.name, "format": FORMATS[file.format].title, "notes": list(document.notes),
                "timings": [[dict(row.config), row.median_ms] for row in timed[:20]]}
    evidence_put(origin=rules.Origin.IMPORT, operator=file.operator, dtype=file.dtype, shape=best.shape, gpu=file.gpu,
                 config=config, median_ms=best.median_ms, toolkit=file.toolkit, evidence=evidence, imported=file)
    file.shape, file.best_ms = dict(best.shape), best.median_ms
    return 1


def _import_trials(file: ImportedFile, data: bytes, hints: Hints) -> ImportedFile:
    """Write a whole space: trials for the matrix, the winner as an entry where the operator is known."""
    landscape, space = _load_landscape(file, data)
    document = Document(file.format, file.name, (), operator=hints.operator or landscape.operator, dtype=landscape.dtype or "",
                        gpu=landscape.gpu)
    _fill_in_names(file, _with_hints(document, hints), hints)
    file.shape = dict(hints.shape or space.shape)
    if wrong := _shape_problem(file.shape):
        raise FormatError(file.name, wrong, "Say the shape: M=4096 N=4096 K=4096.")
    complete = _make_completer(file.operator)
    times = {config_key(complete(config)): outcome.median_ms if isinstance(outcome, Measured) else None
             for config, outcome in space.outcomes.values()}
    measured = {key: ms for key, ms in times.items() if ms is not None}
    if not measured:
        raise FormatError(file.name, "measured nothing", "Give a file with at least one time.")
    best = min(measured, key=lambda key: (measured[key], key))
    file.tested, file.n_trials, file.best_ms = _pack_times(times), len(times), measured[best]
    problem = _config_problem(find(file.operator), file.dtype, file.shape, json.loads(best))
    file.refused = {f"its winner is no entry of the cache: {problem}": 1} if problem else {}
    file.save()
    if not problem:
        evidence_put(origin=rules.Origin.IMPORT, operator=file.operator, dtype=file.dtype, shape=file.shape, gpu=file.gpu,
                     config=json.loads(best), median_ms=measured[best], toolkit=file.toolkit, imported=file,
                     evidence={"file": file.name, "format": FORMATS[file.format].title, "trials": len(times)})
        file.entries = 1
        file.save()
    return file


def _load_landscape(file: ImportedFile, data: bytes) -> tuple[Landscape, RecordedShape]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"{Path(file.name).name.split('.')[0][:60] or 'space'}.json"      # a folder's names have 255 bytes
        path.write_bytes(data)
        try:
            landscape = Landscape.load(path)
            return landscape, landscape.at(0)
        except LandscapeError as error:
            raise FormatError(error.where, error.what, error.hint) from error


def _with_hints(document: Document, hints: Hints) -> Document:
    return replace(document, operator=hints.operator or document.operator, dtype=document.dtype or hints.dtype,
                   gpu=document.gpu or hints.gpu, toolkit=document.toolkit or hints.toolkit)


def _fill_in_names(file: ImportedFile, said: Document, hints: Hints) -> None:
    """Fill in operator, dtype and GPU from the hints. Raises FormatError where one is missing."""
    definition = find(said.operator)
    dtype = hints.dtype if hints.dtype and said.dtype in ("bf16", "") else said.dtype
    missing = [word for word, value in (("the operator", said.operator), ("the GPU", said.gpu)) if not value]
    if missing:
        raise FormatError(file.name, f"does not say {' and '.join(missing)}", "Say it in the form, or as --operator, --gpu.")
    file.operator, file.gpu, file.toolkit = said.operator[:60], said.gpu[:120], said.toolkit[:80]
    file.dtype = (dtype or (definition.dtypes[0] if definition else ""))[:16]


def _config_problem(known: Operator | None, dtype: str, shape: Mapping[str, int], config: Mapping[str, Any]) -> str:
    """Return why a configuration cannot be an entry; "" when it can or the operator is unknown."""
    wrong = check_config(config, lists=known is None)         # of ours no parameter is a list
    if isinstance(wrong, str) or (wrong := _shape_problem(shape)):
        return wrong
    if known is None:
        return "" if shape else "its shape is not known"
    problems = known.problems(shape, dtype)
    if problems:
        return next(iter(problems.values()))
    names = set(known.parameters or known.complete(known.default_config(shape, dtype, limits(""))))
    keys = set(known.complete(config))
    if keys - names:
        return f"{known.name} has no parameter {', '.join(sorted(keys - names)[:3])}"
    return f"does not name {', '.join(sorted(names - keys)[:3])}" if names - keys else ""


def _shape_problem(shape: Mapping[str, Any]) -> str:
    """Return why a shape is invalid: whole numbers by names of letters."""
    if not all(_DIM.fullmatch(name) and type(size) is int and 0 <= size < 1 << 53 for name, size in shape.items()):
        return "its shape is not whole numbers by name"
    return f"its shape takes more than {MAX_SHAPE_TEXT} characters" if len(shape_key(shape)) > MAX_SHAPE_TEXT else ""


def _make_completer(operator: str) -> Callable[[Mapping[str, Any]], dict[str, Any]]:
    """Return a function that names every parameter of an operator's configurations."""
    definition = find(operator)
    return definition.complete if definition else dict


def _pack_times(times: Mapping[str, float | None]) -> bytes:
    return zlib.compress(json.dumps(times).encode(), 6)


def untimed_configs(file: ImportedFile) -> list[dict[str, Any]]:
    """Return configurations of an imported list without times."""
    if file.tested is None or file.best_ms is not None:
        return []
    return [json.loads(key) for key in json.loads(zlib.decompress(bytes(file.tested)))]


def create_measure_job(file: ImportedFile, owner: Any, device: str) -> TuneJob:
    """Create a job that measures the listed configurations beside the default."""
    configs = untimed_configs(file)
    return tune_create(owner=owner, operator=file.operator, shape=file.shape, dtype=file.dtype, device=device, strategy=DEFAULT,
                       budget_trials=len(configs) + 1, budget_seconds=max(60.0, 6.0 * len(configs)), only=configs)


def delete_import(file: ImportedFile) -> None:
    """Delete a file with the entries that rest on it alone."""
    with transaction.atomic():
        CachedConfig.objects.filter(imported=file, origin=rules.Origin.IMPORT).delete()
        file.delete()


def zip_files(files: Mapping[str, str]) -> bytes:
    """Return files as one zip, folders kept; equal bytes for equal files."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for path, text in sorted(files.items()):
            archive.writestr(zipfile.ZipInfo(path, (1980, 1, 1, 0, 0, 0)), text)
    return buffer.getvalue()
