"""A measuring job on a worker: lease a GPU, measure one ceiling after the other in a child, each into its row."""

from __future__ import annotations

import logging

from django.utils import timezone

from profiles.ceilings import services
from profiles.models import CeilingRun
from workers import gpu
from workers.ceilings_bench import MODULE, NAMES, CeilingsBench
from workers.child import SandboxError, Stopped
from workers.stopping import watched

log = logging.getLogger(__name__)
MAX_ATTEMPTS = 3        # a measurement that took its worker down this often is not tried again


def run(run_id: int, worker: str, *, module: str = MODULE, seconds: float | None = None) -> None:
    """Claim the row and end it as done, failed or cancelled. Safe twice: a claimed row is not claimed again."""
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
    with watched(lambda: not _held(row, worker)) as stop, gpu.lease(cards, should_stop=stop) as card:
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
        services.ceilings_write(row, worker, status=CeilingRun.Status.DONE, finished=timezone.now(), heartbeat=None)


def _fail(row: CeilingRun, worker: str, what: str, hint: str) -> None:
    services.ceilings_write(row, worker, status=CeilingRun.Status.FAILED, finished=timezone.now(), heartbeat=None,
                            error={"where": "GPU child", "what": what[:500], "hint": hint})


def _held(row: CeilingRun, worker: str) -> bool:
    return CeilingRun.objects.filter(pk=row.pk, worker=worker, status=CeilingRun.Status.RUNNING).exists()
