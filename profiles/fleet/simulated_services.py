"""Everything that simulated jobs sent goes: agents with what waits of them, sums, names. What real jobs sent stays."""

from __future__ import annotations

from django.db import transaction

from profiles.fleet.merge import key_of
from profiles.fleet.models import FleetAgent, FleetContext, FleetGpu, FleetHour, FleetKernel, FleetSignature
from profiles.fleet.services import merge_waiting
from profiles.fleet.stores import fleet_store


def forget_simulated() -> dict[str, int]:
    """Remove it; return what went and how many of each."""
    merge_waiting()                     # batches of files (`feed --simulated`) and of agents: all of it is sums then
    with transaction.atomic():
        agents = FleetAgent.objects.filter(simulated=True)
        counts = {"simulated agents": agents.count()}
        agents.delete()
        contexts = dict(FleetContext.objects.filter(simulated=True).values_list("id", "gpu_model"))
        gone = fleet_store().forget(list(contexts), [key_of("gpu_model", model, True) for model in set(contexts.values())])
        FleetHour.objects.update(compared=None)         # other GPUs are compared with those that are left
        counts["rows of sums"] = gone.rows
        counts["GPUs"] = FleetGpu.objects.filter(id__in=gone.gpus).delete()[0]
        signatures = FleetSignature.objects.filter(id__in=gone.signatures)
        kernels = set(signatures.values_list("kernel_id", flat=True))
        counts["signatures"] = signatures.count()
        signatures.delete()
        counts["kernels"] = FleetKernel.objects.filter(id__in=kernels, signatures=None).delete()[0]
        counts["contexts"] = FleetContext.objects.filter(id__in=list(contexts)).delete()[0]
    return counts
