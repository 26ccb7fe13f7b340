"""An own kernel on a worker: compiled and measured behind the walls that candidates have, its answers read like uploads."""

from __future__ import annotations

import logging
import math
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

from tuner.bring.travel.files import FOLDER, lay_out_kernel
from tuner.tuning.operators import Operator
from tuner.tuning.trial import Reason
from workers.core import gpu, sandboxed, walled
from workers.core.child import ChildDied, SandboxError
from workers.core.sandbox_inside import ROOM
from workers.core.walled import WalledChild, Walls

log = logging.getLogger(__name__)
BOUNDS = sandboxed.Bounds(cpu_s=7 * 24 * 3600, memory_mb=16 << 10, data_mb=64 << 10, room_mb=2048, file_mb=512,
                          processes=512)            # before Linux 5.14 all compilers of a session count as one account
CACHE = "TRITON_CACHE_DIR"              # the folder of binaries that compilers and the measuring child share
MOST_NODES, MOST_DEPTH, MOST_TEXT, MOST_SAMPLES = 20_000, 6, 4000, 10_000
# what pages compute with: no number there, and it is left out
NUMBERS = ("registers", "spills", "smem_bytes", "relative_error", "compile_s", "load_s", "check_s", "occupancy_pct", "library_ms",
           "sms", "l2_bytes", "memory_bytes", "inputs_seed", "spread")


@dataclass(frozen=True)
class Programs:
    """What is started behind the walls; tests name their own, which work without a GPU. `compilers`: None for as many as cores."""

    child: str = "tuner.bring.travel.measuring"
    compiler: str = "tuner.bring.travel.compiling"
    compilers: int | None = None
    read: Sequence[Path] = sandboxed.OURS
    environ: Mapping[str, str] = field(default_factory=dict)
    policy: Mapping[str, Any] = field(default_factory=dict)


PROGRAMS = Programs()


class Version(Protocol):
    """What travels with a job: a row of tuner.bring.own.models."""

    name: Any
    file: Any
    sources: Any
    adapter: Any
    description: Any
    source_hash: Any

    @property
    def is_independent(self) -> bool: ...


@contextmanager
def behind_walls(kernel: Version, known: Operator | None, card: gpu.Gpu) -> Iterator[dict[str, Any]]:
    """Yield what a SandboxRunner needs for the kernel; its files lie in a folder meanwhile, which its processes read.

    Raises SandboxError where its description is not `known` any more.
    """
    if known is None:
        raise SandboxError(f"{kernel.name} was described by another version of this code", "tune its file again from its page")
    folder = Path(tempfile.mkdtemp(prefix="ridgepoint-own-"))
    try:
        lay_out_kernel(folder, name=kernel.name, file=kernel.file, sources=kernel.sources, adapter=kernel.adapter,
                       description=kernel.description, source_hash=kernel.source_hash,
                       independent=kernel.is_independent)
        walls = _walls(folder, card)

        def spawn(module: str, environ: Mapping[str, str]) -> OwnChild:
            mine = walls if module == PROGRAMS.child else walls.without_gpu()
            shared = [Path(environ[CACHE])] if environ.get(CACHE) else []
            for path in shared:
                path.chmod(0o777)               # behind walls a worker that is root is nobody; the folder above is the worker's own
            return OwnChild(module, environ, replace(mine, write=shared))

        yield {"child_module": PROGRAMS.child, "compiler_module": PROGRAMS.compiler, "compilers": PROGRAMS.compilers,
               "spawn": spawn, "known": known}
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def warm_environ() -> dict[str, str]:
    """Return the variables of the warm parent of such processes: those that the walls give, none of this worker's."""
    given = sandboxed.spec_of([], Path(ROOM), environ=_environ())["env"]
    return {name: value for name, value in given.items() if name != "TMPDIR"}           # a folder that is behind the walls alone


def _walls(folder: Path, card: gpu.Gpu) -> Walls:
    return Walls(read=(*PROGRAMS.read, folder, *walled.find().read), devices=gpu.device_nodes(card),
                 environ={**_environ(), FOLDER: str(folder)}, bounds=BOUNDS)


def _environ() -> dict[str, str]:
    environ = {"PYTHONPATH": str(sandboxed.PROJECT), "CUDA_CACHE_DISABLE": "1", **walled.find().environ, **PROGRAMS.environ}
    if libraries := os.environ.get("LD_LIBRARY_PATH"):
        environ["LD_LIBRARY_PATH"] = libraries              # where some hosts keep the driver's own
    return environ


class OwnChild(WalledChild):
    """See WalledChild: an answer that is none of the protocol's ends it."""

    def ask(self, message: dict[str, Any], limit_s: float, stop: Any) -> dict[str, Any]:
        answer = super().ask(message, limit_s, stop)
        try:
            return read_answer(message, answer)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            log.info("an own kernel's process: %s", error)
            raise ChildDied(f"sent what is no answer ({error}); {self.kill()}"[:600]) from error


# ---- answers, read like uploads ----


def read_answer(message: Mapping[str, Any], answer: Mapping[str, Any]) -> dict[str, Any]:
    """Return an answer of tuner.tuning.wire with its parts of their types and bounds. Raises ValueError and its like."""
    _check_plain(answer, 0, [MOST_NODES])
    if "rejected" in answer:
        told = answer["rejected"]
        return {"fatal": bool(answer.get("fatal")), "rejected": {
            "reason": Reason(told["reason"]).value, "message": _text(told["message"]), "facts": _facts(told["facts"])}}
    if "failed" in answer:
        return {"failed": {"what": _text(answer["failed"]["what"]), "hint": _text(answer["failed"]["hint"])}}
    return {"ok": _READERS[message["do"]](answer["ok"], message)}


def _opened(told: Mapping[str, Any], message: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a session's opening told: of a compiler its Triton alone."""
    if "gpu" not in told:
        return {"triton": _text(told["triton"])}
    facts = {name: value for name, value in _facts(told).items() if name not in ("offer", "library_ms")}
    capability, library_ms = told["compute_capability"], told["library_ms"]
    return {**facts, "gpu": _text(told["gpu"])[:120], "policy": dict(told["policy"]),
            "compute_capability": None if capability is None else _text(capability)[:8],
            "library_ms": None if library_ms is None else _time(library_ms)}


def _run(told: Mapping[str, Any], message: Mapping[str, Any]) -> dict[str, Any]:
    samples = told.get("samples_ms", [])
    if not isinstance(samples, list) or len(samples) > MOST_SAMPLES:
        raise ValueError("samples that are none")
    count = told["n"]
    if type(count) is not int or not 0 <= count < 1 << 31:
        raise ValueError("a count that is none")
    fields = {"spread": float(told["spread"])} if isinstance(told.get("spread"), int | float) else {}
    ended = {"ended": _text(told["ended"])[:40]} if "ended" in told else {}
    return {"median_ms": _time(told["median_ms"]), "min_ms": _time(told["min_ms"]), "p90_ms": _time(told["p90_ms"]), "n": count,
            "samples_ms": [_time(sample) for sample in samples], "facts": _facts(told.get("facts", {})), **fields, **ended}


def _finalists(told: Any, message: Mapping[str, Any]) -> list[dict[str, Any]]:
    if not isinstance(told, list) or len(told) != len(message["configs"]):
        raise ValueError("another count of finalists")
    return [read_answer(message, answer) if "rejected" in answer else _run(answer, message) for answer in told]


def _compiled(told: Mapping[str, Any], message: Mapping[str, Any]) -> dict[str, Any]:
    return _facts(told)


_READERS: Mapping[str, Callable[[Any, Mapping[str, Any]], Any]] = {
    "open": _opened, "compile": _compiled, "run": _run, "finalists": _finalists}


def _facts(told: Any) -> dict[str, Any]:
    if not isinstance(told, dict):
        raise ValueError("facts that are none")
    return {name: value for name, value in told.items() if name not in NUMBERS or _is_number(value)}


def _time(value: Any) -> float:
    if not _is_number(value) or not 0 < value < 1e9:
        raise ValueError(f"a time that is none: {str(value)[:40]}")
    return float(value)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value) and abs(value) < 1 << 62


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError("a text that is none")
    return value[:MOST_TEXT]


def _check_plain(value: Any, depth: int, left: list[int]) -> None:
    """Raise ValueError for what is too much, too deep, or no number that JSON has."""
    left[0] -= 1
    if left[0] < 0 or depth > MOST_DEPTH:
        raise ValueError("an answer beyond all bounds")
    if isinstance(value, dict):
        for name, element in value.items():
            if len(name) > 200:
                raise ValueError("a name beyond all bounds")
            _check_plain(element, depth + 1, left)
    elif isinstance(value, list):
        for element in value:
            _check_plain(element, depth + 1, left)
    elif isinstance(value, float) and not math.isfinite(value):
        raise ValueError("a number that is none")
    elif isinstance(value, int) and abs(value) >= 1 << 63:
        raise ValueError("a number beyond all bounds")
    elif isinstance(value, str) and len(value) > 1 << 16:
        raise ValueError("a text beyond all bounds")
