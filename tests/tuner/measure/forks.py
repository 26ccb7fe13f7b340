"""Programs run in forks of a process that has imported torch, Triton and the kernels: that takes 3 s of processor time.

    python -m tests.tuner.measure.forks          that process: a line of JSON for each program, another for its end

A program begins as under `python -c`, with nothing that an earlier one left: it may patch, aim and set whatever it likes. Kernels
are decorated for the compiler or for the interpreter when they are imported, so there is a process for each of both.
"""

from __future__ import annotations

import atexit
import gc
import importlib
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import traceback
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import IO, Any, NoReturn

PROJECT = Path(__file__).resolve().parents[3]
WITHIN_S = 250.0
INTERPRETER = "TRITON_INTERPRET"


def run_program(program: str, *arguments: str, **environ: str) -> tuple[str, str]:
    """Return what a Python program printed on standard output and on standard error; it must end well.

    arguments  its sys.argv[1:]
    environ    added to this process's environment; TRITON_INTERPRET="1" has kernels interpreted, not compiled
    """
    ended = _server(environ.get(INTERPRETER) == "1").run({
        "program": program, "arguments": arguments, "environ": {**os.environ, **environ}})
    assert ended["code"] == 0, f"ended with {ended['code']}:\n{ended['err'][-4000:]}"
    return ended["out"], ended["err"]


@cache
def _server(interprets: bool) -> _Server:
    server = _Server(interprets)
    atexit.register(server.end)
    return server


class _Server:
    """The process whose forks run programs, seen from the tests: it ends when they do."""

    def __init__(self, interprets: bool) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.tuner.measure.forks"], cwd=PROJECT, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            start_new_session=True, env={**os.environ, INTERPRETER: str(int(interprets)), "OMP_NUM_THREADS": "1",
                                         "OPENBLAS_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""})

    def run(self, request: dict[str, Any]) -> dict[str, Any]:
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.write(json.dumps(request).encode() + b"\n")
        self.process.stdin.flush()
        if not select.select([self.process.stdout], [], [], WITHIN_S)[0]:
            self.end()
            raise TimeoutError(f"a program did not end within {WITHIN_S:.0f} s:\n{request['program']}")
        answer = self.process.stdout.readline()
        if not answer:
            self.end()
            raise RuntimeError(f"the process that imports torch and Triton ended with {self.process.returncode}")
        return dict(json.loads(answer))

    def end(self) -> None:
        """End it and its forks; the next program gets another."""
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        _server.cache_clear()


def serve() -> None:
    """Run each program that standard input names in a fork, one after another, until it ends."""
    with os.fdopen(os.dup(1), "w") as answers:
        os.dup2(2, 1)
        import torch
        import triton.runtime.cache

        from tuner.tuning.measure import accuracy, offline  # noqa: F401 - for the forks
        from tuner.tuning.operators import OPERATORS

        for operator in OPERATORS.values():
            importlib.import_module(operator.kernel_module)
        if os.environ[INTERPRETER] == "0":
            triton.runtime.cache.triton_key()       # the hash of the whole compiler, which every process takes once
        torch.set_num_threads(1)
        gc.collect()
        gc.freeze()
        for line in sys.stdin:
            answers.write(json.dumps(_run_in_fork(json.loads(line))) + "\n")
            answers.flush()


def _run_in_fork(request: dict[str, Any]) -> dict[str, Any]:
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        pid = os.fork()
        if not pid:
            _become(request, out, err)
        _, status = os.waitpid(pid, 0)
        said = {}
        for name, file in (("out", out), ("err", err)):
            file.seek(0)
            said[name] = file.read().decode(errors="replace")
    return {"code": os.waitstatus_to_exitcode(status), **said}


def _become(request: dict[str, Any], out: IO[bytes], err: IO[bytes]) -> NoReturn:
    """Run the program in this process, which ends with it."""
    code = 1
    try:
        with open(os.devnull, "rb") as nothing:
            for descriptor, file in enumerate((nothing, out, err)):
                os.dup2(file.fileno(), descriptor)
        os.environ.clear()
        os.environ.update(request["environ"])
        sys.path[1:1] = filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))
        sys.argv = ["-c", *request["arguments"]]
        exec(compile(request["program"], "<program>", "exec"), {"__name__": "__main__"})       # noqa: S102 - a test's own text
        code = 0
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


if __name__ == "__main__":
    serve()
