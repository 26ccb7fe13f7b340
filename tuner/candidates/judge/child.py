"""The process that judges a candidate: `python -m tuner.candidates.judge.child`, behind walls, its request on standard input.

    {"operator", "shape", "dtype", "text", "config": {…} | null, "best": {…} | null, "seed", "policy": {…}, "gpu_uuid"}

Each line of the answer is JSON with one of: stage · device · own · dropped · before · loaded · checks · repeats · streams · facts ·
times · policy · again · replaced · crashed · failed {"where", "what"} · refused {"what"} (the operator's own code, not the
candidate's) · ended. What the candidate prints is not read as an answer. Inputs, reference, tolerance, default configuration and
library are the operator's own.
"""

from __future__ import annotations

import json
import os
import random
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch

from tuner.candidates.judge import checks, loading
from tuner.candidates.judge.taken import Taken
from tuner.candidates.judge.turns import GpuTimer, Turn, find_gpu
from tuner.tuning.measure import accuracy
from tuner.tuning.measure.child import Bench, kernel_facts, source_hash
from tuner.tuning.measure.device import is_alive
from tuner.tuning.measure.policy import Policy
from tuner.tuning.measure.timers import Timer
from tuner.tuning.measure.timing import Sampler, Times
from tuner.tuning.operators import limits
from tuner.tuning.team import packages
from tuner.tuning.trial import error_text

CHECKS = 2                  # launches on fresh inputs before anything is timed
POLICY: dict[str, Any] = {"rounds": 10, "batch": 5, "warmup": 3, "lead_ms": 3.0, "max_ms": 2000.0}
Say = Callable[..., None]
MakeTimer = Callable[[Taken, int | None, Policy], Timer]


class Refused(Exception):
    """The operator's own code does not do here what it must: nothing can be said of a candidate."""


class Failed(Exception):
    """The candidate cannot be launched: `where` is import, contract, launch or timing."""

    def __init__(self, where: str, error: BaseException) -> None:
        super().__init__(error_text(error) if isinstance(error, Exception) else f"{type(error).__name__}: {error}"[:600])
        self.where = where


def make_gpu_timer(taken: Taken, gpu_index: int | None, policy: Policy) -> Timer:
    return GpuTimer(taken, gpu_index, policy.lead_ms)


class Judge:
    """One candidate on one device; `say` tells a line of the answer."""

    def __init__(self, request: Mapping[str, Any], device: torch.device, say: Say, make_timer: MakeTimer = make_gpu_timer) -> None:
        self.request, self.device, self.say, self._make_timer = request, device, say, make_timer
        self._draw = random.Random(int(request["seed"]))

    def run(self, folder: Path) -> None:
        """Judge the candidate. Raises Refused and Failed."""
        self.say(stage="preparing")
        own = self._open()
        self.say(stage="importing")
        try:
            module = loading.import_text(self.request["text"], folder, own)
        except BaseException as error:      # it may raise anything, and may exit
            raise Failed("import", error) from error
        try:
            loaded = loading.load(module, own)
        except loading.ContractBroken as error:
            raise Failed("contract", error) from error
        except BaseException as error:      # its own problem class is made here
            raise Failed("launch", error) from error
        self.say(loaded={"form": loaded.form, "names": list(loaded.names)})
        config = dict(self.request["config"] or self.default)
        self.say(stage="checking")
        self._check(own, loaded.launch, config)
        self.say(stage="timing")
        self._time(own, loaded.launch, config)

    def _open(self) -> loading.Own:
        if self.device.type == "cuda" and not torch.cuda.is_available():
            raise Refused("torch sees no CUDA GPU behind the walls")
        request = self.request
        try:
            own = loading.open_operator(request["operator"], request["shape"], request["dtype"], self.device, self._seed())
        except Exception as error:
            raise Refused(error_text(error)) from error
        self.gpu_index = find_gpu(request.get("gpu_uuid", "")) if self.device.type == "cuda" else None
        bench = Bench(self.device)
        bench.gpu_index = self.gpu_index or 0
        try:
            device = bench._device_facts()
        except Exception as error:          # NVML's own, of a GPU that may not be asked here
            device = {"torch": torch.__version__, "gpu": torch.cuda.get_device_name(), "clocks": {}, "why": error_text(error)}
        self.tolerance = own.operator.tolerance.get(request["dtype"]) or accuracy.TOLERANCE[request["dtype"]]
        bounds = limits(str(device.get("gpu") or ""), device.get("compute_capability"), device.get("sms"))
        self.default = dict(own.operator.default_config(request["shape"], request["dtype"], bounds))
        self.policy = Policy.read({**POLICY, **request.get("policy", {})})
        self.taken = Taken(own.problem, self.device)
        self.say(device=device, own={"default": self.default, "tolerance": self.tolerance, "inputs": sorted(own.inputs),
                                     "source_hash": source_hash(own.module, own.operator.name)})
        self.own_configs = {"default": self.default}
        if why := self._why_not(own, self.default):
            raise Refused(f"the operator's own default configuration does not do here: {why}")
        best = dict(request["best"] or self.default)
        if best != self.default:
            if why := self._why_not(own, best):         # measured on another GPU, or for another shape
                self.say(dropped=f"the best configuration known does not do here: {why}"[:600])
            else:
                self.own_configs["best"] = best
        self.timer = self._make_timer(self.taken, self.gpu_index, self.policy)
        self.sampler = Sampler(self.timer, self.policy)
        if self.device.type == "cuda":      # what the file does beside its launches may slow all others down
            turn = Turn("default", partial(own.problem.launch, self.default), own.problem, self.tolerance, self._seed())
            self.say(before={"default_ms": self.sampler.measure_in_turn([turn])[0].median_ms})
        return own

    def _why_not(self, own: loading.Own, config: Mapping[str, Any]) -> str:
        """Return what is wrong with a configuration of the operator's own; "" where nothing is."""
        try:
            return str(self._check_once(own, own.problem.launch, config)["message"])
        except Exception as error:
            if not is_alive(self.device):
                raise Refused(error_text(error)) from error
            return error_text(error)

    def _seed(self) -> int:
        return self._draw.randrange(1 << 30)

    def _check_once(self, own: loading.Own, launch: loading.Launch, config: Mapping[str, Any]) -> dict[str, Any]:
        return checks.check_launch(own, launch, config, (self._seed(), self._seed()), self.tolerance, self.taken)

    def _guarded(self, where: str, work: Callable[[], Any]) -> Any:
        try:
            return work()
        except BaseException as error:
            if not is_alive(self.device):
                self.say(crashed=True)
            raise Failed(where, error) from error

    def _check(self, own: loading.Own, launch: loading.Launch, config: Mapping[str, Any]) -> None:
        holder: dict[str, Any] = {}

        def launch_and_keep(given: Mapping[str, Any]) -> Any:
            holder["kernel"] = launch(given)
            return holder["kernel"]

        outcomes = self._guarded("launch", lambda: [self._check_once(own, launch_and_keep, config) for _ in range(CHECKS)])
        self.say(checks=outcomes)
        self.say(repeats=self._guarded("launch", lambda: checks.check_repeats(own, launch, config, self._seed(), self.taken)))
        streams = self._guarded("launch", lambda: checks.check_streams(own, launch, config, self.default, self.taken))
        self.say(streams=streams, facts=kernel_facts(holder.get("kernel")))

    def _time(self, own: loading.Own, launch: loading.Launch, config: Mapping[str, Any]) -> None:
        problem = own.problem

        def turn(name: str, work: Callable[[], Any], compares: bool = True) -> Turn:
            return Turn(name, work, problem, self.tolerance, self._seed(), compares)

        turns = [turn("candidate", lambda: launch(config))]
        turns += [turn(name, partial(problem.launch, own_config)) for name, own_config in self.own_configs.items()]
        turns.append(turn("library", problem.library, compares=False))
        times = self._guarded("timing", lambda: self.sampler.measure_in_turn(turns))
        self.say(times={entry.name: _times_json(readings, entry) for entry, readings in zip(turns, times, strict=True)},
                 policy={**self.policy.as_json(), **self.timer.about(), "tolerance": self.tolerance,
                         "inputs": "drawn afresh before each launch, output poisoned; one launch of each batch compared"})
        self.say(stage="checking again")
        self.say(again=self._guarded("launch", lambda: self._check_once(own, launch, config)), replaced=self.taken.replaced())


def _times_json(times: Times, turn: Turn) -> dict[str, Any]:
    return {**times.as_json(), **{name: value for name, value in times.as_facts().items() if name != "ended"},
            "compared": turn.compared, "wrong": turn.wrong}


def answer(request: Mapping[str, Any], judge: Callable[[Say], Judge]) -> int:
    """Judge, and tell each line on what was standard output; return the exit status."""
    with os.fdopen(os.dup(1), "w") as out:
        os.dup2(2, 1)

        def say(**line: Any) -> None:
            out.write(json.dumps(line, default=str) + "\n")
            out.flush()

        say(stage="starting")               # whatever ends before this is no fault of the file
        try:
            judge(say).run(Path.cwd())
        except Refused as refused:
            say(refused={"what": str(refused)})
        except Failed as failed:
            say(failed={"where": failed.where, "what": str(failed)})
        except Exception as error:          # what was altered in this process may fail anywhere
            say(failed={"where": "process", "what": error_text(error)[:600]})
        say(ended=True)
    os._exit(0)                     # no teardown of what the candidate may have left


def read_request() -> dict[str, Any]:
    """Return the request of standard input; the enabled packages of teams are provided for."""
    request: dict[str, Any] = json.load(sys.stdin)
    packages.provide()
    return request


def main(arguments: Sequence[str] = ()) -> int:
    """Answer one request; return the exit status."""
    request = read_request()
    return answer(request, lambda say: Judge(request, torch.device("cuda"), say))


if __name__ == "__main__":
    sys.exit(main())
