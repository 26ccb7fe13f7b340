"""Results of benchmark programs as runs for the gate: one importer each, and how a file finds its own: by what it holds."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from profiles.base.refused import Refused
from tuner.gate.benchmarks import google_benchmark, nvbench, pytest_benchmark, triton_report
from tuner.gate.benchmarks.document import MOST_BYTES, Results


@dataclass(frozen=True)
class Importer:
    name: str
    is_mine: Callable[[Results], bool]
    records: Callable[[Results], Iterator[dict[str, Any]]]


IMPORTERS = (
    Importer("pytest-benchmark", pytest_benchmark.is_mine, pytest_benchmark.records),
    Importer("nvbench", nvbench.is_mine, nvbench.records),
    Importer("Google Benchmark", google_benchmark.is_mine, google_benchmark.records),
    Importer("triton.testing", triton_report.is_mine, triton_report.records),
)
KNOWN = ", ".join(importer.name for importer in IMPORTERS)


def runs_of(path: Path, run: str, unit: str = "") -> list[dict[str, Any]]:
    """Return the results of one process as runs of this name, in the gate's form (tuner.gate.stats.records). Raises Refused."""
    results = Results(path, _content(path), unit)
    importer = next((candidate for candidate in IMPORTERS if candidate.is_mine(results)), None)
    if importer is None:
        raise Refused(f"{path.name}: results of none of {KNOWN}")
    try:
        records = [{"run": run, **record} for record in importer.records(results)]
    except Refused as error:
        raise Refused(f"{path.name} ({importer.name}): {error}", hint=error.hint) from None
    except (AttributeError, TypeError, OSError) as error:
        raise Refused(f"{path.name} ({importer.name}): not as that program writes it ({error})"[:300]) from None
    if not records:
        raise Refused(f"{path.name} ({importer.name}): no result in it")
    return records


def _content(path: Path) -> Any:
    try:
        if path.stat().st_size > MOST_BYTES:
            raise Refused(f"{path.name}: more than {MOST_BYTES >> 20} MiB")
        text = path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise Refused(f"{path}: {getattr(error, 'strerror', None) or 'no text'}") from None
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        pass
    try:
        return list(csv.reader(io.StringIO(text)))
    except csv.Error:
        return None



