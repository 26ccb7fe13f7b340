"""The numbers of the topic "time", as JSON: everything that its page draws."""

from __future__ import annotations

from typing import Any

import numpy as np

from profiles.analysis.trace.time.classes import KERNEL_PARTS, PARTS, Verdict, verdict
from profiles.analysis.trace.time.facts import DeviceTime, StepTime, TimeFacts
from profiles.analysis.trace.time.idle import CAUSES
from profiles.analysis.trace.time.kinds import REGIMES, SMALL_NS
from profiles.analysis.trace.time.phases import LABELS
from profiles.analysis.trace.time.warmup import COMPILED_PCT, SLOWER
from profiles.analysis.trace.time.work import PARTS as WORK
from profiles.ingest.naming.names import short_name

MOST_STEPS = 400                # that are drawn and listed; what counts counts them all
MOST_EVIDENCE = 3               # kernels and names per class and cause
NAME_CHARS = 200


def numbers(facts: TimeFacts) -> dict[str, Any]:
    whole, of = facts.whole
    phases, host = facts.phases
    counted = [step for step in facts.steps if step.counted.counts]
    dur = np.array([step.dur_ns for step in counted], np.float64)
    return {
        "start_ns": facts.begin_ns, "wall_ns": facts.wall_ns, "of": of, "classes": class_numbers(whole),
        "evidence": evidence(facts),
        "devices": [device(each, facts.wall_ns) for each in facts.devices],
        "steps": {
            "source": facts.marked.source, "how": facts.marked.how, "total": len(facts.steps), "counted": len(counted),
            "mean_ns": float(dur.mean()) if dur.size else None, "min_ns": float(dur.min()) if dur.size else None,
            "max_ns": float(dur.max()) if dur.size else None,
            "mean_parts_ns": {name: float(np.mean([step.parts[name] for step in counted])) if counted else None for name in PARTS},
            "kernels": int(facts.frame.kernels.size), "kernels_elsewhere": int(facts.steps_of_kernels.elsewhere.size),
            "outside": kernels_of_step(facts, len(facts.steps)) if facts.steps else None,
            "rows": [{**step_numbers(step), **kernels_of_step(facts, number)}
                     for number, step in enumerate(facts.steps[:MOST_STEPS])]},
        "phases": [{"phase": phase, "label": LABELS[phase], "host_ns": host.get(phase) or None, **class_numbers(verdict)}
                   for phase, verdict in phases.items() if sum(verdict.parts.values())],
        "limits": {"small_kernel_ns": SMALL_NS, "warm_up_times": SLOWER, "compiled_pct": COMPILED_PCT},
        "parts": {name: {"label": part.label, "of": part.of, "meaning": part.meaning} for name, part in PARTS.items()},
    }


def evidence(facts: TimeFacts) -> dict[str, Any]:
    """Return what the classes rest on, of the time that counts.

    The kernels with the most of it, what the host was in per cause.
    """
    kernels = {}
    for regime in REGIMES:
        mine = [each for each in facts.kernels if each.regime == regime and each.counted_ns]
        mine.sort(key=lambda each: -each.counted_ns)
        kernels[regime] = [{"name": short_name(each.name), "full": each.name[:NAME_CHARS], "ns": each.counted_ns}
                           for each in mine[:MOST_EVIDENCE]]
    small = [each for each in facts.kernels if each.small_ns]
    host: dict[str, dict[str, int]] = {}
    for _, activities in facts.activities:
        for one in activities:
            names = host.setdefault(one.cause, {})
            names[one.name] = names.get(one.name, 0) + one.counted_ns
    return {"kernels": kernels, "small_kernels": len(small), "small_kernel_ns": sum(each.small_ns for each in small),
            "host": {cause: [{"name": name[:NAME_CHARS], "ns": ns} for name, ns in sorted(names.items(), key=lambda pair: -pair[1])
                             if ns][:MOST_EVIDENCE] for cause, names in host.items()}}


def class_numbers(verdict: Verdict) -> dict[str, Any]:
    return {"bound": verdict.bound, "total_ns": sum(verdict.parts.values()), "of_classes_ns": verdict.total_ns,
            "classes_ns": verdict.classes, "parts_ns": verdict.parts}


def device(each: DeviceTime, wall_ns: int) -> dict[str, Any]:
    """compute + communication + memory + idle == wall, exactly, and so do the parts."""
    work, span, parts = each.work, each.work.span, each.tiles.sums()
    busy_ns = work.busy.length_ns
    return {
        "index": work.index, "label": work.label, "name": work.name, "rank": work.rank, "wall_ns": wall_ns,
        "busy_ns": busy_ns, "idle_ns": wall_ns - busy_ns, **{f"{part}_ns": work.exposed[part].length_ns for part in WORK},
        **{f"{part}_overlapped_ns": work.overlapped_ns(part) for part in WORK if part != "compute"},
        "span_ns": span[1] - span[0], "idle_in_span_ns": span[1] - span[0] - busy_ns,
        "idle_causes_ns": {cause: parts[cause] for cause in CAUSES}, "parts_ns": parts}


def kernels_of_step(facts: TimeFacts, number: int) -> dict[str, Any]:
    """Return the kernels of a step in both senses; of the number behind the last, those outside every step."""
    return {name: None if sums is None else {"kernels": int(sums[0, number]), "ns": int(sums[1, number])}
            for name, sums in zip(("launched", "ran"), facts.kernel_steps, strict=True)}


def step_numbers(step: StepTime) -> dict[str, Any]:
    of_step = verdict({name: round(ns) for name, ns in step.parts.items()})
    return {
        "name": step.span.name, "rank": step.span.rank, "start_ns": step.span.start_ns, "end_ns": step.span.end_ns,
        "dur_ns": step.dur_ns, "counts": step.counted.counts, "why": step.counted.why, "bound": of_step.bound,
        "busy_ns": sum(step.parts[name] for name in (*KERNEL_PARTS, "communication", "transfers")), "parts_ns": step.parts}
