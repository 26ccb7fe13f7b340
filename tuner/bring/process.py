"""The process that imports a kernel file, started, limited and ended."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from tuner.bring.source import Kernel

PROJECT = Path(__file__).resolve().parents[2]
START_S = 180.0             # torch, Triton and the file are imported
GPUS = 3                    # that each sample is compiled for


def ask(path: Path, kernels: Sequence[Kernel], jobs: Sequence[dict[str, Any]], runs: Sequence[dict[str, Any]], compile_s: float,
        say: Callable[[int, int], None] = lambda done, of: None) -> dict[str, Any]:
    """Import the file in a child, compile `jobs` there, launch `runs`, return what it told; {"failed": why} where that is nothing.

    {"adapters": […], "kernels": {name: facts}, "compiled": {name: […]}, "measured": {name: facts}}, as `child` makes them.
    """
    request = {"file": str(path.resolve()), "kernels": [{"name": each.name, "kind": each.kind} for each in kernels],
               "compile": list(jobs), "run": list(runs), "compile_s": compile_s}
    return ask_child("tuner.bring.child", request, len(jobs), compile_s, say, see_gpu=bool(runs))


def ask_child(module: str, request: dict[str, Any], jobs: int, compile_s: float, say: Callable[[int, int], None],
              see_gpu: bool = False) -> dict[str, Any]:
    """Start `python -m module`, give it the request, return what it told; {"failed": why} where that is nothing."""
    with tempfile.TemporaryFile() as answer, tempfile.TemporaryFile() as output:
        process = subprocess.Popen(
            [sys.executable, "-m", module, str(os.getpid())], stdin=subprocess.PIPE, stdout=output,
            stderr=subprocess.STDOUT, pass_fds=(answer.fileno(),), start_new_session=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, (str(PROJECT), os.environ.get("PYTHONPATH")))),
                 "RIDGEPOINT_ANSWER_FD": str(answer.fileno()), "RIDGEPOINT_BRING_RUN": "1" if see_gpu else "0",
                 **({} if see_gpu else {"CUDA_VISIBLE_DEVICES": ""})})
        ended = threading.Event()
        telling = threading.Thread(target=_tell, args=(answer.fileno(), jobs * GPUS, say, ended))
        telling.start()
        try:
            process.communicate(json.dumps(request).encode(), timeout=START_S + jobs * GPUS * compile_s)
        except subprocess.TimeoutExpired:
            return {"failed": "importing or compiling it took too long"}
        finally:
            ended.set()
            telling.join()
            _end(process)
        answer.seek(0)
        told = _gather(answer.read())
        if not told:
            output.seek(0)
            last = output.read()[-2000:].decode(errors="replace").strip().splitlines()
            return {"failed": f"the process that imports it ended with {process.returncode}: {last[-1] if last else ''}"[:400]}
        return told


def _tell(answer_fd: int, of: int, say: Callable[[int, int], None], ended: threading.Event) -> None:
    """Say now and then how many compiles the answer holds so far."""
    while of and not ended.wait(0.5):
        say(os.pread(answer_fd, 1 << 24, 0).count(b'{"compiled":'), of)


def _end(process: subprocess.Popen[bytes]) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _gather(text: bytes) -> dict[str, Any]:
    told: dict[str, Any] = {}
    for line in text.splitlines():
        try:
            each = json.loads(line)
        except ValueError:
            continue
        if "failed" in each and not each.keys() & {"compiled", "measured", "kernel"}:
            told["failed"] = each["failed"]
        elif "adapters" in each:
            told["adapters"] = each["adapters"]
        elif "kernel" in each:
            told.setdefault("kernels", {})[each.pop("kernel")] = each
        elif "compiled" in each:
            told.setdefault("compiled", {}).setdefault(each.pop("compiled"), []).append(each)
        elif "measured" in each:
            told.setdefault("measured", {})[each.pop("measured")] = each
    return told
