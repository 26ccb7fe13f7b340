"""What a search is worth: GPU time that profiles saw in a problem × the share of it that a winner is expected to save.

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

from profiles.models import KernelShape, Profile
from tuner.models import TuneJob
from tuner.operators import find
from tuner.trial import config_key

JOBS_READ = 200          # newest finished jobs of an operator that an expectation is made from
HOT = 40                 # shapes of a profile that a page offers


@dataclass(frozen=True)
class Fleet:
    """GPU time of one problem over all profiles, or of one."""

    ns: int = 0
    launches: int = 0
    profiles: int = 0
    library_ns: int = 0      # of it in kernels of a vendor's library or a framework

    @property
    def mean_ms(self) -> float | None:
        return self.ns / self.launches / 1e6 if self.launches else None


# C++ names and the vendors' own: what cuBLAS, cuDNN and torch launch. Triton's kernels are plain identifiers.
_LIBRARY = re.compile(r"::|<|\bvoid |nvjet|cudnn|cublas|cutlass|xmma|^(?:sm\d\d|ampere|turing|volta|hopper)_")


def of_library(kernel: str) -> bool:
    """Whether a kernel comes from a library: then a winner has to beat the library, not the operator's default."""
    return _LIBRARY.search(kernel) is not None


@dataclass(frozen=True)
class Gain:
    """`share` of the time that is expected to be saved, 0-1, and in words what says so."""

    share: float
    why: str


@dataclass(frozen=True)
class Worth:
    """`seconds`: of recorded GPU time, expected to be saved. None: either part is unknown, `why` says which."""

    fleet: Fleet
    gain: Gain | None
    why: str

    @property
    def gain_pct(self) -> float | None:
        return None if self.gain is None else 100 * self.gain.share

    @property
    def seconds(self) -> float | None:
        return self.fleet.ns / 1e9 * self.gain.share if self.gain is not None and self.fleet.ns else None


@dataclass(frozen=True)
class Hot:
    """One problem of a profile that the tuner can take up."""

    operator: str
    dtype: str
    shape: Mapping[str, int]
    fleet: Fleet
    kernel: str              # of most of its time
    share_pct: float         # of the profile's GPU time, 0-100
    worth: Worth
    tuned: TuneJob | None = field(default=None, compare=False)      # newest finished job of just this problem


def problem_of(tune: Mapping[str, Any]) -> tuple[str, str, dict[str, int]] | None:
    """Operator, dtype and shape of a row's filled-in form; None where it does not name a whole problem."""
    operator = find(str(tune.get("operator", "")))
    if operator is None:
        return None
    shape = {dim.name: tune[dim.name] for dim in operator.dims if isinstance(tune.get(dim.name), int)}
    dtype = str(tune.get("dtype") or operator.dtypes[0])
    return None if operator.problems(shape, dtype) else (operator.name, dtype, shape)


def fleet(operator: str, dtype: str, shape: Mapping[str, int], gpu: str = "") -> Fleet:
    """Time of just this problem in all profiles; `gpu` "" is any."""
    rows = KernelShape.objects.filter(tune__contains={"operator": operator, **shape})
    rows = rows.filter(kernel__profile__gpu=gpu) if gpu else rows
    return _sum(row for row in _with_profile(rows) if problem_of(row[0]) == (operator, dtype, dict(shape)))


def fleet_ns(operators: Collection[str]) -> dict[tuple[str, str, str, str], int]:
    """GPU time in all profiles by (operator, dtype, `config_key` of the shape, GPU): one query for all of these operators."""
    rows = KernelShape.objects.filter(tune__operator__in=list(operators)).order_by()
    found: dict[tuple[str, str, str, str], int] = {}
    for tune, gpu, ns in rows.values_list("tune", "kernel__profile__gpu").annotate(ns=Sum("total_ns")):
        if problem := problem_of(tune):
            key = (problem[0], problem[1], config_key(problem[2]), gpu)
            found[key] = found.get(key, 0) + ns
    return found


def _with_profile(rows: QuerySet[KernelShape]) -> Iterable[tuple[dict[str, Any], int, int, int, str]]:
    return rows.values_list("tune", "total_ns", "launches", "kernel__profile_id", "kernel__name")


def _sum(rows: Iterable[tuple[dict[str, Any], int, int, int, str]]) -> Fleet:
    found = list(rows)
    return Fleet(sum(row[1] for row in found), sum(row[2] for row in found), len({row[3] for row in found}),
                 sum(row[1] for row in found if of_library(row[4])))


def finished(operator: str) -> list[TuneJob]:
    """Newest first; what was searched, not what was measured again."""
    return list(TuneJob.objects.filter(operator=operator, status=TuneJob.Status.DONE, purpose="search", best_ms__gt=0)
                .order_by("-id")[:JOBS_READ])


def expected_gain(operator: str, dtype: str, shape: Mapping[str, int], seen: Fleet,
                  jobs: list[TuneJob] | None = None) -> Gain | None:
    """From the newest job of just this problem, else from what searches of the operator won; None: there was none.

    A job of this problem tells how fast it can be: its winner against the mean launch that profiles saw. Otherwise the median
    of 1 − best / reference over the finished jobs. The reference is what the fleet runs: the vendor's library where the time
    is in a library's kernels, else the operator's default configuration. A search that loses to the library wins nothing.
    """
    jobs = finished(operator) if jobs is None else jobs
    same = next((job for job in jobs if job.dtype == dtype and job.shape == dict(shape)), None)
    if same is not None and same.best_ms and seen.mean_ms:
        label = f" ({same.recorded})" if same.recorded else ""
        return Gain(max(0.0, 1 - same.best_ms / seen.mean_ms), f"job {same.pk} found {same.best_ms * 1e3:.4g} µs{label}, a "
                    f"launch in the profiles takes {seen.mean_ms * 1e3:.4g} µs")
    library = 2 * seen.library_ns > seen.ns
    told = [(1 - job.best_ms / reference_ms, bool(job.recorded)) for job in jobs
            if job.best_ms and (reference_ms := job.library_ms if library else job.default_ms)]
    if not told:
        return None
    recorded = sum(replayed for _, replayed in told)
    why = (f"median over {len(told)} finished job{'s' * (len(told) != 1)} of {operator} against "
           f"{'the vendor library, which the fleet runs' if library else 'its default configuration'}")
    return Gain(max(0.0, median(share for share, _ in told)), why + (f", {recorded} of them replayed" if recorded else ""))


def worth(operator: str, dtype: str, shape: Mapping[str, int], gpu: str = "", seen: Fleet | None = None,
          jobs: list[TuneJob] | None = None) -> Worth:
    seen = fleet(operator, dtype, shape, gpu) if seen is None else seen
    gain = expected_gain(operator, dtype, shape, seen, jobs)
    if not seen.ns:
        return Worth(seen, gain, "no profile here holds a launch of this shape")
    if gain is None:
        return Worth(seen, gain, f"no job of {operator} has finished yet, so nothing says what a search wins")
    return Worth(seen, gain, gain.why)


def hot_shapes(profile: Profile, limit: int = HOT) -> list[Hot]:
    """Problems of a profile by GPU time: what a group of tune jobs is made from."""
    rows = (KernelShape.objects.filter(kernel__profile=profile).exclude(tune={})
            .values_list("tune", "total_ns", "launches", "kernel__short_name", "kernel__name").order_by("-total_ns"))
    total = sum(KernelShape.objects.filter(kernel__profile=profile).values_list("total_ns", flat=True)) or 1
    merged: dict[tuple[str, str, tuple[tuple[str, int], ...]], list[Any]] = {}
    for tune, ns, launches, kernel, name in rows:
        problem = problem_of(tune)
        if problem is None:
            continue
        operator, dtype, shape = problem
        found = merged.setdefault((operator, dtype, tuple(shape.items())), [0, 0, kernel, 0])
        found[0] += ns
        found[1] += launches
        found[3] += ns if of_library(name) else 0
    largest = sorted(merged.items(), key=lambda pair: -pair[1][0])[:limit]
    jobs = {operator: finished(operator) for operator in {key[0] for key, _ in largest}}
    hot = []
    for (operator, dtype, dims), (ns, launches, kernel, library_ns) in largest:
        shape, seen = dict(dims), Fleet(ns, launches, 1, library_ns)
        done = next((job for job in jobs[operator] if job.dtype == dtype and job.shape == shape), None)
        stake = worth(operator, dtype, shape, seen=seen, jobs=jobs[operator])
        hot.append(Hot(operator, dtype, shape, seen, kernel, 100 * ns / total, stake, done))
    return hot


def profiles_with_shapes(limit: int = 50) -> list[Profile]:
    """Profiles that hold at least one problem the tuner can take up, newest first."""
    ids = KernelShape.objects.exclude(tune={}).values_list("kernel__profile_id", flat=True).distinct()
    return list(Profile.objects.filter(pk__in=ids).order_by("-created")[:limit])
