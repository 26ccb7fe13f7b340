"""Worth of a search: recorded GPU time of a problem × the share a winner is expected to save.

Both parts are stated with where they come from. Time is what was recorded in the profiles that are here, not the fleet's
whole time: it ranks, and it says how large a part of the recorded time is at stake.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from django.db.models import QuerySet, Sum

from profiles.models import KernelShape, Profile, first_uploads
from tuner.models import TuneJob
from tuner.tuning.operators import find
from tuner.tuning.trial import config_key

JOBS_READ = 200          # newest finished jobs of an operator that an expectation is made from
HOT = 40                 # shapes of a profile that a page offers
MOST_PROFILES = 50


@dataclass(frozen=True)
class FleetTime:
    """GPU time of one problem over all profiles, or of one."""

    ns: int = 0
    launches: int = 0
    profiles: int = 0
    library_ns: int = 0      # of it in kernels of a vendor's library or a framework

    @property
    def mean_ms(self) -> float | None:
        """Return the mean time of a launch in ms; None without launches."""
        return self.ns / self.launches / 1e6 if self.launches else None


# C++ names and the vendors' own: what cuBLAS, cuDNN and torch launch. Triton's kernels are plain identifiers.
_LIBRARY = re.compile(r"::|<|\bvoid |nvjet|cudnn|cublas|cutlass|xmma|^(?:sm\d\d|ampere|turing|volta|hopper)_")


def is_library_kernel(kernel: str) -> bool:
    """Return whether a kernel is a library's: then a winner has to beat the library."""
    return _LIBRARY.search(kernel) is not None


@dataclass(frozen=True)
class Gain:
    """`share` of the time expected to be saved, 0-1, and its evidence in words."""

    share: float
    why: str


@dataclass(frozen=True)
class Worth:
    """Recorded GPU seconds expected to be saved; None where a part is unknown (`why`)."""

    fleet: FleetTime
    gain: Gain | None
    why: str

    @property
    def gain_pct(self) -> float | None:
        """Return the expected gain in percent."""
        return None if self.gain is None else 100 * self.gain.share

    @property
    def seconds(self) -> float | None:
        """Return the seconds expected to be saved; None where unknown."""
        return self.fleet.ns / 1e9 * self.gain.share if self.gain is not None and self.fleet.ns else None


@dataclass(frozen=True)
class HotShape:
    """A problem of a profile that can be tuned."""

    operator: str
    dtype: str
    shape: Mapping[str, int]
    fleet: FleetTime
    kernel: str              # of most of its time
    share_pct: float         # of the profile's GPU time, 0-100
    worth: Worth
    tuned: TuneJob | None = field(default=None, compare=False)      # newest finished job of just this problem


def problem_of(tune: Mapping[str, Any]) -> tuple[str, str, dict[str, int]] | None:
    """Return operator, dtype and shape of a row's form; None where it names no whole problem."""
    operator = find(str(tune.get("operator", "")))
    if operator is None:
        return None
    shape = {dim.name: tune[dim.name] for dim in operator.dims if isinstance(tune.get(dim.name), int)}
    dtype = str(tune.get("dtype", ""))              # unknown: no problem, rather than the operator's first type
    return None if operator.problems(shape, dtype) else (operator.name, dtype, shape)


def fleet_time(operator: str, dtype: str, shape: Mapping[str, int], gpu: str = "") -> FleetTime:
    """Return the time of this problem in all profiles; `gpu` "" is any."""
    rows = _counted_once(KernelShape.objects.filter(tune__contains={"operator": operator, **shape}))
    rows = rows.filter(kernel__profile__gpu=gpu) if gpu else rows
    return _sum_time(row for row in _rows_with_profile(rows) if problem_of(row[0]) == (operator, dtype, dict(shape)))


def fleet_ns(operators: Collection[str]) -> dict[tuple[str, str, str, str], int]:
    """Return GPU ns by (operator, dtype, `config_key` of the shape, GPU), in one query."""
    rows = _counted_once(KernelShape.objects.filter(tune__operator__in=list(operators))).order_by()
    ns_by_problem: dict[tuple[str, str, str, str], int] = {}
    for tune, gpu, ns in rows.values_list("tune", "kernel__profile__gpu").annotate(ns=Sum("total_ns")):
        if problem := problem_of(tune):
            key = (problem[0], problem[1], config_key(problem[2]), gpu)
            ns_by_problem[key] = ns_by_problem.get(key, 0) + ns
    return ns_by_problem


def _counted_once(rows: QuerySet[KernelShape]) -> QuerySet[KernelShape]:
    """Rows of profiles that count: of the same bytes uploaded twice the older one's."""
    ready = Profile.objects.filter(status=Profile.Status.READY)
    return rows.filter(kernel__profile__in=first_uploads(ready).order_by().values("pk"))


def _rows_with_profile(rows: QuerySet[KernelShape]) -> Iterable[tuple[dict[str, Any], int, int, int, str]]:
    return rows.values_list("tune", "total_ns", "launches", "kernel__profile_id", "kernel__name")


def _sum_time(rows: Iterable[tuple[dict[str, Any], int, int, int, str]]) -> FleetTime:
    shapes = list(rows)
    return FleetTime(sum(row[1] for row in shapes), sum(row[2] for row in shapes), len({row[3] for row in shapes}),
                     sum(row[1] for row in shapes if is_library_kernel(row[4])))


def finished_jobs(operator: str) -> list[TuneJob]:
    """Return finished searches of the operator's own space, newest first, without re-measurements."""
    return list(TuneJob.objects.filter(operator=operator, status=TuneJob.Status.DONE, purpose="search", best_ms__gt=0,
                                       space__isnull=True)
                .order_by("-id")[:JOBS_READ])


def expected_gain(operator: str, dtype: str, shape: Mapping[str, int], seen: FleetTime,
                  jobs: list[TuneJob] | None = None) -> Gain | None:
    """Return the gain of the newest job of this problem, else of the operator's searches.

    A job of this problem tells how fast it can be: its winner against the mean launch that profiles saw. Otherwise the median
    of 1 − best / reference over the finished jobs. The reference is what the fleet runs: the vendor's library where the time
    is in a library's kernels, else the operator's default configuration. A search that loses to the library wins nothing.
    """
    jobs = finished_jobs(operator) if jobs is None else jobs
    same = next((job for job in jobs if job.dtype == dtype and job.shape == dict(shape)), None)
    if same is not None and same.best_ms and seen.mean_ms:
        label = f" ({same.recorded})" if same.recorded else ""
        return Gain(max(0.0, 1 - same.best_ms / seen.mean_ms), f"job {same.pk} found {same.best_ms * 1e3:.4g} µs{label}, a "
                    f"launch in the profiles takes {seen.mean_ms * 1e3:.4g} µs")
    library = 2 * seen.library_ns > seen.ns
    gains = [(1 - job.best_ms / reference_ms, bool(job.recorded)) for job in jobs
             if job.best_ms and (reference_ms := job.library_ms if library else job.default_ms)]
    if not gains:
        return None
    recorded = sum(replayed for _, replayed in gains)
    why = (f"median over {len(gains)} finished job{'s' * (len(gains) != 1)} of {operator} against "
           f"{'the vendor library, which the fleet runs' if library else 'its default configuration'}")
    return Gain(max(0.0, median(share for share, _ in gains)), why + (f", {recorded} of them replayed" if recorded else ""))


def search_worth(operator: str, dtype: str, shape: Mapping[str, int], gpu: str = "", seen: FleetTime | None = None,
                 jobs: list[TuneJob] | None = None) -> Worth:
    """Return the worth of searching this problem."""
    seen = fleet_time(operator, dtype, shape, gpu) if seen is None else seen
    gain = expected_gain(operator, dtype, shape, seen, jobs)
    if not seen.ns:
        return Worth(seen, gain, "no profile here holds a launch of this shape")
    if gain is None:
        return Worth(seen, gain, f"no job of {operator} has finished yet, so nothing says what a search wins")
    return Worth(seen, gain, gain.why)


def hot_shapes(profile: Profile, limit: int = HOT) -> list[HotShape]:
    """Return problems of a profile by GPU time."""
    rows = (KernelShape.objects.filter(kernel__profile=profile).exclude(tune={})
            .values_list("tune", "total_ns", "launches", "kernel__short_name", "kernel__name").order_by("-total_ns"))
    total = sum(KernelShape.objects.filter(kernel__profile=profile).values_list("total_ns", flat=True)) or 1
    merged: dict[tuple[str, str, tuple[tuple[str, int], ...]], list[Any]] = {}
    for tune, ns, launches, kernel, name in rows:
        problem = problem_of(tune)
        if problem is None:
            continue
        operator, dtype, shape = problem
        sums = merged.setdefault((operator, dtype, tuple(shape.items())), [0, 0, kernel, 0])
        sums[0] += ns
        sums[1] += launches
        sums[3] += ns if is_library_kernel(name) else 0
    largest = sorted(merged.items(), key=lambda pair: -pair[1][0])[:limit]
    jobs = {operator: finished_jobs(operator) for operator in {key[0] for key, _ in largest}}
    hot = []
    for (operator, dtype, dims), (ns, launches, kernel, library_ns) in largest:
        shape, seen = dict(dims), FleetTime(ns, launches, 1, library_ns)
        done = next((job for job in jobs[operator] if job.dtype == dtype and job.shape == shape), None)
        stake = search_worth(operator, dtype, shape, seen=seen, jobs=jobs[operator])
        hot.append(HotShape(operator, dtype, shape, seen, kernel, 100 * ns / total, stake, done))
    return hot


def profiles_with_shapes() -> list[Profile]:
    """Return profiles with at least one problem that can be tuned, newest first."""
    ids = KernelShape.objects.exclude(tune={}).values_list("kernel__profile_id", flat=True).distinct()
    return list(Profile.objects.filter(pk__in=ids).order_by("-created")[:MOST_PROFILES])
