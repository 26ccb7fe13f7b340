"""A candidate on a worker: compiled, checked, timed and counted behind walls; its answers are read like uploads and judged here."""

from __future__ import annotations

import csv
import json
import logging
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib import metadata
from pathlib import Path
from typing import Any

from profiles.capture.tools.ncu import installed_ncu
from tuner.cache import rules
from tuner.cache.entries.selectors import config_best
from tuner.candidates import selectors, services, verdicts
from tuner.candidates.answer import Answer
from tuner.gate.stats.rule import finite_number
from tuner.models import Candidate
from tuner.tuning.team.packages import ENABLED, normal_name
from tuner.tuning.trial import cleaned
from workers.core import gpu, sandboxed, walled
from workers.core.periodic import Stop, watch_for_stop
from workers.tune import team

# ---- hardware counters of a candidate ----
# A launch of it under ncu, behind the same walls, where ncu is there and may count.

BOUNDS = sandboxed.Bounds(wall_s=120, cpu_s=600, memory_mb=16 << 10, data_mb=64 << 10, room_mb=2048, file_mb=512)
RANGE = "ridgepoint"                # as tuner.tuning.measure.counted marks it, which imports torch
TIME = "gpu__time_duration.sum"
_TENSOR = "sm__inst_executed_pipe_tensor_op_{}.avg.pct_of_peak_sustained_active"
# what a page shows → counters of ncu that say it; the first that a GPU has
COUNTERS: Mapping[str, str] = {
    "duration_ns": TIME, "dram_pct": "dram__throughput.avg.pct_of_peak_sustained_elapsed",
    "sm_pct": "sm__throughput.avg.pct_of_peak_sustained_elapsed", "tensor_hmma_pct": _TENSOR.format("hmma"),
    "tensor_gmma_pct": _TENSOR.format("gmma"), "registers": "launch__registers_per_thread",
    "occupancy_pct": "sm__warps_active.avg.pct_of_peak_sustained_active"}
SINCE_HOPPER, OLDER = ("tensor_gmma_pct",), ("7", "8")     # a name that a GPU does not have ends the whole run
MOST_LINES, MOST_BYTES = 2000, 1 << 20


def count(request: Mapping[str, Any], capability: str, *, read: Sequence[Path], devices: Sequence[Path], environ: Mapping[str, str],
          is_over: Callable[[], bool], bounds: sandboxed.Bounds = BOUNDS) -> dict[str, Any]:
    """Return the counters by name, of the kernel of the launch that took longest; {"why"} where none were collected."""
    tool = installed_ncu()
    if "missing" in tool or not tool.get("path"):
        return {"why": str(tool.get("missing") or "ncu is not on this worker")}
    real = Path(tool["path"]).resolve()
    older = capability.partition(".")[0] in OLDER
    names = [name for name in COUNTERS if not (older and name in SINCE_HOPPER)]
    command = [str(real), "--csv", "--page", "raw", "--print-units", "base", "--nvtx", "--nvtx-include", f"{RANGE}/",
               "--target-processes", "application-only", "--clock-control", "none",
               "--metrics", ",".join(COUNTERS[name] for name in names),
               sys.executable, "-m", "tuner.candidates.judge.counted"]
    lines: list[str] = []

    def hear(line: bytes) -> None:
        if len(lines) < MOST_LINES and len(line) < MOST_BYTES:
            lines.append(line.decode(errors="replace"))

    ending = sandboxed.run(command, json.dumps(request).encode(), read=[*read, *homes(real)], devices=devices, environ=environ,
                           bounds=bounds, on_line=hear, is_over=is_over)
    counters = read_csv(lines)
    if counters:
        return {**counters, "tool": f"ncu {tool.get('version', '')}".strip()}
    why = ending.why or why_nothing(lines, ending.said) or f"ncu ended with {ending.status}"
    return {"why": f"ncu counted nothing behind the walls: {why}"[:600]}


def why_nothing(lines: Sequence[str], said: str) -> str:
    """Return ncu's own error and the last line of the program that it started; "" where neither said a word."""
    spoken = [line.strip() for line in (*lines, *said.splitlines()) if line.strip()]
    error = next((line.removeprefix("==ERROR==").strip() for line in spoken if line.startswith("==ERROR==")), "")
    last = next((line for line in reversed(spoken) if not line.startswith("==")), "")
    return str(cleaned("; ".join(filter(None, (error, last)))))


def homes(program: Path, shared: Path = Path("/opt/nvidia/nsight-compute")) -> list[Path]:
    """Return the folders that ncu needs: its own, or those where the script of that name in a CUDA toolkit looks for it."""
    own = next((parent for parent in program.parents if parent.name.startswith(("nsight-compute", "NVIDIA-Nsight-Compute"))), None)
    if own is not None:
        return [own]
    beside = sorted(program.parent.parent.glob("nsight-compute*"))
    return list(dict.fromkeys([program.parent, *(folder for path in (*beside, shared) if path.is_dir()
                                                 for folder in (path, path.resolve()))]))


def read_csv(lines: Sequence[str]) -> dict[str, Any]:
    """Return the counters of the longest kernel in ncu's raw page as CSV, whatever else was printed; {} where it holds none."""
    begin = next((index for index, line in enumerate(lines) if line.startswith('"ID"')), None)
    if begin is None:
        return {}
    rows = [dict(row) for row in csv.DictReader(lines[begin:]) if row]
    kernels = [{name: number for name, counter in COUNTERS.items()
                if (number := finite_number(_number(row.get(counter)))) is not None} for row in rows]
    kernels = [kernel for kernel in kernels if "duration_ns" in kernel]
    if not kernels:
        return {}
    longest = max(kernels, key=lambda each: each["duration_ns"])
    tensor = max((longest.pop(name) for name in ("tensor_hmma_pct", "tensor_gmma_pct") if name in longest), default=None)
    return {**longest, **({} if tensor is None else {"tensor_pct": tensor}), "kernels": len(kernels)}


def _number(text: str | None) -> float | None:
    try:
        return float((text or "").replace(",", ""))
    except ValueError:
        return None


# ---- a candidate on a worker ----

log = logging.getLogger(__name__)
COMPILE = sandboxed.Bounds(wall_s=180, cpu_s=180)
MEASURE = sandboxed.Bounds(cpu_s=1800, memory_mb=16 << 10, data_mb=64 << 10, room_mb=2048, file_mb=512)
MAX_ATTEMPTS = 3        # a file that took its worker down this often is not tried again
STEPS = {"preparing": "preparing the operator", "importing": "importing", "checking": "checking results",
         "timing": "timing in turn", "checking again": "checking results again"}


@dataclass(frozen=True)
class Programs:
    """What is started behind the walls; tests name their own judge, which works without a GPU."""

    compiler: str = "tuner.candidates.judge.compiling"
    judge: str = "tuner.candidates.judge.child"
    read: Sequence[Path] = sandboxed.OURS
    environ: Mapping[str, str] = field(default_factory=dict)


PROGRAMS = Programs()


def run(candidate_id: int, worker: str, *, on_gpu: bool, programs: Programs = PROGRAMS, compile_bounds: sandboxed.Bounds = COMPILE,
        bounds: sandboxed.Bounds = MEASURE) -> None:
    """Claim the row and end it, or take it a stage on; a row that another holds, or whose GPU is not here, is left."""
    candidate = Candidate.objects.filter(pk=candidate_id).first()
    cards = [card for card in gpu.gpus() if candidate and candidate.wanted_gpu in ("", card.name)] if on_gpu else []
    if candidate is None or (candidate.stage == Candidate.Stage.MEASURE and not cards):
        return
    candidate = services.candidate_claim(candidate_id, worker)
    if candidate is None:
        return
    with watch_for_stop(lambda: not Candidate.leases.is_held(candidate_id, worker)) as stop:
        Work(candidate, worker, stop, programs, compile_bounds, bounds).run(cards)


class Work:
    """One candidate while this worker holds it."""

    def __init__(self, candidate: Candidate, worker: str, stop: Stop, programs: Programs, compile_bounds: sandboxed.Bounds,
                 bounds: sandboxed.Bounds) -> None:
        self.candidate, self.worker, self.stop, self.programs = candidate, worker, stop, programs
        self.compile_bounds, self.bounds = compile_bounds, replace(bounds, wall_s=min(bounds.wall_s, candidate.seconds))
        self.packages, self.c_compiler = _packages(), walled.find()

    def run(self, cards: Sequence[gpu.Gpu]) -> None:
        """Compile where that was not done, then judge on one of `cards`; without any it waits for a worker that has one."""
        candidate = self.candidate
        if candidate.attempts > MAX_ATTEMPTS:
            services.candidate_fail(candidate, self.worker, "worker", f"{MAX_ATTEMPTS} workers died over this file",
                                           "see the workers' logs")
            return
        if why := sandboxed.why_not():
            services.candidate_fail(candidate, self.worker, "sandbox", f"not run: {why}",
                                           "allow user namespaces on the worker's host, or read docs/bring.md: The sandbox")
            return
        answer: dict[str, Any] = dict(candidate.answer)
        if candidate.stage == Candidate.Stage.COMPILE:
            compiled = self._compile()
            if compiled is None:
                return
            answer = compiled
        if self.stop():
            return
        if not cards:
            services.candidate_wait(candidate, self.worker, answer)
            return
        self._step("waiting for a GPU", stage=Candidate.Stage.MEASURE, answer=answer)
        try:
            with gpu.lease(cards, should_stop=self.stop) as card:
                self._judge(card, answer)
        except gpu.NoLease:
            log.info("candidate %s: stopped while it waited for a GPU", candidate.pk)

    def _compile(self) -> dict[str, Any] | None:
        """Return what compiling told; None where that ended the candidate."""
        self._step("compiling")
        capability, sms = selectors.target_capability()
        request = {**self._request(), "compute_capability": capability, "sms": sms}
        answer, ending = self._behind_walls(self.programs.compiler, request, self.compile_bounds)
        names = ("compiled", "not_compiled", "loaded", "own")
        parts: dict[str, Any] = {name: answer.parts[name] for name in names if name in answer.parts}
        if self.stop():
            return None
        if refused := answer.parts.get("refused"):
            parts["not_compiled"] = refused["what"]
        elif not answer.stage:              # it never came to the file: no Triton here, or no memory left
            parts["not_compiled"] = f"the compiler did not start: {_died(ending)['what']}"[:600]
        elif "failed" in answer.parts or ending.why or "ended" not in answer.parts:
            failed = answer.parts.get("failed") or _died(ending)
            self._done({**parts, "failed": failed})
            return None
        return parts

    def _judge(self, card: gpu.Gpu, before: Mapping[str, Any]) -> None:
        best = self._best_known(card)
        request = {**self._request(), "best": best.get("config"), "gpu_uuid": card.uuid}
        devices = gpu.device_nodes(card)
        environ = {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", "CUDA_VISIBLE_DEVICES": card.uuid, "CUDA_CACHE_DISABLE": "1"}
        if libraries := os.environ.get("LD_LIBRARY_PATH"):
            environ["LD_LIBRARY_PATH"] = libraries          # where some hosts keep the driver's own
        answer, ending = self._behind_walls(self.programs.judge, request, self.bounds, devices, environ)
        parts = {**before, **{name: value for name, value in answer.parts.items() if name not in ("ended", "loaded")},
                 **({"loaded": answer.parts["loaded"]} if "loaded" in answer.parts else {}), "best": best}
        if self.stop():
            return
        facts = {"gpu": card.name, "environment": {**answer.parts.get("device", {}), "gpu_uuid": card.uuid, "driver": card.driver}}
        if refused := answer.parts.get("refused"):
            services.candidate_fail(self.candidate, self.worker, "the operator's own code", refused["what"],
                                           "no candidate of it can be judged on this worker", answer=parts, **facts)
            return
        if not answer.stage:
            services.candidate_fail(self.candidate, self.worker, "judge", f"it did not start: {_died(ending)['what']}",
                                           "see the worker's log", answer=parts, **facts)
            return
        if ending.why or ("ended" not in answer.parts and "failed" not in answer.parts):
            parts["failed"] = {"where": "process", "what": f"while {STEPS.get(answer.stage, 'starting')}: {_died(ending)['what']}"}
        parts["source_differs"] = self._source_differs()
        if "failed" not in parts and not verdicts.why_wrong(parts):
            self._step("counting with ncu")
            parts["counters"] = count(
                self._request(), card.cc, read=self._read(), devices=devices, environ={**self._environ(), **environ},
                is_over=self.stop)
        self._done(parts, **facts)

    def _best_known(self, card: gpu.Gpu) -> dict[str, Any]:
        """Return {"config", "rule", "entry"} of what a launch at this shape is served now; {} where that is the default."""
        candidate = self.candidate
        answer = config_best(candidate.operator, candidate.dtype, card.name, candidate.shape, compute_capability=card.cc)
        entry = answer["entry"]
        if answer["rule"] == rules.Rule.DEFAULT or entry is None:
            return {}
        return {"config": dict(answer["config"]), "rule": str(answer["rule"]), "entry": entry["id"]}

    def _source_differs(self) -> bool:
        """Return whether the operator's file on this worker is another one than that beside which the candidate was written."""
        candidate = self.candidate
        here = {file.path: file.hash for file in selectors.files_of(candidate.operator)}
        return bool(candidate.base_hash and candidate.base_path in here and here[candidate.base_path] != candidate.base_hash)

    def _request(self) -> dict[str, Any]:
        one = self.candidate
        return {"operator": one.operator, "shape": one.shape, "dtype": one.dtype, "text": one.text, "config": one.config,
                "best": None, "seed": int.from_bytes(os.urandom(6), "big"), "policy": {}, "gpu_uuid": ""}

    def _environ(self) -> dict[str, str]:
        path = os.pathsep.join(map(str, (sandboxed.PROJECT, *self.packages)))
        return {"PYTHONPATH": path, **self.c_compiler.environ, **team.child_environment(), **self.programs.environ}

    def _read(self) -> list[Path]:
        return [*self.programs.read, *self.packages, *self.c_compiler.read]

    def _behind_walls(self, module: str, request: Mapping[str, Any], bounds: sandboxed.Bounds, devices: Sequence[Path] = (),
                      environ: Mapping[str, str] | None = None) -> tuple[Answer, sandboxed.Ending]:
        answer = Answer()

        def hear(line: bytes) -> None:
            try:
                message = json.loads(line)
            except (ValueError, RecursionError):
                return
            if answer.hear(message):
                self._step(STEPS.get(answer.stage, answer.stage))

        ending = sandboxed.run([sys.executable, "-m", module], json.dumps(request).encode(), read=self._read(), devices=devices,
                               environ={**self._environ(), "CUDA_VISIBLE_DEVICES": "", **(environ or {})}, bounds=bounds,
                               on_line=hear, is_over=self.stop, may_be_fork=True)
        if ending.why or ending.status:
            log.info("candidate %s: %s ended with %s: %s", self.candidate.pk, module, ending.status, ending.why or ending.said)
        return answer, ending

    def _step(self, step: str, **fields: Any) -> None:
        services.candidate_step(self.candidate, self.worker, step, **fields)

    def _done(self, told: Mapping[str, Any], **facts: Any) -> None:
        verdict = verdicts.judge(told, selectors.least_of(self.candidate, facts.get("gpu", "")))
        services.candidate_done(self.candidate, self.worker, verdict, told, **facts)


def _died(ending: sandboxed.Ending) -> dict[str, str]:
    last = cleaned(ending.said.splitlines()[-1] if ending.said else "")[:300]
    what = ending.why or f"the process ended with {ending.status} and no answer"
    return {"where": "process", "what": f"{what}; it said: {last}" if last else what}


def _packages() -> list[Path]:
    """Return where the enabled packages of teams are installed, beyond this Python's own folders."""
    enabled = set(filter(None, team.child_environment()[ENABLED].split(",")))
    roots = {Path(str(distribution.locate_file(""))).resolve() for distribution in metadata.distributions()
             if normal_name(distribution.metadata["Name"] or "") in enabled} if enabled else set()
    return sorted(root for root in roots if not root.is_relative_to(Path(sys.prefix).resolve()))
