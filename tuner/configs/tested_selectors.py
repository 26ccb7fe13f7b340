"""What was tried where: trials of finished jobs and of imported spaces, as `tuner.portability` compares them."""

from __future__ import annotations

import json
import zlib
from functools import lru_cache
from typing import Any

from django.db.models import Count, Max

from tuner import cache, operators
from tuner.buckets import Buckets
from tuner.models import ImportedFile, TrialRow, TuneJob
from tuner.portability import Cell, Step, Tested, between_gpus, between_toolkits, by_distance, shared, steps
from tuner.trial import config_key

MAX_JOBS = 2_000                 # newest; a fleet's portability does not rest on older ones
MAX_UNPACKED = 32 * 2**20


def tested(operator: str = "") -> tuple[Tested, ...]:
    """Every finished job and imported space, oldest first; read again only when one was added."""
    found = _tested(*_changed())
    return tuple(one for one in found if one.operator == operator) if operator else found


def _changed() -> tuple[Any, ...]:
    """Other whenever a job finished or a file came or went."""
    jobs = TuneJob.objects.filter(status=TuneJob.Status.DONE).aggregate(n=Count("pk"), last=Max("finished"), id=Max("pk"))
    files = ImportedFile.objects.filter(tested__isnull=False, best_ms__isnull=False).aggregate(n=Count("pk"), last=Max("pk"))
    return jobs["n"], jobs["last"], jobs["id"], files["n"], files["last"]


@lru_cache(maxsize=2)
def _tested(*changed: Any) -> tuple[Tested, ...]:
    jobs = list(TuneJob.objects.filter(status=TuneJob.Status.DONE).order_by("-finished", "-pk")[:MAX_JOBS])
    times: dict[int, dict[str, float | None]] = {job.pk: {} for job in jobs}
    known = {name: operators.find(name) for name in {job.operator for job in jobs}}
    complete = {job.pk: one.complete if (one := known[job.operator]) else dict for job in jobs}
    exact = {name: frozenset(dim.name for dim in one.dims if dim.exact) if one else frozenset() for name, one in known.items()}
    rows = TrialRow.objects.filter(job__in=list(times)).values_list("job_id", "config", "median_ms", "facts__ended").iterator()
    for job_id, config, median_ms, ended in rows:
        if ended != "raced":                     # a raced one was given up early: its median is no measurement to compare with
            times[job_id][config_key(complete[job_id](config))] = median_ms
    ours = [Tested(job.operator, job.dtype, job.shape, job.gpu, cache.toolkit(job.environment), times[job.pk], job.recorded,
                   f"job {job.pk}", exact[job.operator]) for job in reversed(jobs)]
    files = ImportedFile.objects.filter(tested__isnull=False, best_ms__isnull=False).order_by("pk")
    return (*(_imported(file) for file in files), *ours)


def _exact(operator: str) -> frozenset[str]:
    known = operators.find(operator)
    return frozenset(dim.name for dim in known.dims if dim.exact) if known else frozenset()


def _imported(file: ImportedFile) -> Tested:
    times = json.loads(zlib.decompressobj().decompress(bytes(file.tested or b""), MAX_UNPACKED))
    return Tested(file.operator, file.dtype, file.shape, file.gpu, file.toolkit, times, f"imported from {file.name}",
                  f"file {file.pk}", _exact(file.operator))


def losses() -> cache.Loss:
    """Expected loss of a rule's step: the mean over what was tried; None where nothing was."""
    return _losses(*_changed())


@lru_cache(maxsize=2)
def _losses(*changed: Any) -> cache.Loss:
    found = _tested(*changed)
    gpus, toolkits, near = {}, {}, {}
    for operator in {one.operator for one in found}:
        mine = [one for one in found if one.operator == operator]
        gpus[operator], toolkits[operator] = between_gpus(mine), between_toolkits(mine)
        near[operator] = by_distance(_steps(operator, *changed))

    def loss(rule: cache.Rule, key: cache.Key, wanted: cache.Key, distance: float) -> float | None:
        if rule == cache.Rule.EXACT:
            return 0.0
        cell: Cell | None = None
        if rule == cache.Rule.SAME_ARCHITECTURE and key.operator in gpus:
            cell = gpus[key.operator].cells.get((key.gpu, wanted.gpu))
        elif rule == cache.Rule.OTHER_TOOLKIT and key.operator in toolkits:
            cell = toolkits[key.operator].cells.get((key.toolkit, wanted.toolkit))
        elif rule == cache.Rule.NEAREST_BUCKET:
            cell = next((one for limit, one in near.get(key.operator, ()) if distance <= limit), None)
        return cell.loss if cell else None
    return loss


def bucket_loss(operator: str, policy: Buckets) -> float | None:
    """What is lost at another shape of an entry's own bucket; None where no two shapes of a bucket were tried."""
    return shared(_steps(operator, *_changed()), policy).loss


@lru_cache(maxsize=32)
def _steps(operator: str, *changed: Any) -> tuple[Step, ...]:
    return tuple(steps([one for one in _tested(*changed) if one.operator == operator]))
