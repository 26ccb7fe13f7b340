"""Where a job can run: GPUs of living workers, and recorded landscapes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from django.conf import settings

from tuner.tuning.measure.landscape import Landscape, LandscapeError
from tuner.tuning.measure.replay import SPEED, replay_cost_s
from tuner.tuning.operators import OPERATORS
from workers import jobs

RECORDINGS = settings.BASE_DIR / "tests" / "data"
REPLAY = "replay:"
GPU = "gpu"                    # any GPU; "gpu:NVIDIA H200" is one of that model


def is_gpu(device: str) -> bool:
    """Return whether the device is a GPU, of any or of one model."""
    return device == GPU or (device.startswith(f"{GPU}:") and bool(gpu_model(device)))


def gpu_model(device: str) -> str:
    """Return the model that a job asks for; "" is any."""
    return device.removeprefix(GPU).removeprefix(":").strip()


@dataclass(frozen=True)
class Device:
    """One choice of the form; `why_not` says why a job would wait."""

    value: str
    title: str
    label: str = ""                    # "recorded on …"
    operator: str | None = None        # a replay serves one operator …
    shapes: tuple[Mapping[str, int], ...] = ()       # … at these shapes …
    dtype: str | None = None
    why_not: str = ""


def landscape_paths() -> dict[str, Path]:
    """Return stem -> file of the recorded landscapes in the repository."""
    paths = sorted(RECORDINGS.glob("*/landscapes/*.json.gz"))
    return {path.name.removesuffix(".json.gz"): path for path in paths}


@lru_cache(maxsize=16)
def _read_landscape(path: Path, changed_ns: int) -> Landscape:
    return Landscape.load(path)


def load_landscape(stem: str) -> Landscape:
    """Return a recorded landscape by its stem. Raises LandscapeError."""
    paths = landscape_paths()
    if stem not in paths:
        raise LandscapeError(stem[:80], "there is no such recorded landscape", f"Known: {', '.join(paths)}.")
    path = paths[stem]
    return _read_landscape(path, path.stat().st_mtime_ns)


def landscape_dtype(one: Landscape) -> str:
    """Return the file's dtype, else the operator's first."""
    operator = OPERATORS.get(one.operator)
    return one.dtype or (operator.dtypes[0] if operator else "")


def list_devices() -> list[Device]:
    """Return GPUs, then recorded landscapes, with the reason where no worker serves one."""
    alive = jobs.workers()
    gpu_workers = [worker for worker in alive if GPU in worker.get("queues", [])]
    gpus = sorted({gpu["name"] for worker in gpu_workers for gpu in worker.get("gpus") or []})
    no_replay = "" if any("replay" in worker.get("queues", []) for worker in alive) else (
        "no replay worker is running; start one: manage.py worker replay")
    devices = [Device(GPU, f"GPU: {', '.join(gpus)}" if gpus else "GPU", why_not=_why_no_gpu(gpu_workers, gpus))]
    devices += [Device(f"{GPU}:{model}", f"Only {model}") for model in gpus]
    for stem, path in landscape_paths().items():
        try:
            facts = _describe_landscape(path, path.stat().st_mtime_ns)
        except LandscapeError as error:
            devices.append(Device(REPLAY + stem, stem, why_not=str(error)))
            continue
        devices.append(Device(REPLAY + stem, f"Replay of {stem}, {facts.recorded}", facts.recorded, facts.operator,
                              tuple(fact["shape"] for fact in facts.shapes), facts.dtype, no_replay))
    return devices


@dataclass(frozen=True)
class LandscapeFacts:
    """What a form needs to know of a recorded landscape, without its outcomes in memory."""

    recorded: str
    operator: str
    dtype: str
    shapes: tuple[Mapping[str, Any], ...]      # {"shape", "valid": configurations, "trial_s": mean seconds of a trial | None}


@lru_cache(maxsize=256)
def _describe_landscape(path: Path, changed_ns: int) -> LandscapeFacts:
    landscape = _read_landscape(path, changed_ns)
    facts = []
    for recorded in landscape.shapes:
        paces = [replay_cost_s(outcome, SPEED) for _, outcome in recorded.outcomes.values()]
        trial_s = sum(paces) / len(paces) if paces else None
        facts.append({"shape": dict(recorded.shape), "valid": len(paces), "trial_s": trial_s})
    return LandscapeFacts(landscape.recorded, landscape.operator, landscape_dtype(landscape), tuple(facts))


def _why_no_gpu(gpu_workers: Sequence[Mapping[str, Any]], gpus: Sequence[str]) -> str:
    if gpus:
        return ""
    if gpu_workers:
        return "the gpu worker that is running sees no NVIDIA GPU"
    return "no gpu worker is running; start one on a machine with a GPU: manage.py worker gpu"


def replay_facts(device: Device) -> list[dict[str, Any]]:
    """Return, per shape of a recorded landscape, valid configurations and seconds per trial."""
    path = landscape_paths().get(device.value.removeprefix(REPLAY))
    try:
        return [dict(fact) for fact in _describe_landscape(path, path.stat().st_mtime_ns).shapes] if path else []
    except LandscapeError:
        return []
