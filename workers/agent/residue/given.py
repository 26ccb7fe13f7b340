"""What an attached CUPTI costs between windows, as measured before: for one GPU model, driver, CUPTI and kind of job.

The rows are lines that `tests/gpu/fleet/residue.py` prints. A job cannot measure this itself: its own drift would be in it."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

BESIDE = Path(__file__).parent / "measured.jsonl"       # none is shipped until one keeps the limit
MOST_BYTES = 1 << 20
KINDS = ("graphs", "launch-bound", "training", "gpu-bound")
AS_ATTACHED = "late"                # the variant of the measurement that attaches as the agent does: to a running job, in windows


class ResidueRefused(ValueError):
    """The file is none that the measurement wrote: which line, and why."""


@dataclass(frozen=True)
class Residue:
    """Loss in % of a step while attached with no window open, and its 95 % interval."""

    gpu: str
    driver: str
    cupti: int
    kind: str
    loss_pct: float
    low_pct: float
    high_pct: float


def read_residues(environ: Mapping[str, str], beside: Path = BESIDE) -> list[Residue]:
    """Return the rows of RIDGEPOINT_AGENT_RESIDUE, else of the file beside this module; [] where there is neither.

    Raises:
        ResidueRefused: the file cannot be read, or a row contradicts itself.
    """
    named = environ.get("RIDGEPOINT_AGENT_RESIDUE", "")
    path = Path(named) if named else beside
    if not named and not path.exists():
        return []
    try:
        with path.open("rb") as file:
            data = file.read(MOST_BYTES + 1)
    except OSError as error:
        raise ResidueRefused(f"RIDGEPOINT_AGENT_RESIDUE: {error}") from error
    if len(data) > MOST_BYTES:
        raise ResidueRefused(f"{path}: more than {MOST_BYTES >> 20} MB; lines of tests/gpu/fleet/residue.py are expected")
    rows = []
    for number, line in enumerate(data.decode(errors="replace").splitlines(), 1):
        try:
            row = _row(line)
        except (ValueError, TypeError, KeyError, RecursionError) as error:
            raise ResidueRefused(f"{path}, line {number}: no line of tests/gpu/fleet/residue.py: {str(error)[:100]}") from error
        if row is not None:
            rows.append(row)
    return rows


def find_residue(rows: Sequence[Residue], gpus: Sequence[str], driver: str, cupti: int, kind: str) -> Residue | None:
    """Return the row for a job on GPUs of these models; of several the one that costs most, None where a model has none."""
    fitting = {gpu: [row for row in rows if (row.gpu, row.driver, row.cupti, row.kind) == (gpu, driver, cupti, kind)]
               for gpu in gpus}
    if not fitting or not all(fitting.values()):
        return None
    return max((row for each in fitting.values() for row in each), key=lambda row: row.high_pct)


def kind_of(replays: int, updates: int, active_pct: float | None, least_active_pct: float) -> str:
    """Return the kind of a job by its graph replays, optimizer steps and SM activity; "" where no activity is told."""
    if replays:
        return "graphs"
    if active_pct is None:
        return ""
    if active_pct < least_active_pct:
        return "launch-bound"
    return "training" if updates else "gpu-bound"


def _row(line: str) -> Residue | None:
    """Return the row of a line, None where it tells of something else."""
    if not line.strip():
        return None
    found: Any = json.loads(line)
    if not isinstance(found, dict):
        raise ValueError("no object")
    if found.get("result") != "residue" or found.get("variant") != AS_ATTACHED:
        return None
    loss_pct, low_pct, high_pct = (float(found[name]) for name in ("loss_pct", "low_pct", "high_pct"))
    if not all(map(math.isfinite, (loss_pct, low_pct, high_pct))) or not low_pct <= loss_pct <= high_pct:
        raise ValueError("low_pct <= loss_pct <= high_pct does not hold")
    if found["kind"] not in KINDS:
        raise ValueError(f"kind is one of {', '.join(KINDS)}")
    return Residue(str(found["gpu"]), str(found["driver"]), int(found["cupti"]), found["kind"], loss_pct, low_pct, high_pct)
