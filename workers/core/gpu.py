"""The GPUs of this host, and leases that keep one process on one GPU."""

from __future__ import annotations

import fcntl
import os
import random
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tuner.tuning.measure import nvml

_QUERY = ("index", "uuid", "name", "compute_cap", "driver_version", "memory.total")
_SMI_TIMEOUT_S = 20.0
_LOOK_AGAIN_S = 0.25
_TURN_LOOK_S = 0.002         # a measurement takes 5 to 50 ms
OF_HOST, ALL = "RIDGEPOINT_GPUS_OF_HOST", "all"      # told by `manage.py serve`, whose workers see a GPU each
SEATS = 2                    # jobs that are at home on one GPU: one compiles or thinks while the other measures


@dataclass(frozen=True)
class Gpu:
    """One physical GPU; `index` as nvidia-smi numbers it."""

    index: int
    uuid: str
    name: str
    cc: str                     # compute capability, "9.0"
    driver: str
    memory_bytes: int

    def as_json(self) -> dict[str, Any]:
        return {"index": self.index, "name": self.name, "cc": self.cc, "driver": self.driver, "uuid": self.uuid,
                "memory_bytes": self.memory_bytes}


def gpus() -> list[Gpu]:
    """Return GPUs by NVML or nvidia-smi within CUDA_VISIBLE_DEVICES; empty without any."""
    return _within(os.environ.get("CUDA_VISIBLE_DEVICES"))


def gpus_of_host() -> list[Gpu]:
    """Return those and the GPUs of this host's other workers, for a job that computes on several: leases keep them apart."""
    return _within(os.environ.get(OF_HOST)) if OF_HOST in os.environ else gpus()


def _within(visible: str | None) -> list[Gpu]:
    """Return the GPUs that a value of CUDA_VISIBLE_DEVICES leaves; None leaves all."""
    cards = [Gpu(**device) for device in nvml.devices()] or _read_smi()
    if visible is None or visible == ALL:
        return cards
    parts = [part.strip() for part in visible.split(",") if part.strip()]
    return [gpu for gpu in cards if str(gpu.index) in parts or any(gpu.uuid.startswith(part) for part in parts)]


def _read_smi() -> list[Gpu]:
    command = ["nvidia-smi", f"--query-gpu={','.join(_QUERY)}", "--format=csv,noheader,nounits"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_SMI_TIMEOUT_S, check=True)
    except (OSError, subprocess.SubprocessError):
        return []
    return parse_smi(done.stdout)


def parse_smi(text: str) -> list[Gpu]:
    """Return GPUs of `nvidia-smi --query-gpu=… --format=csv,noheader,nounits`; skips other lines."""
    cards = []
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.split(",")]
        if len(cells) == len(_QUERY) and cells[0].isdigit():
            index, uuid, name, cc, driver, memory_mib = cells
            memory_bytes = int(memory_mib) * 2**20 if memory_mib.isdigit() else 0
            cards.append(Gpu(int(index), uuid, name, cc, driver, memory_bytes))
    return cards


def reading(gpu: Gpu) -> dict[str, Any]:
    """Return present clocks, °C, W and throttling; empty without NVML."""
    return nvml.reading(gpu.index)


def device_nodes(gpu: Gpu) -> list[Path]:
    """Return the nodes below /dev that a process needs to compute on one GPU: its own, and those that all GPUs share.

    The GPU's own alone where NVML tells its number, else every GPU's.
    """
    minor = nvml.minor_number(gpu.index)
    own = [Path(f"/dev/nvidia{minor}")] if minor is not None else []
    shared = [Path("/dev", name) for name in ("nvidiactl", "nvidia-uvm", "nvidia-uvm-tools")]
    cards = [path for path in own if path.exists()] or sorted(
        path for path in Path("/dev").glob("nvidia*") if path.name.removeprefix("nvidia").isdecimal())
    return [path for path in (*cards, *shared, *sorted(Path("/dev/nvidia-caps").glob("nvidia-cap*"))) if path.is_char_device()]


class NoLease(Exception):
    """A stop, or the end of the wait, came before a GPU became free."""


@contextmanager
def lease(candidates: Sequence[Gpu], *, should_stop: Callable[[], bool] = lambda: False,
          wait_s: float | None = None, folder: Path | None = None, look_s: float = _LOOK_AGAIN_S) -> Iterator[Gpu]:
    """Hold one of `candidates` for this process alone, waiting until one is free.

    A lock file per GPU (flock): the operating system releases it however the holder dies. Raises NoLease.
    """
    with _lock_one([(gpu, "") for gpu in candidates], should_stop, wait_s, folder, look_s) as gpu:
        yield gpu


@contextmanager
def lease_several(candidates: Sequence[Gpu], count: int, *, should_stop: Callable[[], bool] = lambda: False,
                  wait_s: float | None = None, folder: Path | None = None,
                  look_s: float = _LOOK_AGAIN_S) -> Iterator[list[Gpu]]:
    """Hold `count` of `candidates` at once, waiting until so many are free. Raises NoLease.

    All or none: who holds some while it waits for others could wait for ever for one who does the same.
    """
    end = None if wait_s is None else time.monotonic() + wait_s
    while True:
        with ExitStack() as stack:
            own_gpus: list[Gpu] = []
            for gpu in candidates:
                descriptor = _try_lock(_lock_path(gpu, "", folder)) if len(own_gpus) < count else None
                if descriptor is not None:
                    stack.callback(os.close, descriptor)
                    own_gpus.append(gpu)
            if len(own_gpus) == count:
                yield own_gpus
                return
        if should_stop() or (end is not None and time.monotonic() > end) or len(candidates) < count:
            raise NoLease(f"{count} GPUs did not become free" if len(candidates) >= count else f"this host has no {count} GPUs")
        time.sleep(look_s * (1 + random.random()))       # two who ask for several do not meet again and again


@contextmanager
def seat(candidates: Sequence[Gpu], *, should_stop: Callable[[], bool] = lambda: False,
         wait_s: float | None = None, folder: Path | None = None) -> Iterator[Gpu]:
    """Hold one of a GPU's few seats: data stays on it, `Turn` leases it. Raises NoLease.

    An idle GPU goes before one where somebody sits already.
    """
    chairs = [(gpu, f"-seat{number}") for number in range(SEATS) for gpu in candidates]
    with _lock_one(chairs, should_stop, wait_s, folder, _LOOK_AGAIN_S) as gpu:
        yield gpu


class Turn:
    """Leases a GPU, with `others` where a job computes on several, again and again: while measuring, not while compilers work."""

    def __init__(self, gpu: Gpu, should_stop: Callable[[], bool] = lambda: False, folder: Path | None = None,
                 others: Sequence[Gpu] = ()) -> None:
        self._cards, self._should_stop, self._folder = [gpu, *others], should_stop, folder

    def __call__(self) -> AbstractContextManager[Any]:
        if len(self._cards) == 1:
            return lease(self._cards, should_stop=self._should_stop, folder=self._folder, look_s=_TURN_LOOK_S)
        return lease_several(self._cards, len(self._cards), should_stop=self._should_stop, folder=self._folder,
                             look_s=_TURN_LOOK_S)


def neighbours(card: Gpu, cards: Sequence[Gpu], count: int) -> list[Gpu]:
    """Return up to `count` other GPUs of the same model, the nearest by number first."""
    alike = [other for other in cards if other.name == card.name and other.uuid != card.uuid]
    return sorted(alike, key=lambda each: (abs(each.index - card.index), each.index))[:count]


@contextmanager
def _lock_one(places: Sequence[tuple[Gpu, str]], should_stop: Callable[[], bool], wait_s: float | None, folder: Path | None,
              look_s: float) -> Iterator[Gpu]:
    end = None if wait_s is None else time.monotonic() + wait_s
    while True:
        for gpu, chair in places:
            descriptor = _try_lock(_lock_path(gpu, chair, folder))
            if descriptor is not None:
                try:
                    yield gpu
                finally:
                    os.close(descriptor)
                return
        if should_stop() or (end is not None and time.monotonic() > end):
            raise NoLease("no GPU became free" if places else "this host has no GPU")
        time.sleep(look_s)


def _lock_path(gpu: Gpu, chair: str, folder: Path | None) -> Path:
    return (folder or Path(tempfile.gettempdir())) / f"ridgepoint-{gpu.uuid}{chair}.lock"


def _try_lock(path: Path) -> int | None:
    """Return an open descriptor that holds the lock, or None; the file is never removed."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o666)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    with suppress(OSError):
        os.fchmod(descriptor, 0o666)          # whatever the umask of the first user was
    return descriptor
