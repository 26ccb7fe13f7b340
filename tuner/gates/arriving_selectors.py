"""What is being measured of one kernel while its gate is under way: runs that no verdict rests on yet."""

from __future__ import annotations

import statistics
from collections import defaultdict
from dataclasses import dataclass
from typing import Any

from tuner.models import GateKernel, KernelRun, SuiteJob
from tuner.suites.devices_selectors import why_waiting
from tuner.suites.selectors import LIVE

MOST_SHOWN = 40             # newest runs of each build that are written out


@dataclass(frozen=True)
class OfBuild:
    name: str
    p50_us: list[float]     # of each run, in the order taken

    @property
    def median_us(self) -> float:
        return statistics.median(self.p50_us)


@dataclass(frozen=True)
class Arriving:
    """The round under way, of one kernel."""

    done: int               # runs, rejected ones too
    wanted: int
    builds: list[OfBuild]
    waiting: str            # why no worker has begun, "" where one has


def arriving(row: GateKernel) -> Arriving | None:
    """None where nothing of this kernel is being measured for its gate; two queries."""
    jobs = [job for job in row.gate.jobs.filter(status__in=LIVE).order_by("id") if _of(job, row.kernel.key)]
    if not jobs:
        return None
    found = KernelRun.objects.filter(job__in=jobs, kernel=row.kernel_id).order_by("id").values_list("build__name", "p50_us")
    medians: dict[str, list[float]] = defaultdict(list)
    for name, p50_us in found:
        if p50_us:
            medians[name].append(p50_us)
    waiting = "" if any(job.status != SuiteJob.Status.QUEUED for job in jobs) else why_waiting(jobs[0].device)
    return Arriving(len(found), sum(job.runs * len(job.builds) for job in jobs),
                    [OfBuild(name, values[-MOST_SHOWN:]) for name, values in medians.items()], waiting)


def _of(job: Any, key: str) -> bool:
    """A job without a list measures every kernel of the suite."""
    return job.kernels is None or key in job.kernels
