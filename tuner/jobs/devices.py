"""Where a job can run: the GPUs of living workers, and recorded landscapes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from django.conf import settings

from tuner.bench.landscape import Landscape, LandscapeError
from tuner.bench.replay import SPEED, pace_s
from tuner.operators import OPERATORS
from workers import jobs

RECORDINGS = settings.BASE_DIR / "tests" / "data"
REPLAY = "replay:"
GPU = "gpu"                    # any GPU; "gpu:NVIDIA H200" is one of that model


def is_gpu(device: str) -> bool:
    return device == GPU or (device.startswith(f"{GPU}:") and bool(gpu_model(device)))


def gpu_model(device: str) -> str:
    """The model that a job asks for; "" when any will do."""
    return device.removeprefix(GPU).removeprefix(":").strip()


@dataclass(frozen=True)
class Device:
    """One choice of the form: `why_not` says why a job would wait, and for what."""

    value: str
    title: str
    label: str = ""                    # "recorded on …"
    operator: str | None = None        # a replay serves one operator …
    shapes: tuple[Mapping[str, int], ...] = ()       # … at these shapes …
    dtype: str | None = None
    why_not: str = ""


def landscape_paths() -> dict[str, Path]:
    """Stem -> file of every recorded landscape that comes with the repository."""
    found = sorted(RECORDINGS.glob("*/landscapes/*.json.gz"))
    return {path.name.removesuffix(".json.gz"): path for path in found}


@lru_cache(maxsize=16)
def _landscape(path: Path, changed_ns: int) -> Landscape:
    return Landscape.load(path)


def landscape(stem: str) -> Landscape:
    """A recorded landscape by its file stem; LandscapeError when there is none or it cannot be read."""
    paths = landscape_paths()
    if stem not in paths:
        raise LandscapeError(stem[:80], "there is no such recorded landscape", f"Known: {', '.join(paths)}.")
    path = paths[stem]
    return _landscape(path, path.stat().st_mtime_ns)


def landscape_dtype(one: Landscape) -> str:
    """As the file says, else the operator's first: what the recordings were made with."""
    operator = OPERATORS.get(one.operator)
    return one.dtype or (operator.dtypes[0] if operator else "")


def devices() -> list[Device]:
    """GPU first, then the recorded landscapes; each with the reason when no worker serves it now."""
    alive = jobs.workers()
    gpu_workers = [worker for worker in alive if GPU in worker.get("queues", [])]
    gpus = sorted({gpu["name"] for worker in gpu_workers for gpu in worker.get("gpus") or []})
    no_replay = "" if any("replay" in worker.get("queues", []) for worker in alive) else (
        "no replay worker is running; start one: manage.py worker replay")
    found = [Device(GPU, f"GPU: {', '.join(gpus)}" if gpus else "GPU", why_not=_why_no_gpu(gpu_workers, gpus))]
    found += [Device(f"{GPU}:{model}", f"Only {model}") for model in gpus]
    for stem in landscape_paths():
        try:
            one = landscape(stem)
        except LandscapeError as error:
            found.append(Device(REPLAY + stem, stem, why_not=str(error)))
            continue
        found.append(Device(REPLAY + stem, f"Replay of {stem}, {one.recorded}", one.recorded, one.operator,
                            tuple(dict(s.shape) for s in one.shapes), landscape_dtype(one), no_replay))
    return found


def _why_no_gpu(gpu_workers: Sequence[Mapping[str, Any]], gpus: Sequence[str]) -> str:
    if gpus:
        return ""
    if gpu_workers:
        return "the gpu worker that is running sees no NVIDIA GPU"
    return "no gpu worker is running; start one on a machine with a GPU: manage.py worker gpu"


def replay_facts(device: Device) -> list[dict[str, Any]]:
    """For each shape of a recorded landscape: valid configurations, and seconds that a trial of its replay takes."""
    try:
        one = landscape(device.value.removeprefix(REPLAY))
    except LandscapeError:
        return []
    facts = []
    for recorded in one.shapes:
        paces = [pace_s(outcome, SPEED) for _, outcome in recorded.outcomes.values()]
        trial_s = sum(paces) / len(paces) if paces else None
        facts.append({"shape": dict(recorded.shape), "valid": len(paces), "trial_s": trial_s})
    return facts
