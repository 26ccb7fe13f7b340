"""Runs a Python program under torch.profiler and writes its trace. Needs torch alone.

    python torch_capture.py --out trace.json.gz --wait 1 --warmup 1 --active 3 -- script.py ARGUMENTS…
    python torch_capture.py … -- -m module ARGUMENTS…

%q{NAME} in the trace's name stands for a variable of the process, such as its RANK.

What counts as a step, first that applies:
1. a call of `ridgepoint_step()`, which this launcher puts among the builtins, at the end of each step;
2. a call of `step()` of any torch optimizer.
A program that has neither is run a second time and recorded as a whole (`--steps whole` does so at once).
"""

from __future__ import annotations

import argparse
import builtins
import os
import re
import runpy
import sys
from typing import Any

EXIT_NO_TRACE = 75


class TraceWritten(SystemExit):
    """The trace is written: the program need not go on."""


def main(argv: list[str]) -> int:
    options = parse(argv)
    sys.path.pop(0)         # this file's folder: its neighbours are not the program's modules
    import torch  # after the arguments, so that a wrong command line is told at once
    from torch.optim.optimizer import register_optimizer_step_post_hook

    recorder = Recorder(options, torch)
    register_optimizer_step_post_hook(recorder.optimizer_step)
    recorder.start()
    status = run(options.program)
    recorder.stop()
    if recorder.written:
        return status
    if options.steps == "auto" and recorder.steps == 0 and status == 0:
        say("the program calls neither ridgepoint_step() nor an optimizer: running it again, recorded as a whole")
        os.execv(sys.executable, [sys.executable, os.path.abspath(__file__), *whole(argv)])
    needed = options.wait + options.warmup + 1
    say(f"no trace: the program made {recorder.steps} steps, recording begins with step {needed}")
    return status or EXIT_NO_TRACE


def parse(argv: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", required=True)
    parser.add_argument("--steps", choices=("auto", "whole"), default="auto")
    for name, default in (("--wait", 1), ("--warmup", 1), ("--active", 3)):
        parser.add_argument(name, type=int, default=default)
    for name in ("--record-shapes", "--with-stack", "--profile-memory", "--end-after"):
        parser.add_argument(name, action="store_true")
    parser.add_argument("program", nargs="+")
    options = parser.parse_args(argv)
    options.out = re.sub(r"%q\{(\w+)\}", lambda name: os.environ.get(name[1], ""), options.out)       # a file for each rank
    return options


def whole(argv: list[str]) -> list[str]:
    at = argv.index("--steps")
    return [*argv[:at + 1], "whole", *argv[at + 2:]]


def say(text: str) -> None:
    print(f"ridgepoint: {text}", flush=True)


class Recorder:
    """A torch.profiler session whose steps the program advances."""

    def __init__(self, options: argparse.Namespace, torch: Any) -> None:
        self.options, self.torch = options, torch
        self.steps = 0
        self.written = False
        self._explicit = False
        self._stopped = False
        self.profiler = torch.profiler.profile(
            activities=torch.profiler.supported_activities(), schedule=self._schedule(), on_trace_ready=self._write,
            record_shapes=options.record_shapes, with_stack=options.with_stack, profile_memory=options.profile_memory)

    def _schedule(self) -> Any:
        if self.options.steps == "whole":
            return None
        return self.torch.profiler.schedule(
            wait=self.options.wait, warmup=self.options.warmup, active=self.options.active, repeat=1)

    def start(self) -> None:
        builtins.ridgepoint_step = self._explicit_step      # type: ignore[attr-defined]
        self.profiler.start()
        say("recording the whole run" if self.options.steps == "whole" else
            f"{self.options.wait} steps wait, {self.options.warmup} warm up, {self.options.active} recorded")

    def stop(self) -> None:
        if not self._stopped:
            self._stopped = True
            self.profiler.stop()

    def _explicit_step(self) -> None:
        self._explicit = True
        self._step()

    def optimizer_step(self, *_: Any) -> None:
        if not self._explicit:
            self._step()

    def _step(self) -> None:
        self.steps += 1
        if self._stopped or self.options.steps == "whole":
            return
        self.profiler.step()
        if self.written:
            self.stop()
            if self.options.end_after:
                raise TraceWritten(0)

    def _write(self, profiler: Any) -> None:
        if self.torch.cuda.is_available():
            self.torch.cuda.synchronize()
        profiler.export_chrome_trace(self.options.out)
        self.written = True
        recorded = self.steps - self.options.wait - self.options.warmup
        say("trace of the whole run written" if self.options.steps == "whole" else
            f"trace of {min(recorded, self.options.active)} steps written")


def run(program: list[str]) -> int:
    """Run the program as `python program…` would; return its exit status."""
    as_module = program[0] == "-m"
    sys.argv = program[1:] if as_module else program
    sys.path.insert(0, os.getcwd() if as_module else os.path.dirname(os.path.abspath(program[0])))
    try:
        if as_module:
            runpy.run_module(program[1], run_name="__main__", alter_sys=True)
        else:
            runpy.run_path(program[0], run_name="__main__")
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
