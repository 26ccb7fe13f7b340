"""A ceilings job on a worker: lease a GPU, measure one after the other into its row."""

from __future__ import annotations

import logging

from profiles.ceilings import services
from profiles.ceilings.models import CEILING_LEASES
from profiles.models import CeilingRun
from workers.capture.ceilings_bench import MODULE, NAMES, CeilingsBench
from workers.core import gpu
from workers.core.child import SandboxError, Stopped
from workers.core.stopping import watch_for_stop

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
    with watch_for_stop(lambda: not CEILING_LEASES.is_held(row.pk, worker)) as stop, gpu.lease(cards, should_stop=stop) as card:
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
