"""A Runner whose kernels run in a spawned child process that may crash or hang without harm to the worker.

Spawned, never forked: CUDA does not survive a fork. A spare child that has already imported torch waits, so that a dead
or hung one is replaced in about a second.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tuner.bench import wire
from tuner.bench.runner import Incumbent, Session
from tuner.operators import OPERATORS
from tuner.trial import Config, Measured, Outcome, Reason, Rejected

PROJECT = Path(__file__).resolve().parent.parent
TAIL_BYTES = 4000
POLL_S = 0.05


@dataclass(frozen=True)
class Limits:
    """Seconds that a child may take, after which it is killed."""

    open_s: float = 180.0
    compile_s: float = 60.0
    run_s: float = 30.0
    finalists_s: float = 120.0
    max_opens: int = 3              # in a row that fail before the job does


class SandboxError(Exception):
    """The session cannot go on, whatever the configuration."""

    def __init__(self, what: str, hint: str = "") -> None:
        super().__init__(what)
        self.what, self.hint = what, hint


class ChildDied(Exception):
    pass


class ChildHung(Exception):
    pass


class Stopped(Exception):
    pass


class Child:
    """One spawned process, leader of its own group, with its output captured apart from the protocol's pipes."""

    def __init__(self, module: str, environ: Mapping[str, str]) -> None:
        to_child, self._write = os.pipe()
        self._read, from_child = os.pipe()
        self._output = tempfile.TemporaryFile()      # noqa: SIM115  closed with the child
        self._decoder = wire.Decoder()
        try:
            self.process = subprocess.Popen(
                [sys.executable, "-m", module, str(to_child), str(from_child), str(os.getpid())], cwd=PROJECT,
                env={**os.environ, **environ}, stdin=subprocess.DEVNULL, stdout=self._output, stderr=subprocess.STDOUT,
                pass_fds=(to_child, from_child), start_new_session=True)
        finally:
            os.close(to_child)
            os.close(from_child)

    def ask(self, message: dict[str, Any], limit_s: float, stop: threading.Event) -> dict[str, Any]:
        """Send, and wait for the answer. ChildDied, ChildHung or Stopped say why none came: the child is dead."""
        try:
            wire.write(self._write, message)
            return self._answer(time.monotonic() + limit_s, limit_s, stop)
        except BrokenPipeError as error:
            raise ChildDied(self.kill()) from error
        except ValueError as error:
            raise ChildDied(f"sent what is no message ({error}); {self.kill()}") from error

    def _answer(self, end: float, limit_s: float, stop: threading.Event) -> dict[str, Any]:
        while True:
            answer = self._decoder.next()
            if answer is not None:
                return answer
            if stop.is_set():
                self.kill()
                raise Stopped
            if time.monotonic() > end:
                self.kill()
                raise ChildHung(f"no answer within {limit_s:g} s")
            ready, _, _ = select.select([self._read], [], [], POLL_S)
            if ready:
                data = os.read(self._read, 65536)
                if not data:
                    raise ChildDied(self.kill())
                self._decoder.feed(data)

    def kill(self) -> str:
        """End the whole process group; returns how the child ended and its last output. Safe to call twice."""
        died = self.process.poll()
        if died is None:
            with suppress(subprocess.TimeoutExpired):
                died = self.process.wait(POLL_S) if self._output_closed() else None
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(10)             # the driver may need a moment to tear a running kernel down
        return f"{_ending(died)}{self._tail()}"

    def _output_closed(self) -> bool:
        """Whether the child has closed its end: it is on its way out, and its own exit status is worth a moment."""
        return bool(select.select([self._read], [], [], 0)[0])

    def _tail(self) -> str:
        size = os.fstat(self._output.fileno()).st_size
        text = os.pread(self._output.fileno(), TAIL_BYTES, max(0, size - TAIL_BYTES)).decode(errors="replace").strip()
        return f"; it printed: {text}" if text else ""

    def close(self) -> None:
        self.kill()
        for fd in (self._read, self._write):
            with suppress(OSError):
                os.close(fd)
        self._read = self._write = -1
        self._output.close()


def _ending(status: int | None) -> str:
    if status is None:
        return "killed"
    if status < 0:
        return f"died of {signal.Signals(-status).name}"
    return f"exited with status {status}"


class SandboxRunner:
    """Measures configurations of one operator on one GPU in a child process. See tuner.bench.runner.Runner.

    operator, shape, dtype   an entry of OPERATORS and what to measure
    gpu_index                as nvidia-smi numbers it; `gpu_uuid` goes before it where known
    policy                   fields of tuner.bench.timing.Policy to override
    child_module             the program of the child; tests give their own
    """

    def __init__(self, operator: str, shape: Mapping[str, int], dtype: str, gpu_index: int = 0, *, gpu_uuid: str = "",
                 seed: int = 0, limits: Limits | None = None, policy: Mapping[str, Any] | None = None,
                 child_module: str = "tuner.bench.child") -> None:
        if operator not in OPERATORS and child_module == "tuner.bench.child":
            raise SandboxError(f"unknown operator {operator!r}", f"one of {', '.join(OPERATORS)}")
        self.operator, self.shape, self.dtype, self.seed = operator, dict(shape), dtype, seed
        self.gpu_index, self.limits, self.policy = gpu_index, limits or Limits(), dict(policy or {})
        self._environ = {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", "CUDA_VISIBLE_DEVICES": gpu_uuid or str(gpu_index)}
        self._module = child_module
        self._child: Child | None = None
        self._spare: Child | None = None
        self._stop = threading.Event()
        self._tried = 0
        self.replaced = 0               # children that died or hung

    def open(self) -> Session:
        facts = self._begin(library=True)
        flops, moved = self._work()
        named = ("gpu", "compute_capability", "library_ms", "policy")
        return Session(
            gpu=facts["gpu"], compute_capability=facts["compute_capability"], library_ms=facts["library_ms"],
            policy=facts["policy"], flops=flops, bytes=moved,
            environment={name: value for name, value in facts.items() if name not in named})

    def _work(self) -> tuple[int | None, int | None]:
        operator = OPERATORS.get(self.operator)
        return (operator.flops(self.shape), operator.bytes(self.shape, self.dtype)) if operator else (None, None)

    ahead = 1

    def measure(self, configs: Sequence[Config], incumbent: Incumbent | None = None) -> Iterator[tuple[Config, Outcome]]:
        for config in configs:
            self._tried += 1
            try:
                outcome = self._one(config, incumbent)
            except Stopped:
                return
            yield config, outcome

    def _one(self, config: Config, incumbent: Incumbent | None) -> Outcome:
        compiled = self._ask({"do": "compile", "config": dict(config)}, self.limits.compile_s)
        if isinstance(compiled, Rejected):
            return compiled
        request: dict[str, Any] = {"do": "run", "config": dict(config), "seed": self.seed + self._tried}
        if incumbent is not None:
            request["incumbent"] = {"median_ms": incumbent.median_ms, "samples_ms": list(incumbent.samples_ms)}
        result = self._ask(request, self.limits.run_s)
        if isinstance(result, Rejected):
            return Rejected(result.reason, result.message, {**compiled, **result.facts})
        return _measured(result, compiled)

    def finalists(self, configs: Sequence[Config]) -> list[tuple[Config, Outcome]]:
        request = {"do": "finalists", "configs": [dict(config) for config in configs]}
        try:
            answer = self._ask(request, self.limits.finalists_s)
        except Stopped:
            return []
        if isinstance(answer, Rejected):
            return [(config, answer) for config in configs]
        return [(config, _measured(result, {})) for config, result in zip(configs, answer, strict=True)]

    def stop(self) -> None:
        """From another thread: whatever the child does, it is killed, and `measure` yields nothing more."""
        self._stop.set()

    def close(self) -> None:
        for child in (self._child, self._spare):
            if child is not None:
                child.close()
        self._child = self._spare = None

    def _ask(self, message: dict[str, Any], limit_s: float) -> Any:
        """The child's answer, or Rejected where it died or hung; the next question then goes to a new child."""
        if self._stop.is_set():
            raise Stopped
        if self._child is None:
            self._begin(library=False)
        try:
            answer = self._living().ask(message, limit_s, self._stop)
        except ChildHung as hung:
            self._bury()
            return Rejected(Reason.TIMEOUT, f"{message['do']}: {hung}")
        except ChildDied as died:
            self._bury()
            return Rejected(Reason.CRASH, f"{message['do']}: the child {died}")
        if answer.get("fatal"):
            self._bury()
        if "rejected" in answer:
            refused = answer["rejected"]
            return Rejected(Reason(refused["reason"]), refused["message"], refused["facts"])
        if "failed" in answer:
            raise SandboxError(answer["failed"]["what"], answer["failed"]["hint"])
        return answer["ok"]

    def _living(self) -> Child:
        if self._child is None:
            raise SandboxError("the session is not open")
        return self._child

    def _bury(self) -> None:
        self.replaced += 1
        if self._child is not None:
            self._child.close()
        self._child = None

    def _begin(self, library: bool) -> dict[str, Any]:
        """Take the spare (or spawn) and open the session in it; then have a new spare import torch meanwhile."""
        request = {"do": "open", "operator": self.operator, "shape": self.shape, "dtype": self.dtype, "seed": self.seed,
                   "gpu_index": self.gpu_index, "policy": self.policy, "library": library}
        why = ""
        for _ in range(self.limits.max_opens):
            child, self._spare = self._spare or self._spawn(), None
            self._child = child
            try:
                answer = child.ask(request, self.limits.open_s, self._stop)
            except (ChildDied, ChildHung) as error:
                why = str(error)
                self._bury()
                continue
            if "ok" not in answer:
                failed = answer.get("failed") or {"what": answer["rejected"]["message"], "hint": ""}
                raise SandboxError(failed["what"], failed["hint"])
            self._spare = self._spawn()
            return dict(answer["ok"])
        raise SandboxError(f"the GPU child did not start {self.limits.max_opens} times in a row: {why}",
                           "on the worker, try: python -c 'import torch, triton; torch.cuda.init()'")

    def _spawn(self) -> Child:
        return Child(self._module, self._environ)


def _measured(result: dict[str, Any], facts: Mapping[str, Any]) -> Measured:
    kept: dict[str, Any] = {name: result[name] for name in ("spread", "ended", "samples_ms") if name in result}
    return Measured(result["median_ms"], result["min_ms"], result["p90_ms"], result["n"],
                    {**facts, **result.get("facts", {}), **kept})
