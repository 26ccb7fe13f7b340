"""The evidence of one kernel's verdict: runs of both builds, what else changed, the round under way, and links from there."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from django.urls import reverse
from django.utils.http import urlencode

from profiles.base.numbers import median
from profiles.base.words import pairs_text
from profiles.ingest.naming.capture_names import capture_name
from profiles.models import KernelStat, Profile
from tuner import texts
from tuner.gate.stats.rule import finite_number
from tuner.gate.suites.selectors import LIVE, why_waiting
from tuner.gate.verdicts.page_selectors import can_compare
from tuner.models import GateKernel, KernelRun, SuiteJob
from tuner.tuning.operators import all_operators

BASELINE, CANDIDATE = "baseline", "candidate"
NO_METRICS = {"recorded_run", "capture", "number", "lead_ms", "samples", "n"}       # of a run's facts: where it comes from
PROFILES = 4                   # of each build that are linked
SEEN = 2_000                    # kernels of profiles of a build that are looked through for one name
UNITS = {"registers": "", "spills": "", "smem_bytes": "B", "shared_bytes": "B", "dram_bytes": "B", "local_bytes": "B",
         "temperature_c": "°C", "power_w": "W", "memory_clock_mhz": "MHz"}
NAMES = {"registers": "registers per thread", "spills": "spilled registers", "smem_bytes": "shared memory",
         "dram_bytes": "DRAM traffic", "temperature_c": "temperature", "power_w": "power", "memory_clock_mhz": "memory clock"}
SAMPLED = ("temperature_c", "power_w", "memory_clock_mhz")     # beside the SM clock while a run was timed


@dataclass(frozen=True)
class RunRow:
    """One fresh run of the evidence."""

    run: KernelRun
    side: str
    order: int                 # in which it was taken, from 1
    from_baseline: float | None        # its p50 ÷ the median of the baseline's runs

    @property
    def label(self) -> str:
        return self.run.run


def run_rows(row: GateKernel) -> list[RunRow]:
    """Return every run of both sides in the order taken, rejected ones with their reason; one query."""
    sides = dict.fromkeys(row.baseline_runs, BASELINE) | dict.fromkeys(row.candidate_runs, CANDIDATE)
    runs = KernelRun.objects.filter(pk__in=sides).select_related("build", "profile", "job").order_by(
        "created", "job_id", "number", "id")
    return [RunRow(run, sides[run.pk], order, run.p50_us / row.baseline_us if run.p50_us and row.baseline_us else None)
            for order, run in enumerate(runs, 1)]


def timed_runs(rows: Iterable[RunRow], side: str) -> list[KernelRun]:
    """Return the runs of one side that have a time."""
    return [row.run for row in rows if row.side == side and row.run.p50_us]


@dataclass(frozen=True)
class MetricChange:
    """A number of both builds beside time. None: not reported by that build's runs."""

    name: str
    unit: str
    baseline: float | None
    candidate: float | None
    verdict: str = ""
    reason: str = ""

    @property
    def pct(self) -> float | None:
        if self.baseline is None or self.candidate is None:
            return None
        if self.baseline == 0:
            return 0.0 if self.candidate == 0 else None
        return (self.candidate / self.baseline - 1) * 100

    @property
    def differs(self) -> bool:
        return self.baseline is not None and self.candidate is not None and self.baseline != self.candidate


def metric_changes(row: GateKernel, rows: Sequence[RunRow]) -> list[MetricChange]:
    """Return every other number that runs report, the median of each side; judged metrics first."""
    judged = {str(metric.get("metric")): metric for metric in row.facts.get("metrics") or [] if isinstance(metric, dict)}
    runs_by_side = {side: [_run_metrics(run) for run in timed_runs(rows, side)] for side in (BASELINE, CANDIDATE)}
    names = [*judged, *sorted({name for side in runs_by_side.values() for run in side for name in run} - set(judged))]
    out = []
    for name in names:
        metric = judged.get(name, {})
        baseline, candidate = (
            metric[side] if finite_number(metric.get(side)) is not None else
            median(run[name] for run in runs_by_side[side] if name in run) for side in (BASELINE, CANDIDATE))
        out.append(MetricChange(NAMES.get(name, name), UNITS.get(name, ""), baseline, candidate, str(metric.get("verdict", "")),
                          str(metric.get("reason", ""))))
    return out


def unknown_counters(rows: Sequence[RunRow]) -> list[str]:
    """Return why counters that the suite names are not known, each reason once."""
    reasons = [str(row.run.facts["counters_unknown"])[:300] for row in rows if row.run.facts.get("counters_unknown")]
    return list(dict.fromkeys(reasons))[:5]


def _run_metrics(run: KernelRun) -> dict[str, float]:
    """What a run reports beside its samples, metrics by name among it."""
    metrics, clocks = run.facts.get("metrics"), run.facts.get("clocks")
    sampled = {name: clocks[name].get("median") for name in SAMPLED if isinstance(clocks.get(name), dict)
               } if isinstance(clocks, dict) else {}
    flat = {**run.facts, **sampled, **(metrics if isinstance(metrics, dict) else {})}
    return {name: float(value) for name, value in flat.items() if finite_number(value) is not None and name not in NO_METRICS}


@dataclass(frozen=True)
class Side:
    """One build of a comparison: its runs' summary and what else is known of it."""

    name: str                  # BASELINE | CANDIDATE
    builds: list[str]          # newest first
    n: int
    p50_us: float | None
    p95_us: float | None
    cv_pct: float | None       # of run medians
    mhz: float | None
    samples: int
    configs: list[dict[str, Any]]


def compared_sides(rows: Sequence[RunRow]) -> list[Side]:
    """Return the summaries of baseline and candidate, in this order."""
    out = []
    for name in (BASELINE, CANDIDATE):
        mine = timed_runs(rows, name)
        medians = [run.p50_us for run in mine if run.p50_us]
        newest = sorted(mine, key=lambda run: (run.build.at, run.build.pk), reverse=True)
        builds = list(dict.fromkeys(run.build.name for run in newest))
        configs: list[dict[str, Any]] = []
        for run in mine:
            if run.config and run.config not in configs:
                configs.append(run.config)
        cv = 100 * statistics.stdev(medians) / statistics.fmean(medians) if len(medians) > 1 else None
        out.append(Side(name, builds, len(mine), median(medians), median(run.p95_us for run in mine if run.p95_us),
                        cv, median(run.sm_clock_mhz for run in mine if run.sm_clock_mhz), sum(run.n for run in mine), configs))
    return out


@dataclass(frozen=True)
class EvidenceLink:
    """A link of the closed loop; `url` "" where there is nothing to go to, and `why` says what is missing."""

    text: str
    url: str
    why: str = ""


def evidence_links(row: GateKernel, baseline: str, candidate: str) -> dict[str, EvidenceLink]:
    """Return the links from a verdict on: what changed between the builds, a tune job, what launches are served."""
    kernel = row.kernel
    operator = all_operators().get(kernel.op)
    fields = {"operator": kernel.op, "dtype": kernel.dtype, **kernel.shape}
    tune = EvidenceLink("Tune this kernel", f"{reverse('tune-new')}?{urlencode(fields)}") if operator else \
        _profile_tune_link(row, candidate)
    builds = urlencode({"build_a": baseline, "build_b": candidate})
    both = bool(baseline) and can_compare(baseline, candidate)
    return {
        **_two_build_links(baseline, candidate),
        "compare": EvidenceLink("Compare the builds", f"{reverse('compare')}?{builds}" if both else "",
                       "" if both else "both builds need a profile that is ready"),
        "tune": tune,
        "cache": EvidenceLink("What launches get", f"{reverse('cache-why')}?" + urlencode(
            {"operator": kernel.op, "dtype": kernel.dtype, "gpu": row.gate.gpu, "shape": pairs_text(kernel.shape)}))
        if operator else EvidenceLink("What launches get", "", f"{kernel.op} is no operator of the tuner"),
        "baseline": EvidenceLink("History of the baseline", reverse("suite-baselines", args=[row.gate.suite_id])),
        "environments": EvidenceLink("Build or environment?", f"{reverse('environments')}?" + urlencode(
            {"suite": row.gate.suite.name, "kernel": kernel.key})),
        "series": EvidenceLink("Trend", f"{reverse('build-list')}?" + urlencode(
            {"suite": row.gate.suite.name, "kernel": kernel.key, "gpu": row.gate.gpu})),
    }


def _two_build_links(baseline: str, candidate: str) -> dict[str, EvidenceLink]:
    """Timelines on one axis, counters beside each other: where both builds have the profiles for it."""
    if not baseline or baseline == candidate:
        return {}
    newest: dict[tuple[str, str], int] = {}
    profiles = Profile.objects.filter(build__in=[baseline, candidate], status=Profile.Status.READY).order_by("-created")
    for build, kind, pk in profiles.values_list("build", "kind", "pk")[:200]:
        newest.setdefault((kind, build), pk)
    ways = {}
    traces = [newest.get((Profile.Kind.TRACE, build)) for build in (baseline, candidate)]
    if all(traces):
        ways["timelines"] = EvidenceLink("Both timelines", reverse("timelines", args=traces))
    if all(newest.get((Profile.Kind.COUNTERS, build)) for build in (baseline, candidate)):
        query = urlencode({"build_a": baseline, "build_b": candidate, "kind": Profile.Kind.COUNTERS})
        ways["counters"] = EvidenceLink("Counters of both", f"{reverse('compare')}?{query}")
    return ways


def _profile_tune_link(row: GateKernel, build: str) -> EvidenceLink:
    """A kernel seen in a capture: its own profile knows operator and shape."""
    stats = (KernelStat.objects.filter(profile__build=build, profile__status=Profile.Status.READY)
             .order_by("-profile__created", "-total_ns"))
    kernel_stat = next((stat for stat in stats[:SEEN] if row.kernel.op in (stat.short_name, capture_name(stat.name))), None)
    if kernel_stat is None:
        return EvidenceLink("Tune this kernel", "",
                   f"{row.kernel.op} is no operator of the tuner, and no profile of {build} has launches of it")
    return EvidenceLink("Tune this kernel", reverse("kernel-tune", args=[kernel_stat.profile_id, kernel_stat.pk]))


@dataclass(frozen=True)
class ProfileOfBuild:
    """A profile of a build, and the kernel in it where it has launches."""

    profile: Profile
    kernel: KernelStat | None


def build_profiles(row: GateKernel, builds: Sequence[str]) -> list[ProfileOfBuild]:
    """Return timelines and counter reports of these builds, newest first."""
    profiles = list(Profile.objects.filter(build__in=list(builds), status=Profile.Status.READY).order_by("-created")[:PROFILES])
    names = {row.kernel.op, row.kernel.family}
    stats_by_profile: dict[int, KernelStat] = {}
    for stat in KernelStat.objects.filter(profile__in=profiles).order_by("profile_id", "-total_ns"):
        if stat.profile_id not in stats_by_profile and names & {stat.short_name, capture_name(stat.name)}:
            stats_by_profile[stat.profile_id] = stat
    return [ProfileOfBuild(profile, stats_by_profile.get(profile.pk)) for profile in profiles]


def config_rows(sides: Sequence[Side]) -> list[tuple[str, list[str]]]:
    """Parameters that the two builds set differently or alike: name → value on each side; several where runs differ."""
    names = list(dict.fromkeys(name for side in sides for config in side.configs for name in config))
    return [(name, [", ".join(dict.fromkeys(str(config.get(name, "—")) for config in side.configs)) or "—" for side in sides])
            for name in names]


def kernel_title(row: GateKernel) -> str:
    """Return the kernel as people write it."""
    shape = texts.in_order(row.kernel.op, row.kernel.shape) if row.kernel.shape else {}
    return " ".join(filter(None, [row.kernel.op, " ".join(f"{name}={size}" for name, size in shape.items()), row.kernel.dtype]))


MOST_SHOWN = 40             # newest runs of each build that are written out


@dataclass(frozen=True)
class BuildMedians:
    name: str
    p50_us: list[float]     # of each run, in the order taken

    @property
    def median_us(self) -> float:
        return statistics.median(self.p50_us)


@dataclass(frozen=True)
class RoundUnderWay:
    """The round under way, of one kernel."""

    done: int               # runs, rejected ones too
    wanted: int
    builds: list[BuildMedians]
    waiting: str            # why no worker has begun, "" where one has


def round_under_way(row: GateKernel) -> RoundUnderWay | None:
    """Return the runs being taken of this kernel for its gate, None where there are none; two queries."""
    jobs = [job for job in row.gate.jobs.filter(status__in=LIVE).order_by("id") if _measures(job, row.kernel.key)]
    if not jobs:
        return None
    runs = KernelRun.objects.filter(job__in=jobs, kernel=row.kernel_id).order_by("id").values_list("build__name", "p50_us")
    medians: dict[str, list[float]] = defaultdict(list)
    for name, p50_us in runs:
        if p50_us:
            medians[name].append(p50_us)
    waiting = "" if any(job.status != SuiteJob.Status.QUEUED for job in jobs) else why_waiting(jobs[0].device)
    return RoundUnderWay(len(runs), sum(job.runs * len(job.builds) for job in jobs),
                    [BuildMedians(name, values[-MOST_SHOWN:]) for name, values in medians.items()], waiting)


def _measures(job: Any, key: str) -> bool:
    """Return whether the job measures this kernel; one without a list measures all of the suite."""
    return job.kernels is None or key in job.kernels
