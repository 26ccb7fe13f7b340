"""Runs a Python program under torch.profiler and writes its trace. Needs torch alone.

    python torch_capture.py --out trace.json.gz --wait 1 --warmup 1 --active 3 -- script.py ARGUMENTS…
    python torch_capture.py … -- -m module ARGUMENTS…

%q{NAME} in the trace's name stands for a variable of the process, such as its RANK.

What counts as a step, first that applies:
1. a call of `ridgepoint_step()`, which this launcher puts among the builtins, at the end of each step;
2. a call of `step()` of any torch optimizer.
A program that has neither is run a second time and recorded as a whole (`--steps whole` does so at once).

Beside the trace: `cycle-2.json.gz` … of further cycles, `execution_trace.json.gz` (Chakra), `snapshot.pickle` of the allocator,
`dump-1.pickle` … asked for while it runs (torch_memory.py), and `ridgepoint.json` with the step times before, while and after it
recorded.
"""

from __future__ import annotations

import argparse
import builtins
import gzip
import importlib.util
import inspect
import os
import re
import shutil
import sys
import time
from typing import Any

EXIT_NO_TRACE = 75
STEPS_AFTER = 3         # made without the profiler before the program is ended: what a step takes without it
SNAPSHOT, ONLY_SNAPSHOT = "snapshot*.pickle", "only-snapshot*.pickle"
CYCLE, EXECUTION_TRACE = "cycle-{}*.json.gz", "execution_trace*.json"
FLAGS = ("--record-shapes", "--with-stack", "--profile-memory", "--with-flops", "--with-modules", "--all-threads", "--sync-events",
         "--execution-trace", "--end-after")


def load(name: str) -> Any:
    """Return a neighbour of this file as a module of a private name."""
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), f"{name}.py")
    spec = importlib.util.spec_from_file_location(f"_ridgepoint_{name}", path)
    module = importlib.util.module_from_spec(spec)      # type: ignore[arg-type]
    spec.loader.exec_module(module)                     # type: ignore[union-attr]
    return module


launching = load("launching")
say = launching.say


def main(argv: list[str]) -> int:
    options = parse(argv)
    sys.path.pop(0)         # this file's folder: its neighbours are not the program's modules
    import torch  # after the arguments, so that a wrong command line is told at once
    from torch.optim.optimizer import register_optimizer_step_post_hook

    memory = load("torch_memory").Memory(torch, options.memory, options.memory_entries,
                                           lambda name: beside(options, name), say)
    recorder = Recorder(options, torch, memory)
    register_optimizer_step_post_hook(recorder.optimizer_step)
    stop = launching.Stop()
    recorder.start()
    try:
        status = launching.run(options.program)
    finally:                # also of a program that fails: what was recorded until then tells most
        stop.ignore()
        launching.attempt("the trace", recorder.stop)
        launching.attempt("the memory snapshot", memory.end)
        memory.close()
        if beside(options, "*") in (beside(options, ""), beside(options, "-rank0")):       # ranks measure alike: one says it
            launching.facts_write(options.out, recorder.facts())
        if not recorder.cycles and memory.written:
            os.replace(beside(options, SNAPSHOT), beside(options, ONLY_SNAPSHOT))
    if recorder.cycles or memory.written:
        return int(status)
    if options.steps == "none":
        say("no trace was asked for, and no memory snapshot was written")
        return status or EXIT_NO_TRACE
    if options.steps == "auto" and recorder.steps == 0 and status == 0 and not stop.asked:
        say("the program calls neither ridgepoint_step() nor an optimizer: running it again, recorded as a whole")
        os.execv(sys.executable, [sys.executable, os.path.abspath(__file__), *whole(argv)])
    needed = options.skip_first + options.wait + options.warmup + 1
    say(f"no trace: the program made {recorder.steps} steps, recording begins with step {needed}")
    return status or EXIT_NO_TRACE


def parse(argv: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", required=True)
    parser.add_argument("--steps", choices=("auto", "whole", "none"), default="auto")
    for name, default in (("--skip-first", 0), ("--wait", 1), ("--warmup", 1), ("--active", 3), ("--repeat", 1),
                          ("--memory-entries", 100_000)):
        parser.add_argument(name, type=int, default=default)
    parser.add_argument("--memory", choices=("off", "end", "oom", "request"), default="off")
    for name in FLAGS:
        parser.add_argument(name, action="store_true")
    parser.add_argument("program", nargs="+")
    options = parser.parse_args(argv)
    options.out = re.sub(r"%q\{(\w+)\}", lambda name: os.environ.get(name[1], ""), options.out)       # a file for each rank
    return options


def whole(argv: list[str]) -> list[str]:
    index = argv.index("--steps")
    return [*argv[:index + 1], "whole", *argv[index + 2:]]


def beside(options: argparse.Namespace, name: str) -> str:
    """Return the path of a file beside the trace, with what the trace's own name ends in for "*": the rank's."""
    rank = os.path.basename(options.out).removeprefix("trace").removesuffix(".json.gz")
    return os.path.join(os.path.dirname(options.out), name.replace("*", rank))


class Recorder:
    """A torch.profiler session whose steps the program advances; without a profiler where no trace is asked for."""

    def __init__(self, options: argparse.Namespace, torch: Any, memory: Any) -> None:
        self.options, self.torch, self.memory = options, torch, memory
        self.times = launching.StepTimes()
        self.steps = 0
        self.cycles = 0                 # traces written
        self.write_s = 0.0
        self._recorded = 0              # steps of this cycle
        self._explicit = False
        self._stopped = options.steps == "none"
        self._observer: Any = None
        self.profiler = None if self._stopped else self._profiler()

    def _profiler(self) -> Any:
        options, profile = self.options, self.torch.profiler.profile
        arguments = {"activities": self.torch.profiler.supported_activities(), "schedule": self._schedule(),
                     "on_trace_ready": self._write, "record_shapes": options.record_shapes, "with_stack": options.with_stack,
                 "profile_memory": options.profile_memory, "with_flops": options.with_flops, "with_modules": options.with_modules}
        if config := self._experimental():
            arguments["experimental_config"] = config
        if options.execution_trace:
            if "execution_trace_observer" in inspect.signature(profile.__init__).parameters:
                self._observer = self.torch.profiler.ExecutionTraceObserver().register_callback(beside(options, EXECUTION_TRACE))
                arguments["execution_trace_observer"] = self._observer
            else:
                say(f"torch {self.torch.__version__} writes no execution trace beside a trace: left out")
        return profile(**arguments)

    def _experimental(self) -> Any:
        """Return the experimental configuration with what this torch has of it; say what it has not."""
        names = [name for flag, name in (("all_threads", "profile_all_threads"), ("sync_events", "enable_cuda_sync_events"))
                 if getattr(self.options, flag)]
        kind = getattr(self.torch._C._profiler, "_ExperimentalConfig", None)
        doc = (kind.__init__.__doc__ or "") if kind else ""        # of C++: its parameters stand in its docstring alone
        for name in names:
            if name not in doc:
                say(f"torch {self.torch.__version__} has no {name}: left out")
        flags = {name: True for name in names if name in doc}
        return kind(**flags) if kind and flags else None

    def _schedule(self) -> Any:
        options = self.options
        if options.steps == "whole":
            return None
        return self.torch.profiler.schedule(skip_first=options.skip_first, wait=options.wait, warmup=options.warmup,
                                            active=options.active, repeat=options.repeat)

    def start(self) -> None:
        builtins.ridgepoint_step = self._explicit_step          # type: ignore[attr-defined]
        builtins.ridgepoint_snapshot = self.memory.request      # type: ignore[attr-defined]
        self.memory.start()
        if self.profiler is not None:
            self.profiler.start()
            options = self.options
            first = f"{options.skip_first} steps skipped, " if options.skip_first else ""
            times = f", {options.repeat} times" if options.repeat > 1 else ""
            say("recording the whole run" if options.steps == "whole" else
                f"{first}{options.wait} steps wait, {options.warmup} warm up, {options.active} recorded{times}")
        self.times.begin()

    def stop(self) -> None:
        if not self._stopped:
            self._stopped = True
            self.profiler.stop()        # type: ignore[union-attr]
            self._end_execution_trace()

    def facts(self) -> dict[str, Any]:
        """Return step times by phase, and the seconds that writing took."""
        return {"steps": self.times.facts(), "write_s": round(self.write_s, 3), "cycles": self.cycles,
                "memory_snapshot": self.memory.why}

    def _explicit_step(self) -> None:
        self._explicit = True
        self._step()

    def optimizer_step(self, *_: Any) -> None:
        if not self._explicit:
            self._step()

    def _step(self) -> None:
        phase = self._phase()
        self.times.end(phase)
        self.steps += 1
        self._recorded += phase == "recording"
        if self._stopped:
            if self.cycles and self.options.end_after and self.times.count("after") >= STEPS_AFTER:
                raise launching.Finished(0)
        elif self.options.steps != "whole":
            self.profiler.step()        # type: ignore[union-attr]
            if self.cycles >= self.options.repeat:
                self.stop()
                self.memory.trace_written()
        self.times.begin()

    def _phase(self) -> str:
        if self._stopped:
            return "after"
        action = self.profiler.current_action.name if self.profiler is not None else ""       # NONE, WARMUP, RECORD…
        if action == "NONE":
            return "between" if self.cycles else "before"
        return "warmup" if action == "WARMUP" else "recording"

    def _write(self, profiler: Any) -> None:
        began = time.perf_counter()
        if self.torch.cuda.is_available():
            self.torch.cuda.synchronize()
        out = self.options.out if not self.cycles else beside(self.options, CYCLE.format(self.cycles + 1))
        profiler.export_chrome_trace(out)
        self.cycles += 1
        self.write_s += time.perf_counter() - began
        if self.options.steps == "whole":
            say("trace of the whole run written")
            return
        of = f" ({self.cycles} of {self.options.repeat})" if self.options.repeat > 1 else ""
        say(f"trace of {self._recorded} steps written{of}")
        self._recorded = 0

    def _end_execution_trace(self) -> None:
        path = beside(self.options, EXECUTION_TRACE)
        if self._observer is None:
            return
        self._observer.unregister_callback()
        if os.path.isfile(path):
            with open(path, "rb") as plain, gzip.open(f"{path}.gz", "wb", 6) as packed:
                shutil.copyfileobj(plain, packed)
            os.remove(path)
            say("execution trace written")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
