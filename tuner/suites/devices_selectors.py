"""Where a suite can be measured: the GPUs of living workers, and recorded runs that are served instead of a GPU."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tuner.jobs.devices import GPU, RECORDINGS, REPLAY, is_gpu
from workers import jobs

SUFFIX = ".jsonl.gz"
MAX_DEVICE = 120


@dataclass(frozen=True)
class Place:
    """One choice of the form; `why_not` says why a job would wait there, and for what."""

    value: str
    title: str
    why_not: str = ""


def recorded_paths() -> dict[str, Path]:
    """Stem -> file of the recorded fresh runs that come with the repository: "timing_runs", …"""
    return {path.name.removesuffix(SUFFIX): path for path in sorted(RECORDINGS.glob(f"*/timing_runs*{SUFFIX}"))}


def places() -> list[Place]:
    """GPU first, then recorded runs; each with the reason when no worker serves it now."""
    alive = jobs.workers()
    gpus = sorted({gpu["name"] for worker in alive if GPU in worker.get("queues", []) for gpu in worker.get("gpus") or []})
    some = [] if gpus else ["no gpu worker with an NVIDIA GPU is running: manage.py worker gpu"]
    no_replay = "" if any("replay" in worker.get("queues", []) for worker in alive) else (
        "no replay worker is running: manage.py worker replay")
    found = [Place(GPU, f"GPU: {', '.join(gpus)}" if gpus else "GPU", *some)]
    found += [Place(f"{GPU}:{model}", f"Only {model}") for model in gpus]
    found += [Place(REPLAY + stem, f"Recorded runs: {stem}", no_replay) for stem in recorded_paths()]
    return found


def why_waiting(device: str) -> str:
    """Why a job for this device would wait now; "" when a worker serves it."""
    known = {place.value: place for place in places()}
    if device in known:
        return known[device].why_not
    return f"no worker has {device.partition(':')[2] or device}"


def device_problem(device: str) -> str | None:
    """Why nothing could ever be measured there, and what could be chosen."""
    if len(device) > MAX_DEVICE:
        return f"at most {MAX_DEVICE} characters"
    if is_gpu(device):
        return None
    recorded = recorded_paths()
    if device.startswith(REPLAY) and device.removeprefix(REPLAY) in recorded:
        return None
    return ('choose "gpu", one model ("gpu:NVIDIA H200") or recorded runs (' +
            ", ".join(f'"{REPLAY}{stem}"' for stem in recorded) + ")")
