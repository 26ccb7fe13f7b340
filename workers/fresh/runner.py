"""Fresh runs of a suite's kernels: from processes on a leased GPU, or recorded ones. Both tell the same thing, `Taken`."""

from __future__ import annotations

import re
import shutil
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

from django.conf import settings

from tuner.bring.own import selectors as own_selectors
from tuner.cache import rules
from tuner.cache.entries.selectors import config_best
from tuner.gate.suites.job_services import Turn
from tuner.models import KernelRun, Suite, SuiteJob, SuiteKernel
from tuner.tuning.measure.fresh import KernelRequest, KernelSamples, make_policy
from tuner.tuning.measure.replay import RecordedRuns, RunDraw
from tuner.tuning.operators import find
from tuner.tuning.trial import Config
from workers.code.build import BuildCode, build_folder
from workers.core import gpu
from workers.core.child import Stopped
from workers.fresh.processes import CHILD, FreshRuns, Side
from workers.tune import own, team

MOST_COMPILED_BYTES = 2 * 2**30        # of one suite on one GPU; then it is compiled anew


class Runner(Protocol):
    recorded: str                          # label; "": measured now

    def run(self, turn: Turn, then: Turn | None) -> Iterator[tuple[SuiteKernel, KernelSamples]]:
        """Every kernel of one fresh process; `then` comes next. Raises Stopped, SandboxError."""
        ...

    def stop(self) -> None:
        """From another thread."""
        ...

    def close(self) -> None: ...


class ConfigChoice:
    """Which configuration each kernel of each build is launched with, chosen once for all runs of a job.

    The build's own word goes first, then the suite's: a given one, what the cache serves now, or the operator's default.
    """

    def __init__(self, recorded: bool = False) -> None:
        """`recorded`: the cache's recordings serve too, as to a job that asks for them."""
        self.recorded = recorded
        self._served: dict[str, Mapping[str, Any]] = {}

    def given(self, turn: Turn, kernel: SuiteKernel) -> Config | None:
        """None where a rule must choose."""
        return turn.configs.get(kernel.key) or (kernel.config if kernel.config_from == "given" else None)

    def served(self, kernel: SuiteKernel, session: Mapping[str, Any]) -> Config | None:
        """What a launch on this GPU with this toolkit gets from the cache."""
        if kernel.key not in self._served:
            self._served[kernel.key] = config_best(kernel.op, kernel.dtype, str(session.get("gpu") or ""), kernel.shape,
                                                   rules.toolkit_text(session), recorded=self.recorded)
        return self._served[kernel.key]["config"] or None

    def facts(self, turn: Turn, kernel: SuiteKernel) -> dict[str, Any]:
        """Where the configuration came from."""
        if kernel.key in turn.configs:
            return {"config_from": "build"}
        if kernel.config_from != "cache":
            return {"config_from": kernel.config_from}
        served = self._served.get(kernel.key) or {}
        entry = served.get("entry") or {}
        return {"config_from": "cache", "cache_rule": str(served.get("rule") or ""), "cache_entry": entry.get("id")}


class RecordedRunner:
    """Each fresh run is one recorded process. `pace` 1 takes as long as its samples took when they were recorded, 0 no time."""

    def __init__(self, job: SuiteJob, runs: RecordedRuns, pace: float) -> None:
        self.job, self.runs, self.pace, self.recorded = job, runs, pace, runs.label
        self._stop, self._chosen = threading.Event(), ConfigChoice(recorded=True)
        served, self._mine = _served_processes(job, runs.stem)
        self._draw = RunDraw(runs.runs, job.pk, served)

    def run(self, turn: Turn, then: Turn | None) -> Iterator[tuple[SuiteKernel, KernelSamples]]:
        number = self._mine.get((turn.build, turn.number)) or self._draw.next(turn.build)
        for kernel in turn.kernels:
            samples = self._one(turn, kernel, number)
            if self.pace:
                self._stop.wait(self.pace * sum(samples.us) / 1e6)
            if self._stop.is_set():
                raise Stopped
            yield kernel, samples

    def _one(self, turn: Turn, kernel: SuiteKernel, number: int | None) -> KernelSamples:
        session = {"gpu": self.runs.gpu, **self.runs.environment}
        config = self._chosen.given(turn, kernel)
        if config is None and kernel.config_from == "cache":
            config = self._chosen.served(kernel, session)
        there = self.runs.look_up(kernel.op, kernel.shape, kernel.dtype, config) if config else None
        facts = {**self._chosen.facts(turn, kernel), "recorded_in": self.runs.stem}
        if there is None:
            why = self.runs.why_not(kernel.op, kernel.shape, kernel.dtype, config)
            return KernelSamples(kernel.key, rejected=why, config=config, session=session, facts=facts)
        if number is None:
            return KernelSamples(kernel.key, config=config, session=session, facts=facts, rejected=(
                f"all {len(self.runs.runs)} recorded processes were served for build {turn.build} already: "
                "on recorded runs it can have no more"))
        facts["recorded_run"] = number
        if number not in there:
            return KernelSamples(kernel.key, config=config, session=session, facts=facts,
                                 rejected=f"recorded process {number} did not measure it")
        recording = there[number]
        clock = {"clocks": {"sm_clock_mhz": {"median": recording.sm_clock_mhz}}} if recording.sm_clock_mhz else {}
        return KernelSamples(kernel.key, recording.us, config=config, session=session, facts={**recording.facts, **clock, **facts})

    def stop(self) -> None:
        self._stop.set()

    def close(self) -> None:
        self._stop.set()


def _served_processes(job: SuiteJob, stem: str) -> tuple[dict[str, list[int]], dict[tuple[str, int], int]]:
    """Which recorded processes served each build of the suite so far; and this job's own, by build and number of the run."""
    rows = KernelRun.objects.filter(kernel__suite=job.suite, facts__recorded_in=stem, facts__recorded_run__isnull=False)
    served: dict[str, list[int]] = {}
    mine = {}
    runs = rows.order_by().values_list("job_id", "build__name", "number", "facts__recorded_run").distinct()
    for of_job, build, number, run in runs:
        served.setdefault(build, []).append(int(run))
        if of_job == job.pk:
            mine[build, number] = int(run)
    return served, mine


class GpuRunner:
    """Fresh processes on the GPU that this worker leased.

    A build's kernels are compiled by a process that measures nothing.
    """

    recorded = ""

    def __init__(self, job: SuiteJob, card: gpu.Gpu, *, module: str = CHILD) -> None:
        self.job, self._chosen = job, ConfigChoice()
        self._folder = compiled_folder(job.suite_id, card)
        self._refused: dict[str, dict[str, str]] = {}            # build → kernel → why it cannot be compiled
        self._sides: dict[str, Side] = {}
        self._code = BuildCode(job.suite)
        self.commits: dict[str, str] = {build["build"]: build["commit"] for build in job.builds if build.get("commit")}
        self._walled: dict[str, tuple[FreshRuns, Path]] = {}     # of each own kernel: its file may import what another's does not
        self._entered = ExitStack()
        self._card = card
        self.fresh = FreshRuns(card.index, gpu_uuid=card.uuid, module=module, policy=make_policy(job.suite.policy),
                               environ=team.child_environment())

    def run(self, turn: Turn, then: Turn | None) -> Iterator[tuple[SuiteKernel, KernelSamples]]:
        side = self._side(turn.build)
        requests = {kernel.key: self._wanted(turn, kernel) for kernel in turn.kernels}
        if turn.build not in self._refused:
            self._refused[turn.build] = {}
            for fresh, where, kernels in self._grouped(side, turn.kernels):
                self._refused[turn.build] |= fresh.prepare(where, [requests[kernel.key] for kernel in kernels])
        refused = self._refused[turn.build]
        fine = [kernel for kernel in turn.kernels if kernel.key not in refused]
        for kernel in turn.kernels:
            if kernel.key in refused:
                yield kernel, KernelSamples(kernel.key, rejected=refused[kernel.key], config=requests[kernel.key].config,
                                            facts=self._chosen.facts(turn, kernel))
        next_side = self._side(then.build) if then is not None else None
        for fresh, where, kernels in self._grouped(side, fine):
            all_samples = fresh.run(where, [requests[kernel.key] for kernel in kernels], seed=turn.number,
                                    then=next_side if fresh is self.fresh else None)
            for kernel, samples in zip(kernels, all_samples, strict=True):
                yield kernel, replace(samples, facts={**samples.facts, **self._chosen.facts(turn, kernel)})

    def _grouped(self, side: Side, kernels: Sequence[SuiteKernel]) -> Iterator[tuple[FreshRuns, Side, list[SuiteKernel]]]:
        """Yield the kernels that share a process: all of the operators, and each own kernel by itself, behind walls."""
        mine = {kernel.op: pair for kernel in kernels if (pair := self._behind_walls(kernel.op)) is not None}
        if others := [kernel for kernel in kernels if kernel.op not in mine]:
            yield self.fresh, side, others
        for op, (fresh, folder) in mine.items():
            yield fresh, Side(side.name, None, folder), [kernel for kernel in kernels if kernel.op == op]

    def _behind_walls(self, op: str) -> tuple[FreshRuns, Path] | None:
        """Return the processes of an own kernel, and its folder of binaries, which no process outside of the walls reads."""
        if op not in self._walled and (kernel := own_selectors.kernel_named(op)) is not None:
            about = self._entered.enter_context(own.behind_walls(kernel, find(op), self._card))
            folder = self._folder / f"own-{op}"
            folder.mkdir(exist_ok=True)
            self._walled[op] = FreshRuns(self._card.index, gpu_uuid=self._card.uuid, module=about["child_module"],
                                         policy=self.fresh.policy, spawn=about["spawn"]), folder
        return self._walled.get(op)

    def _side(self, build: str) -> Side:
        if build not in self._sides:
            self._sides[build] = Side(build, self._code_folder(build), self._folder)
        return self._sides[build]

    def _code_folder(self, build: str) -> Path | None:
        """Return where the build's code lies; what it was resolved to is in `commits` from then on."""
        if self._code.code is None:
            return build_folder(self.job.suite.build_path, build)
        folder, self.commits[build] = self._code.folder(build, self.commits.get(build) or self._code.known(build))
        return folder

    def _wanted(self, turn: Turn, kernel: SuiteKernel) -> KernelRequest:
        config = self._chosen.given(turn, kernel)
        choose = None
        if config is None and kernel.config_from == "cache":
            def choose(session: Mapping[str, Any]) -> Config | None:
                return self._chosen.served(kernel, session)
        return KernelRequest(kernel.key, kernel.op, kernel.shape, kernel.dtype, config, choose)

    def stop(self) -> None:
        for fresh in (self.fresh, *(runs for runs, _ in self._walled.values())):
            fresh.stop()

    def close(self) -> None:
        for fresh in (self.fresh, *(runs for runs, _ in self._walled.values())):
            fresh.close()
        self._entered.close()
        self._code.release()
        if sum(file.stat().st_size for file in self._folder.rglob("*") if file.is_file()) > MOST_COMPILED_BYTES:
            shutil.rmtree(self._folder, ignore_errors=True)
        suites_by_path = {path: int(match[1]) for path in _compiled_root().iterdir()
                          if (match := re.fullmatch(r"suite-(\d{1,18})-.*", path.name))}
        there = set(Suite.everything.filter(pk__in=set(suites_by_path.values())).values_list("pk", flat=True))
        for path in (path for path, suite in suites_by_path.items() if suite not in there):
            shutil.rmtree(path, ignore_errors=True)             # of a suite that was deleted


def _compiled_root() -> Path:
    return Path(settings.HOME) / "compiled"


def compiled_folder(suite_id: int, card: gpu.Gpu) -> Path:
    """Return Triton's cache for a suite on one GPU, kept between jobs: unchanged code compiles once.

    Triton names its binaries by source, options and compiler, so that builds may share it. Whoever has the GPU's lease owns it.
    """
    folder = _compiled_root() / f"suite-{suite_id}-{re.sub('[^A-Za-z0-9-]', '', card.uuid)}"
    folder.mkdir(parents=True, exist_ok=True)
    return folder
