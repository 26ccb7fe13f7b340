"""A ceilings job on a worker: lease a GPU, measure one after the other into its row."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

from profiles.ceilings import services
from profiles.models import CeilingRun
from workers.core import gpu
from workers.core.child import Child, ChildDied, ChildHung, SandboxError, Stopped
from workers.core.periodic import watch_for_stop

# ---- measure a GPU's ceilings in turn in a child process ----
# Measures a GPU's ceilings in turn in a child process that may die. No Django.

MODULE = "tuner.tuning.measure.ceilings_child"
OPEN_S, MEASURE_S = 180.0, 90.0      # the first compiles kernels
# As tuner.tuning.measure.ceilings.MEASUREMENTS, which imports torch and lives in the child.
NAMES = ("copy", "read", "write", "l2", "l1", "fma-fp64", "fma-fp32", "fma-fp16", "gemm-fp64", "gemm-fp32", "gemm-tf32",
         "gemm-fp16", "gemm-bf16", "gemm-fp8", "gemm-int8")


class CeilingsBench:
    """Measures on one GPU; `module` is the child's program."""

    def __init__(self, gpu_index: int = 0, *, gpu_uuid: str = "", module: str = MODULE, seconds: float | None = None) -> None:
        self.gpu_index, self.module, self.seconds = gpu_index, module, seconds
        self._environ = {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", "CUDA_VISIBLE_DEVICES": gpu_uuid or str(gpu_index)}
        self._child: Child | None = None
        self._stop = threading.Event()

    def open(self) -> dict[str, Any]:
        """Return device and software. Raises SandboxError, Stopped."""
        self.close()
        self._child = Child(self.module, self._environ)
        try:
            answer = self._child.ask({"do": "open", "gpu_index": self.gpu_index}, OPEN_S, self._stop)
        except (ChildDied, ChildHung) as error:
            self.close()
            raise SandboxError(f"the GPU child did not start: {error}",
                               "on the worker, try: python -c 'import torch, triton; torch.cuda.init()'") from error
        if "ok" not in answer:
            self.close()
            failure = answer.get("failed") or {"what": answer["rejected"]["message"], "hint": ""}
            raise SandboxError(failure["what"], failure["hint"])
        return dict(answer["ok"])

    def measure(self, names: Sequence[str] = NAMES) -> Iterator[tuple[str, Mapping[str, Any]]]:
        """Yield (name, result) or (name, {"rejected": why}); ends early when stopped."""
        for name in names:
            try:
                if self._child is None:
                    self.open()
                yield name, self._one(name)
            except Stopped:
                return

    def _one(self, name: str) -> Mapping[str, Any]:
        if self._child is None:
            raise SandboxError("the session is not open")
        request: dict[str, Any] = {"do": "measure", "name": name}
        if self.seconds:
            request["seconds"] = self.seconds
        try:
            answer = self._child.ask(request, MEASURE_S, self._stop)
        except ChildHung as error:
            self.close()
            return {"rejected": str(error)}
        except ChildDied as error:
            self.close()
            return {"rejected": f"the child {error}"}
        if answer.get("fatal"):
            self.close()
        if "ok" in answer:
            return dict(answer["ok"])
        failure = answer.get("rejected") or answer["failed"]
        return {"rejected": failure.get("message") or failure["what"]}

    def stop(self) -> None:
        """Kill the child from another thread; `measure` yields nothing more."""
        self._stop.set()

    def close(self) -> None:
        """End the child."""
        if self._child is not None:
            with suppress(OSError):
                self._child.close()
        self._child = None


# ---- a ceilings job on a worker ----

log = logging.getLogger(__name__)
MAX_ATTEMPTS = 3        # a measurement that took its worker down this often is not tried again


def run(run_id: int, worker: str, *, module: str = MODULE, seconds: float | None = None) -> None:
    """Claim the row and end it as done, failed or cancelled; a claimed row is not claimed again."""
    row = services.ceilings_claim(run_id, worker)
    if row is None:
        return
    try:
        if row.attempts > MAX_ATTEMPTS:
            raise SandboxError(f"{MAX_ATTEMPTS} workers died over this measurement", "see the workers' logs")
        _measure(row, worker, module, seconds)
    except SandboxError as error:
        _fail(row, worker, error.what, error.hint)
    except (Stopped, gpu.NoLease):
        log.info("ceilings %s: stopped", run_id)


def _measure(row: CeilingRun, worker: str, module: str, seconds: float | None) -> None:
    cards = gpu.gpus()
    if not cards:
        raise SandboxError("this worker sees no NVIDIA GPU", "check nvidia-smi on the worker")
    with watch_for_stop(lambda: not CeilingRun.leases.is_held(row.pk, worker)) as stop, gpu.lease(cards, should_stop=stop) as card:
        bench = CeilingsBench(card.index, gpu_uuid=card.uuid, module=module, seconds=seconds)
        stop.tell(bench)
        try:
            facts = bench.open()
            services.ceilings_write(row, worker, gpu=facts.pop("gpu"), gpu_uuid=card.uuid,
                                    environment={**facts, "driver": card.driver})
            for name, result in bench.measure(NAMES):
                row.results[name] = services.result_clean(dict(result))
                if not services.ceilings_write(row, worker, results=row.results):
                    return
        finally:
            bench.close()
    if not any("rate" in result for result in row.results.values()):
        raise SandboxError("nothing could be measured: " + next(
            (result["rejected"] for result in row.results.values() if "rejected" in result), "no result"), "see the worker's log")
    if len(row.results) == len(NAMES):
        services.ceilings_end(row, worker, CeilingRun.Status.DONE)


def _fail(row: CeilingRun, worker: str, what: str, hint: str) -> None:
    services.ceilings_end(row, worker, CeilingRun.Status.FAILED, error={"where": "GPU child", "what": what[:500], "hint": hint})
