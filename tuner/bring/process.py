"""The process that imports a kernel file, started, limited and ended."""

from __future__ import annotations

import json
import multiprocessing
import os
import select
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from tuner.bring.source import Kernel
from tuner.tuning.measure.fork_server import run_module

PROJECT = Path(__file__).resolve().parents[2]
START_S = 180.0             # torch, Triton and the file are imported
CALL_S = 240.0              # a call is made, and again with other sizes and choices
LOOK_S = 0.5                # between two looks at how far it is
ENDING_S = 10.0             # of a child that tells no more
GPUS = 3                    # that each sample is compiled for


class Asked:
    """A child that has imported a kernel file, with which it goes on: `imported` is what it told of the file.

    {"adapters": […], "kernels": {name: facts}, "stood_in": {module: why}}, as `child` makes them; {"failed": why} where nothing
    was told. With `calls` its functions can be called, on tensors without memory.
    """

    def __init__(self, path: Path, kernels: Sequence[Kernel], compile_s: float, *, runs: bool = False,
                 calls: bool = False) -> None:
        self.compile_s = compile_s
        self._child = _Child("tuner.bring.child", see_gpu=runs)
        self.imported = self._child.ask({"file": str(path.resolve()), "compile_s": compile_s, "calls": calls,
                                         "kernels": [{"name": kernel.name, "kind": kernel.kind} for kernel in kernels]}, START_S)

    def __enter__(self) -> Asked:
        return self

    def __exit__(self, *_: Any) -> None:
        self._child.end()

    def record(self, call: str, dtype: str = "") -> dict[str, Any]:
        """Return what one call launches, as `calls.session` tells it; {"failed": why} where nothing."""
        answer = self._child.ask({"call": call, "dtype": dtype}, CALL_S)
        recorded: dict[str, Any] = answer.get("recorded", {"failed": answer.get("failed", "no answer")})
        return recorded

    def compile(self, jobs: Sequence[dict[str, Any]], runs: Sequence[dict[str, Any]] = (),
                say: Callable[[int, int], None] = lambda done, of: None, gpus: Sequence[str] = ()) -> dict[str, Any]:
        """Compile `jobs`, launch `runs`; {"compiled": {name: […]}, "measured": {name: facts}}, or {"failed": why}."""
        return self._child.ask({"compile": list(jobs), "run": list(runs), "gpus": list(gpus)},
                               START_S + len(jobs) * GPUS * self.compile_s, _counting(len(jobs), say))


def ask_child(module: str, request: dict[str, Any], jobs: int, compile_s: float, say: Callable[[int, int], None],
              look: Callable[[bytes], None] | None = None) -> dict[str, Any]:
    """Start `python -m module`, give it the request, return what it told; {"failed": why} where that is nothing.

    look  is shown the answer so far now and then, in place of a count of compiles that `say` is told
    """
    child = _Child(module)
    try:
        return child.ask(request, START_S + jobs * GPUS * compile_s, look or _counting(jobs, say))
    finally:
        child.end()


def _counting(jobs: int, say: Callable[[int, int], None]) -> Callable[[bytes], None]:
    """Say how many compiles an answer holds so far."""
    return lambda told: say(told.count(b'{"compiled":'), jobs * GPUS)


def may_fork(module: str) -> bool:
    """Return whether a fork of this process is as good as a new one: it has imported the module, with torch, and opened no GPU."""
    torch = sys.modules.get("torch")
    return (module in sys.modules and torch is not None and not torch.cuda.is_initialized() and threading.active_count() == 1)


class _Forked:
    """A fork of this process that runs a module it has imported, shown as subprocess.Popen shows a new process."""

    def __init__(self, module: str, environ: Mapping[str, str], output: int) -> None:
        reader, ask = os.pipe()

        def become() -> None:
            os.setsid()
            os.close(ask)
            for stream, number in ((reader, 0), (output, 1), (output, 2)):
                os.dup2(stream, number)
            sys.stdin = open(0, closefd=False)          # noqa: SIM115 - for as long as the process lives
            os.environ.update(environ)
            sys.path[:0] = [place for place in environ["PYTHONPATH"].split(os.pathsep) if place not in sys.path]
            run_module(module, [str(os.getppid())])

        self._process = multiprocessing.get_context("fork").Process(target=become)
        self._process.start()
        os.close(reader)
        self.stdin = open(ask, "wb", buffering=0)       # noqa: SIM115 - `_Child.end` closes it
        self.pid = self._process.pid or 0

    @property
    def returncode(self) -> int | None:
        return self._process.exitcode

    def poll(self) -> int | None:
        return self.returncode

    def wait(self, timeout: float | None = None) -> None:
        self._process.join(timeout)


class _Child:
    """A process of a module: a line of JSON for each request; lines in a file for the answer, and one byte once it is whole.

    A fork where this one `may_fork`, else `python -m module`.
    """

    def __init__(self, module: str, see_gpu: bool = False) -> None:
        self._answer, self._output = tempfile.TemporaryFile(), tempfile.TemporaryFile()     # noqa: SIM115 - `end` closes them
        self._whole, whole = os.pipe()
        self._read = 0                  # of the answer, in bytes
        environ = {"PYTHONPATH": os.pathsep.join(filter(None, (str(PROJECT), os.environ.get("PYTHONPATH")))),
                   "RIDGEPOINT_ANSWER_FD": str(self._answer.fileno()), "RIDGEPOINT_WHOLE_FD": str(whole),
                   "RIDGEPOINT_BRING_RUN": "1" if see_gpu else "0", **({} if see_gpu else {"CUDA_VISIBLE_DEVICES": ""})}
        self._process: subprocess.Popen[bytes] | _Forked
        try:
            if may_fork(module) and not see_gpu:
                self._process = _Forked(module, environ, self._output.fileno())
            else:
                self._process = subprocess.Popen(
                    [sys.executable, "-m", module, str(os.getpid())], stdin=subprocess.PIPE, stdout=self._output,
                    stderr=subprocess.STDOUT, pass_fds=(self._answer.fileno(), whole), start_new_session=True,
                    env={**os.environ, **environ})
        finally:
            os.close(whole)

    def ask(self, request: dict[str, Any], within_s: float, look: Callable[[bytes], None] = lambda told: None) -> dict[str, Any]:
        """Return what it tells; {"failed": why} where that is nothing. `look` is shown the answer so far now and then."""
        if self._answer.closed:
            return {"failed": "the process that imports it has ended"}
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):                     # it has ended: found below
            self._process.stdin.write(json.dumps(request).encode() + b"\n")
            self._process.stdin.flush()
        end_s, ended = time.monotonic() + within_s, False
        while not (ready := select.select([self._whole], [], [], LOOK_S)[0]):
            if ended:                                       # and said nothing since
                break
            if time.monotonic() > end_s:
                self.end()
                return {"failed": "importing or compiling it took too long"}
            look(self._told())
            ended = self._process.poll() is not None        # what a file started may hold the pipe open: it is not waited for
        whole = bool(ready) and os.read(self._whole, 1) != b""
        text = self._told()
        look(text)
        self._read += len(text)
        answer = _gather(text)
        if whole or answer:
            return answer
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(ENDING_S)
        self._output.seek(0)
        last = self._output.read()[-2000:].decode(errors="replace").strip().splitlines()
        self.end()
        return {"failed": f"the process that imports it ended with {self._process.returncode}: {last[-1] if last else ''}"[:400]}

    def _told(self) -> bytes:
        return os.pread(self._answer.fileno(), 1 << 30, self._read)

    def end(self) -> None:
        """End it and whatever it started. Twice is once."""
        if self._answer.closed:
            return
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        with suppress(BrokenPipeError):
            self._process.stdin.close()                     # type: ignore[union-attr]
        os.close(self._whole)
        self._answer.close()
        self._output.close()


def _gather(text: bytes) -> dict[str, Any]:
    answer: dict[str, Any] = {}
    for line in text.splitlines():
        try:
            message = json.loads(line)
        except ValueError:
            continue
        if "failed" in message and not message.keys() & {"compiled", "measured", "kernel"}:
            answer["failed"] = message["failed"]
        elif "recorded" in message:
            answer["recorded"] = message["recorded"]
        elif "stood_in" in message:
            answer["stood_in"] = message["stood_in"]
        elif "adapters" in message:
            answer["adapters"] = message["adapters"]
        elif "kernel" in message:
            answer.setdefault("kernels", {})[message.pop("kernel")] = message
        elif "compiled" in message:
            answer.setdefault("compiled", {}).setdefault(message.pop("compiled"), []).append(message)
        elif "measured" in message:
            answer.setdefault("measured", {})[message.pop("measured")] = message
    return answer
