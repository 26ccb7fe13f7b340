"""Runs a Python program under Triton's Proton and writes its profile. Needs Triton alone.

    python proton_capture.py --out folder/proton.hatchet --data tree -- script.py ARGUMENTS…

Proton chooses the ending: `.hatchet`, `.chrome_trace`, and with periodic flushing `.part_0.…`. Steps as in torch_capture.py;
without `--skip-first` and `--active` the whole run is recorded. A program's own
`proton.start` stays without effect, as under Proton's own command.
"""

from __future__ import annotations

import argparse
import builtins
import glob
import importlib.util
import inspect
import os
import sys
from typing import Any

EXIT_NO_PROFILE = 75
STEPS_AFTER = 3         # made without the profiler before the program is ended
MOST_PARTS = 20         # steps that periodic flushing writes apart; the rest comes together in the last


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
    import triton
    import triton.profiler as proton

    recorder = Recorder(options, proton, triton.__version__)
    if missing := recorder.missing():
        say(f"Proton of Triton {triton.__version__} has no {missing}")
        return EXIT_NO_PROFILE
    stop = launching.Stop()
    count_steps(recorder)
    recorder.begin()
    try:
        status = launching.run(options.program)
    finally:
        stop.ignore()
        launching.attempt("the profile", recorder.finish)
        launching.facts_write(options.out, {"steps": recorder.times.facts()})
    if glob.glob(f"{recorder.name}.*"):
        return int(status)
    say(f"no profile: the program made {recorder.steps} steps, recording begins after {options.skip_first}")
    return status or EXIT_NO_PROFILE


def parse(argv: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", required=True)
    parser.add_argument("--data", choices=("tree", "trace"), default="tree")
    parser.add_argument("--context", choices=("shadow", "python"), default="shadow")
    parser.add_argument("--backend", choices=("auto", "cupti", "instrumentation"), default="auto")
    parser.add_argument("--mode", choices=("pcsampling", "periodic_flushing"))
    for name, default in (("--interval", 1000), ("--skip-first", 0), ("--active", 0)):
        parser.add_argument(name, type=int, default=default)
    for name in ("--hook", "--end-after"):
        parser.add_argument(name, action="store_true")
    parser.add_argument("program", nargs="+")
    return parser.parse_args(argv)


def count_steps(recorder: Recorder) -> None:
    """Let the program's steps be counted: its own calls, else those of torch's optimizers where it has torch."""
    builtins.ridgepoint_step = recorder.explicit_step       # type: ignore[attr-defined]
    try:
        from torch.optim.optimizer import register_optimizer_step_post_hook
    except ImportError:
        return
    register_optimizer_step_post_hook(recorder.optimizer_step)


class Recorder:
    """One session of Proton, begun and ended by the program's steps."""

    def __init__(self, options: argparse.Namespace, proton: Any, version: str) -> None:
        self.options, self.proton, self.version = options, proton, version
        self.name = options.out.rpartition(".")[0]
        self.times = launching.StepTimes()
        self.steps = 0
        self._session: Any = None
        self._over = False
        self._explicit = False

    def missing(self) -> str:
        """Return what was asked for that this Triton's Proton has not, "" where it has everything."""
        parameters, doc = inspect.signature(self.proton.start).parameters, inspect.getdoc(self.proton.start) or ""
        names = {"data", "context", "backend", *(["mode"] if self.options.mode else []), *(["hook"] if self.options.hook else [])}
        lacking = [name for name in sorted(names) if name not in parameters]
        lacking += [word for word in (self.options.mode, self.options.data) if word and f'"{word}"' not in doc]
        return ", ".join(lacking)

    def begin(self) -> None:
        if not self.options.skip_first:
            self._start()
        self.times.begin()

    def _start(self) -> None:
        options = self.options
        arguments = {"context": options.context, "data": options.data, "hook": "triton" if options.hook else None,
                     "backend": None if options.backend == "auto" else options.backend, "mode": self._mode()}
        command_line(self.proton, False)
        try:
            self._session = self.proton.start(self.name, **{name: value for name, value in arguments.items() if value is not None})
        except Exception as error:
            say(f"Proton does not start: {error}")
            raise SystemExit(EXIT_NO_PROFILE) from error
        command_line(self.proton, True)
        say(f"Proton of Triton {self.version} records a {options.data}" + (
            f", {options.active} steps" if options.active else " to the end"))

    def _mode(self) -> str | None:
        if self.options.mode == "pcsampling":
            return f"pcsampling:interval={self.options.interval}"
        if self.options.mode == "periodic_flushing":        # without a format, some versions read beyond the end of a list
            return f"periodic_flushing:format={'hatchet' if self.options.data == 'tree' else 'chrome_trace'}"
        return None

    def explicit_step(self) -> None:
        self._explicit = True
        self._step()

    def optimizer_step(self, *_: Any) -> None:
        if not self._explicit:
            self._step()

    def _step(self) -> None:
        self.times.end("after" if self._over else "recording" if self._session is not None else "before")
        self.steps += 1
        if self._over:
            if self.options.end_after and self.times.count("after") >= STEPS_AFTER:
                raise launching.Finished(0)
        elif self._session is None:
            if self.steps == self.options.skip_first:
                self._start()
        elif self.options.active and self.steps >= self.options.skip_first + self.options.active:
            self.finish()
        elif self.options.mode == "periodic_flushing" and self.steps - self.options.skip_first < MOST_PARTS:
            self.proton.data.advance_phase(self._session)
        self.times.begin()

    def finish(self) -> None:
        """Write the profile, once."""
        if self._session is not None and not self._over:
            self._over = True
            command_line(self.proton, False)
            self.proton.finalize()
            say("profile written")


def command_line(proton: Any, on: bool) -> None:
    """Tell Proton whether a program's own calls are to be ignored, where this version has such a switch."""
    flags = getattr(sys.modules.get("triton.profiler.flags"), "flags", None)
    if hasattr(flags, "command_line"):
        flags.command_line = on         # type: ignore[union-attr]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
