"""What the page of a kernel shows, part by part: a tab costs what it shows, and a baseline what lies over that tab."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property, partial
from typing import Any

from profiles.analysis.core import gpus
from profiles.analysis.core.sentences import share_pct
from profiles.analysis.core.tunable import tuned_operator
from profiles.analysis.kernel import counters, stalls
from profiles.analysis.kernel.advising.evidence import judge
from profiles.analysis.kernel.advising.gains import Headroom, headroom
from profiles.analysis.kernel.anatomy import SAYS, Anatomy
from profiles.analysis.kernel.ceilings import MeasuredCeilings, ceilings
from profiles.analysis.kernel.counters import LAUNCH_PARAMETERS
from profiles.analysis.kernel.facts import LaunchFacts
from profiles.analysis.kernel.occupancy import LIMITER_WORDS, limiter_words, next_step, waves_text
from profiles.analysis.kernel.worth import FamilyCounters, FamilyTime, LaunchShape, is_same_shape
from profiles.ceilings.selectors import measured_gpus
from profiles.counters import selectors as parts
from profiles.counters.selectors import rule_rows
from profiles.models import KernelStat, LaunchCounters, Profile
from profiles.occupancy.selectors import question_of
from profiles.rooflines.selectors import by_device, point_of, rungs

# ---- time of a kernel from a trace beside its counters from a report ----
# The same family on the same GPU model, in one row.

LEADING = 3                     # of NVIDIA's rules, on the summary
MOST = 5                        # rows: the newest profiles of the other kind


@dataclass(frozen=True)
class Beside:
    """`timed` of a trace, `counted` of a report; `whole` the facts of all its complete launches.

    `is_same_shape`: launches of one shape are in both. Counters of others say nothing of the time beside them.
    """

    timed: KernelStat
    counted: KernelStat
    whole: LaunchFacts | None
    is_same_shape: bool


def beside(kernel: KernelStat) -> list[Beside]:
    """Return a row for each of the newest profiles of the other kind that hold this kernel on this GPU."""
    profile = kernel.profile
    if not kernel.family_id or not profile.gpu or profile.kind == Profile.Kind.SUMMARY:
        return []
    is_counted = profile.kind == Profile.Kind.COUNTERS
    other = Profile.Kind.TRACE if is_counted else Profile.Kind.COUNTERS
    rows = KernelStat.objects.filter(family=kernel.family_id, profile__kind=other, profile__gpu=profile.gpu,
                                     profile__status=Profile.Status.READY).select_related("profile").order_by("-profile__created")
    stats = list(rows[:MOST])
    if is_counted:
        whole = _whole(kernel) if stats else None
        return [Beside(stat, kernel, whole, _share_a_shape(stat, kernel)) for stat in stats]
    return [Beside(kernel, stat, _whole(stat), _share_a_shape(kernel, stat)) for stat in stats]


def _share_a_shape(timed: KernelStat, counted: KernelStat) -> bool:
    reports = [FamilyCounters(0, "", LaunchShape(row.grid, row.block, row.flop), float(row.total_ns), row.roof_pct,
                              launches=row.launches) for row in counted.shapes.all()]
    return any(is_same_shape(FamilyTime(0, "", LaunchShape(row.grid, row.block, row.flop), timed.category, float(row.total_ns),
                                        row.launches), report) for row in timed.shapes.all() for report in reports)


def _whole(kernel: KernelStat) -> LaunchFacts | None:
    return counters.combine_launches([counters.from_json(row.facts) for row in kernel.counter_launches.filter(incomplete="")])


# ---- what the page of a kernel shows ----

UNITS = {"smem_static_bytes": "B", "smem_dynamic_bytes": "B", "smem_driver_bytes": "B", "smem_config_bytes": "B",
         "stack_bytes": "B"}


class KernelPage:
    """A kernel, of all its launches together or of `?launch=INDEX`; each part is computed when it is first asked for, once.

    `whole` is None where nothing was counted (a trace); the parts that are made of counters are then not to be asked for.
    """

    def __init__(self, kernel: KernelStat, params: Mapping[str, str]) -> None:
        self.kernel, self.profile = kernel, kernel.profile
        self._params = params

    def context(self) -> dict[str, Any]:
        """Return every part under its name, as a template calls it when it comes to it."""
        getters: dict[str, Callable[[], Any]] = {
            name: partial(getattr, self, name) for name, value in vars(KernelPage).items()
            if isinstance(value, cached_property) and not name.startswith("_")}
        return {"kernel": self.kernel, "profile": self.profile} | getters

    # which launches

    @cached_property
    def launches(self) -> list[LaunchCounters]:
        return list(self.kernel.counter_launches.defer("rules"))

    @cached_property
    def known(self) -> list[LaunchFacts]:
        """What was counted of each complete launch."""
        return [counters.from_json(row.facts) for row in self.launches if not row.incomplete]

    @cached_property
    def _asked(self) -> LaunchCounters | None:
        return parts.chosen_launch(self.launches, self._params) if "launch" in self._params else None

    @cached_property
    def single(self) -> bool:
        return self._asked is not None

    @cached_property
    def launch(self) -> LaunchCounters | None:
        """The one that is asked for, else the longest: the parts that are of one launch are of this one."""
        return self._asked or parts.chosen_launch(self.launches, {})

    @cached_property
    def whole(self) -> LaunchFacts | None:
        launch = self.launch
        return counters.combine_launches([facts for facts in self.known
                                          if not self.single or (launch is not None and facts.index == launch.index)])

    @cached_property
    def longest(self) -> int | None:
        return self.whole.index if self.whole else None

    @cached_property
    def version(self) -> tuple[Any, ...]:
        """What names everything that a figure of this page is made of."""
        return ("kernel", self.kernel.pk, self.profile.sha256, self.kernel.total_ns, self.launch.index if self.launch else None,
                self.single)

    # summary

    @cached_property
    def operator(self) -> str:
        return tuned_operator(self.kernel.name)

    @cached_property
    def elsewhere(self) -> list[KernelStat]:
        return _elsewhere(self.kernel)

    @cached_property
    def beside(self) -> list[Beside]:
        return beside(self.kernel)

    @cached_property
    def calculated_pct(self) -> float | None:
        occupancy_pct: float | None = (self.profile.summary.get("calculated_occupancy") or {}).get(self.kernel.name)
        return occupancy_pct

    @cached_property
    def rules(self) -> list[dict[str, Any]]:
        rows = self.kernel.counter_launches.filter(incomplete="").only("duration_ns", "rules", "kernel_id")
        return rule_rows(rows, self.kernel.total_ns, self.known)

    @cached_property
    def leading_rules(self) -> list[dict[str, Any]]:
        return [rule for rule in self.rules if not rule["left_out"]][:LEADING]

    @cached_property
    def sol(self) -> list[dict[str, Any]]:
        return _sol(self._whole)

    @cached_property
    def judged(self) -> list[Any]:
        return judge(self._whole)

    @cached_property
    def headroom(self) -> Headroom | None:
        return headroom(self._whole, self._whole.point.duration_ns or 0.0)

    @cached_property
    def work(self) -> list[dict[str, Any]]:
        return _work(self._whole)

    @cached_property
    def thresholds(self) -> Mapping[str, float]:
        return counters.THRESHOLDS

    @cached_property
    def _measured(self) -> list[MeasuredCeilings]:
        return measured_gpus()

    @cached_property
    def measured_version(self) -> tuple[Any, ...]:
        return tuple(sorted((device, source.label, source.url) for device, source in by_device(self.known, self._measured).items()))

    @cached_property
    def points(self) -> list[dict[str, Any]]:
        return [point_of(self.kernel, [facts], f"#{facts.index}", self.profile, self.profile.name, self._measured)
                for facts in self.known]

    @cached_property
    def ceilings(self) -> list[dict[str, Any]]:
        return [ceiling.as_json() for ceiling in ceilings(self.known, by_device(self.known, self._measured))]

    @cached_property
    def ladder(self) -> list[dict[str, Any]]:
        return [asdict(rung) for rung in rungs(self.known, self._measured)]

    # one launch, taken apart

    @cached_property
    def _taken_apart(self) -> tuple[Anatomy, dict[str, str]]:
        return parts.anatomy_of(self.profile, self._launch.index)

    @cached_property
    def anatomy(self) -> Anatomy:
        return self._taken_apart[0]

    @cached_property
    def say(self) -> Mapping[str, Any]:
        return {name: partial(self.anatomy.sentence, name) for name in SAYS}

    @cached_property
    def sides(self) -> list[dict[str, Any]]:
        return parts.side_rows(self.anatomy)

    @cached_property
    def memory_tables(self) -> list[dict[str, Any]]:
        return parts.memory_rows(self.anatomy)

    @cached_property
    def opcodes(self) -> Sequence[Any]:
        return self.anatomy.mix.opcodes[:parts.SHOWN_OPCODES] if self.anatomy.mix else []

    @cached_property
    def more_opcodes(self) -> Sequence[Any]:
        return self.anatomy.mix.opcodes[parts.SHOWN_OPCODES:] if self.anatomy.mix else []

    @cached_property
    def issue_steps(self) -> list[dict[str, Any]]:
        return parts.steps(self.anatomy)

    @cached_property
    def waves(self) -> dict[str, Any] | None:
        return parts.wave_bars(self._launch)

    @cached_property
    def next_step(self) -> str:
        """What the next block per SM takes."""
        return next_step(question_of(self._launch, self.kernel))

    @cached_property
    def shares(self) -> list[dict[str, Any]]:
        return [{"share": share, "active_pct": share_pct(share.average, share.elapsed)}
                for share in self.anatomy.shares]

    @cached_property
    def detail_sections(self) -> list[dict[str, Any]]:
        return parts.section_rows(*self._taken_apart)

    # warps and launches

    @cached_property
    def limits(self) -> list[dict[str, Any]]:
        return _limits(self._whole)

    @cached_property
    def limiter(self) -> str:
        return limiter_words(self._whole.occupancy.limiters)

    @cached_property
    def stalls(self) -> list[dict[str, Any]]:
        return _stalls(self._whole)

    @cached_property
    def parameters(self) -> list[dict[str, Any]]:
        return _parameters(self.whole) if self.whole else []

    @cached_property
    def same_shape(self) -> bool:
        return len({(str(facts.grid), str(facts.block)) for facts in self.known}) == 1

    @property
    def _whole(self) -> LaunchFacts:
        if self.whole is None:
            raise ValueError("nothing was counted of this kernel")
        return self.whole

    @property
    def _launch(self) -> LaunchCounters:
        if self.launch is None:
            raise ValueError("no launch of this kernel was measured")
        return self.launch


def _elsewhere(kernel: KernelStat) -> list[KernelStat]:
    """The same short name in other profiles, those with counters first: where else to look."""
    others = KernelStat.objects.filter(short_name=kernel.short_name).exclude(profile=kernel.profile)
    ready = others.filter(profile__status=Profile.Status.READY).select_related("profile").order_by("-profile__created")[:20]
    return sorted(ready, key=lambda each: each.profile.kind != Profile.Kind.COUNTERS)[:8]


def _sol(whole: LaunchFacts) -> list[dict[str, Any]]:
    """Speed-of-light bars: share of peak, with what the share stands for."""
    point, sol = whole.point, whole.sol
    return [
        {"label": "Compute (SM)", "pct": sol.sm_pct, "css": "compute", "metric": "sm__throughput", "rate": point.flop_s,
         "unit": "FLOP/s"},
        {"label": "Memory", "pct": sol.memory_pct, "css": "memory", "metric": "gpu__compute_memory_throughput"},
        {"label": "DRAM", "pct": sol.dram_pct, "css": "memory", "metric": "gpu__dram_throughput", "rate": point.dram_bytes_s,
         "unit": "B/s", "peak": point.dram_roof},
        {"label": "L2", "pct": sol.l2_pct, "css": "memory", "metric": "lts__throughput"},
        {"label": "L1 / TEX", "pct": sol.l1_pct, "css": "memory", "metric": "l1tex__throughput"},
    ]


def _limits(whole: LaunchFacts) -> list[dict[str, Any]]:
    occupancy = whole.occupancy
    return [{"name": LIMITER_WORDS.get(name, name), "blocks": blocks, "limits": name in occupancy.limiters}
            for name, blocks in sorted(occupancy.limits.items(), key=lambda pair: pair[1])]


def _stalls(whole: LaunchFacts) -> list[dict[str, Any]]:
    total = sum(whole.samples.values())
    return [{
        "reason": stall.reason, "cycles": stall.cycles, "share_pct": stall.share_pct, "known": stalls.explain(stall.reason),
        "samples_pct": 100.0 * whole.samples[stall.reason] / total if total and stall.reason in whole.samples else None,
        "look": [(anchor, stalls.PLACES[anchor]) for anchor in stalls.LOOK.get(stall.reason, ())],
    } for stall in whole.stalls if stall.share_pct > 0]


def _parameters(whole: LaunchFacts) -> list[dict[str, Any]]:
    return [{"label": label, "value": whole.launch[key], "unit": UNITS.get(key, ""), "metric": metric,
             "is_number": isinstance(whole.launch[key], int | float), "text": _parameter_text(key, whole.launch[key])}
            for key, (metric, label) in LAUNCH_PARAMETERS.items() if key in whole.launch]


def _parameter_text(key: str, value: float | str) -> str:
    """Of what has a form of its own: waves, as everywhere."""
    return waves_text(value) if key == "waves_per_sm" and isinstance(value, int | float) else ""


def _work(whole: LaunchFacts) -> list[dict[str, Any]]:
    return [{"name": gpus.PRECISIONS.get(precision, precision), "flop": flop, "peak": whole.roofs.compute.get(precision),
             "source": whole.roofs.source.get(precision, "")}
            for precision, flop in sorted(whole.point.by_precision.items(), key=lambda pair: -pair[1])]
