"""Reads about counters: the kernel page, the roofline with its dots, the launches of a report. Pages and API share them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from django.db.models import QuerySet

from profiles.analysis.core import gpus
from profiles.analysis.core.result import SEVERITIES
from profiles.analysis.core.tunable import tuned_operator
from profiles.analysis.kernel import counters, rules, stalls
from profiles.analysis.kernel.advising.advice import headroom
from profiles.analysis.kernel.advising.judged import judge
from profiles.analysis.kernel.ceilings import ceilings
from profiles.analysis.kernel.counters import LAUNCH_PARAMETERS, LaunchFacts, limiter_words
from profiles.analysis.kernel.occupancy import LIMITER_WORDS, waves_text
from profiles.ceilings.selectors import measured_gpus
from profiles.counters.anatomy_selectors import anatomy_page, chosen_launch
from profiles.counters.beside import beside
from profiles.models import Finding, KernelStat, LaunchCounters, Profile
from profiles.rooflines.selectors import by_device, point_of, rungs
from profiles.store.counters import metrics_of

UNITS = {"smem_static_bytes": "B", "smem_dynamic_bytes": "B", "smem_driver_bytes": "B", "smem_config_bytes": "B",
         "stack_bytes": "B"}


def _facts(rows: Sequence[LaunchCounters]) -> list[LaunchFacts]:
    return [counters.from_json(row.facts) for row in rows]


def launch_rows(profile: Profile) -> QuerySet[LaunchCounters]:
    """The launches of a report in their order, for the table on its page."""
    return profile.counter_launches.select_related("kernel").defer("rules")


def kernel_page(kernel: KernelStat, params: Mapping[str, str]) -> dict[str, Any]:
    """Return everything the kernel page shows.

    Of all launches together, or of `?launch=INDEX`. `whole` is None where nothing was counted (a trace).
    """
    rows = list(kernel.counter_launches.all())
    known = _facts([row for row in rows if not row.incomplete])
    asked = chosen_launch(rows, params) if "launch" in params else None
    one, single = asked or chosen_launch(rows, {}), asked is not None
    whole = counters.combine_launches([facts for facts in known if not single or (one is not None and facts.index == one.index)])
    page: dict[str, Any] = {
        "kernel": kernel, "profile": kernel.profile, "launches": rows, "whole": whole,
        "operator": tuned_operator(kernel.name), "elsewhere": _elsewhere(kernel), "findings": _findings(kernel),
        "beside": beside(kernel),
        "calculated_pct": (kernel.profile.summary.get("calculated_occupancy") or {}).get(kernel.name),
        "version": ("kernel", kernel.pk, kernel.profile.sha256, kernel.total_ns, one.index if one else None, single),
    }
    if whole is None or one is None:
        return page
    page |= anatomy_page(kernel, one) | {"single": single}
    measured = measured_gpus()
    return page | {
        "longest": whole.index, "sol": _sol(whole), "judged": judge(whole),
        "headroom": headroom(whole, whole.point.duration_ns or 0.0),
        "limits": _limits(whole), "limiter": limiter_words(whole.occupancy),
        "stalls": _stalls(whole), "parameters": _parameters(whole), "rules": rule_rows([row for row in rows if not row.incomplete]),
        "points": [point_of(kernel, [facts], f"#{facts.index}", kernel.profile, kernel.profile.name, measured) for facts in known],
        "ladder": [asdict(rung) for rung in rungs(known, measured)],
        "ceilings": [each.as_json() for each in ceilings(known, by_device(known, measured))], "thresholds": counters.THRESHOLDS,
        "work": _work(whole), "same_shape": len({(str(f.grid), str(f.block)) for f in known}) == 1,
    }


def _findings(kernel: KernelStat) -> list[dict[str, Any]]:
    """Findings about this kernel, without its name in front: the page has it already."""
    return [{"title": finding.title.removeprefix(f"{kernel.short_name}: "), "advice": finding.advice, "worth_ns": finding.worth_ns,
             "severity": finding.severity} for finding in sorted(kernel.findings.all(), key=_rank)]


def _rank(finding: Finding) -> tuple[int, float]:
    return SEVERITIES.index(finding.severity), -(finding.worth_ns or 0.0)


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


def rule_rows(rows: Iterable[LaunchCounters]) -> list[dict[str, Any]]:
    """Return NVIDIA's rules of these launches, the largest estimate first."""
    return [_rule(rule) for rule in rules.merge_launch_rules([(row.duration_ns, row.rules) for row in rows])]


def _rule(rule: Mapping[str, Any]) -> dict[str, Any]:
    return {**rule, "pieces": rules.pieces(rule["text"]),
            "focus": [{**each, "info": rules.plain(each.get("info") or "")} for each in rule["focus"]]}


def counters_json(profile: Profile, params: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Facts and rules of every launch; with `?launch=INDEX` every raw metric of that one."""
    asked = (params or {}).get("launch", "")
    if asked.isdecimal() and len(asked) < 10:
        return {"profile": profile.pk, "launch": int(asked), "metrics": metrics_of(profile.pk, int(asked))}
    return {"profile": profile.pk, "launches": [{
        "index": row.index, "kernel_id": row.kernel_id, "kernel": row.kernel.name, "duration_ns": row.duration_ns,
        "grid": row.grid, "block": row.block, "incomplete": row.incomplete, "facts": row.facts, "rules": row.rules,
    } for row in profile.counter_launches.select_related("kernel")]}
