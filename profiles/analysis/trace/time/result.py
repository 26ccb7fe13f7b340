"""The topic "time" as one result: what a page, a program and a command say of where the time of a trace went."""

from __future__ import annotations

from typing import Any

import numpy as np

from profiles.analysis.core.frame import Frame
from profiles.analysis.core.result import Result
from profiles.analysis.core.sentences import share_pct
from profiles.analysis.trace.time import tiling
from profiles.analysis.trace.time.classes import KERNEL_PARTS, PARTS, REGIMES, SMALL_NS, Verdict, kind_of, verdict
from profiles.analysis.trace.time.facts import DeviceTime, StepTime, TimeFacts, answer, findings, no_work_text
from profiles.analysis.trace.time.idle import CAUSES, innermost, largest_activities
from profiles.analysis.trace.time.ranges import LABELS
from profiles.analysis.trace.time.steps import COMPILED_PCT, SLOWER
from profiles.analysis.trace.time.tiling import PARTS as WORK
from profiles.ingest.arrays import stable_order
from profiles.ingest.naming.names import short_name
from profiles.ingest.trace import SummaryColumn, SummaryTable, summary_columns, with_rows

# The numbers of the topic "time", as JSON: everything that its page draws.

MOST_DRAWN_STEPS = 400                # that are drawn and listed; what counts counts them all
MOST_EVIDENCE = 3               # kernels and names per class and cause


def numbers(facts: TimeFacts) -> dict[str, Any]:
    whole, of = facts.whole
    phases, host = facts.phases
    counted = [step for step in facts.steps if step.counted.counts]
    dur = np.array([step.dur_ns for step in counted], np.float64)
    return {
        "start_ns": facts.begin_ns, "wall_ns": facts.wall_ns, "of": of, "classes": class_numbers(whole),
        "evidence": evidence(facts),
        "devices": [device(gpu, facts.wall_ns) for gpu in facts.devices],
        "steps": {
            "source": facts.marked.source, "how": facts.marked.how, "total": len(facts.steps), "counted": len(counted),
            "mean_ns": float(dur.mean()) if dur.size else None, "min_ns": float(dur.min()) if dur.size else None,
            "max_ns": float(dur.max()) if dur.size else None,
            "mean_parts_ns": {name: float(np.mean([step.parts[name] for step in counted])) if counted else None for name in PARTS},
            "kernels": int(facts.frame.kernels.size), "kernels_elsewhere": int(facts.steps_of_kernels.elsewhere.size),
            "outside": kernels_of_step(facts, len(facts.steps)) if facts.steps else None,
            "rows": [{**step_numbers(step), **kernels_of_step(facts, number)}
                     for number, step in enumerate(facts.steps[:MOST_DRAWN_STEPS])]},
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
        mine = [kernel for kernel in facts.kernels if kernel.regime == regime and kernel.counted_ns]
        mine.sort(key=lambda each: -each.counted_ns)
        kernels[regime] = [{"name": short_name(kernel.name), "full": kernel.name[:NAME_CHARS], "ns": kernel.counted_ns}
                           for kernel in mine[:MOST_EVIDENCE]]
    small = [kernel for kernel in facts.kernels if kernel.small_ns]
    host: dict[str, dict[str, int]] = {}
    for _, activities in facts.activities:
        for activity in activities:
            names = host.setdefault(activity.cause, {})
            names[activity.name] = names.get(activity.name, 0) + activity.counted_ns
    return {"kernels": kernels, "small_kernels": len(small), "small_kernel_ns": sum(kernel.small_ns for kernel in small),
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


# The tables of the topic "time".

Row = list[Any]
MOST_STEPS = 2_000
MOST_GAPS = 30
MOST_KERNELS = 100
NAME_CHARS = 200


def tables(facts: TimeFacts) -> list[SummaryTable]:
    tables = [device_table(facts), activity_table(facts), gap_table(facts), step_table(facts), phase_table(facts),
             range_table(facts), kernel_table(facts)]
    return with_rows(tables)


def device_table(facts: TimeFacts) -> SummaryTable:
    rows: list[Row] = []
    gpus = np.unique(tiling.gpu_numbers(facts.frame)).size
    left = f" The first {len(facts.devices)} of {gpus:,} GPUs: the others are in no figure." if gpus > len(facts.devices) else ""
    for gpu in facts.devices:
        said = device(gpu, facts.wall_ns)
        rows.append([said["label"], *(said[key] for key in ("wall_ns", "compute_ns", "communication_ns", "memory_ns", "idle_ns")),
                     *said["idle_causes_ns"].values(), *(said[key] for key in (
                         "communication_overlapped_ns", "memory_overlapped_ns", "span_ns", "idle_in_span_ns"))])
    return SummaryTable(
        "Time of each GPU",
        [*summary_columns("GPU: text | wall: ns | compute: ns | communication, exposed: ns | memory, exposed: ns | idle: ns"),
         *(SummaryColumn(f"idle: {label}", "ns") for label, _ in CAUSES.values()),
         *summary_columns("communication, overlapped: ns | memory, overlapped: ns | first to last work: ns | "
                          "idle between work: ns")], rows,
        "Compute, exposed communication, exposed memory traffic and idle add up to wall time exactly; so do the causes to idle. "
        "Overlapped time runs behind compute (or behind communication) and is not part of the sum. Each GPU is seen by itself: a "
        "wait for another rank is communication here, and a cause of idle time is what the host was in at that moment. What a "
        "cause costs all GPUs, and what follows from it, is under Causes." + left)


def activity_table(facts: TimeFacts) -> SummaryTable:
    rows: list[Row] = []
    for each, activities in facts.activities:
        idle_ns = facts.wall_ns - each.work.busy.length_ns
        rows += [[each.work.label, CAUSES[one.cause][0], one.name[:NAME_CHARS] or "no slice: code that was not recorded", one.ns,
                  100 * one.ns / idle_ns, one.slices] for one in largest_activities(activities)]
    columns = summary_columns("GPU: text | cause: text | the launching thread was in: text | time: ns | share of idle: pct | "
                              "slices: count")
    return SummaryTable("What the host did while the GPU was idle", columns, rows,
                        "By the innermost slice of the thread that launched what ended the gap; its own time, without what it "
                        "contains. Gaps in which the next work was already launched are not here."
                        + (f" {facts.frame.left_out}." if facts.frame.left_out else ""))


def gap_table(facts: TimeFacts) -> SummaryTable:
    """Return the longest gaps of all GPUs, each with the launching thread's main slice.

    The slice in which it spent the most of the gap.
    """
    frame = facts.frame
    gaps: list[tuple[int, DeviceTime, int, str]] = []
    for gpu in facts.devices:
        edges = gpu.tiles.of("edges")
        lengths = gpu.idle.gaps.end_ns - gpu.idle.gaps.start_ns
        lengths = np.where(np.isin(gpu.idle.gaps.start_ns, edges.start_ns), 0, lengths)
        longest = stable_order(-lengths)[:MOST_GAPS]
        parts = gpu.tiles.within(gpu.idle.gaps.start_ns[longest], gpu.idle.gaps.end_ns[longest])
        causes = [list(PARTS)[index] for index in np.argmax(parts, axis=0).tolist()]
        gaps += zip(lengths[longest].tolist(), [gpu] * longest.size, longest.tolist(), causes, strict=True)
    gaps.sort(key=lambda gap: -gap[0])
    rows: list[Row] = []
    for ns, gpu, i, cause in (gap for gap in gaps[:MOST_GAPS] if gap[0]):
        start, end = int(gpu.idle.gaps.start_ns[i]), int(gpu.idle.gaps.end_ns[i])
        after, thread = int(gpu.idle.after[i]), int(gpu.idle.thread[i])
        row, own = innermost(frame, thread, start, end) if thread >= 0 else (-1, 0)
        around = [frame.text(above) for above in frame.path(row)[1:]] if row >= 0 else []
        rows.append([gpu.work.label, f"{start}-{end}", ns, CAUSES[cause][0], short_name(frame.text(after)) if after >= 0 else None,
                     frame.text(row)[:NAME_CHARS] if row >= 0 else None, own if row >= 0 else None,
                     " ‹ ".join(around[:4])[:NAME_CHARS] or None])
    columns = summary_columns("GPU: text | when: window | gap: ns | most of it: text | ended by: text | "
                              "the host was in: text | for: ns | called by: text")
    return SummaryTable("Longest gaps", columns, rows, "Each opens in the timeline. The host's slice is the one with the most time "
                        "of its own in the gap, on the thread that launched what ended it.")


def step_table(facts: TimeFacts) -> SummaryTable:
    rows: list[Row] = []
    launched, ran = facts.kernel_steps
    for number, step in enumerate(facts.steps[:MOST_STEPS]):
        of_step = verdict({name: round(ns) for name, ns in step.parts.items()})
        rows.append([step.span.name[:NAME_CHARS], step.span.rank or None, f"{step.span.start_ns}-{step.span.end_ns}",
                     "yes" if step.counted.counts else f"no: {step.counted.why}", step.dur_ns,
                     *((None, None) if launched is None else launched[:, number].tolist()), *ran[:, number].tolist(),
                     of_step.bound or None,
                     *(of_step.pct(name) for name in ("compute", "memory", "overhead", "unknown")), *step.parts.values()])
    columns = [*summary_columns("step: text | rank: text | when: window | counts: text | duration: ns | "
                                "kernels launched in it: count | their time: ns | kernels that began in it: count | "
                                "time of these: ns | bound by: text"),
               *(SummaryColumn(name, "pct") for name in ("compute", "memory", "overhead", "unknown")),
               *(SummaryColumn(part.label, "ns") for part in PARTS.values())]
    left = len(facts.steps) - len(rows)
    note = f"{facts.marked.how[0].upper()}{facts.marked.how[1:]}. The parts of a step add up to its duration"
    note += "; of several GPUs they are the mean." if any(step.gpus > 1 for step in facts.steps) else "."
    note += (" A kernel that was launched in one step may run in the next: both are counted. The parts are of what ran within the "
             "step.")
    note += " Steps that do not count are in no average." if any(not step.counted.counts for step in facts.steps) else ""
    return SummaryTable("Steps", columns, rows, note + (f" {left:,} more steps count too and are not listed." if left else ""))


def phase_table(facts: TimeFacts) -> SummaryTable:
    phases, host = facts.phases
    rows: list[Row] = []
    wall_ns = facts.wall_ns * len(facts.devices)
    for phase, of_phase in phases.items():
        phase_ns = sum(of_phase.parts.values())
        if phase_ns:
            rows.append([LABELS[phase], phase_ns, 100 * phase_ns / wall_ns, host.get(phase) or None, of_phase.bound or None,
                         sum(of_phase.parts[name] for name in KERNEL_PARTS), sum(of_phase.parts[name] for name in CAUSES),
                         *of_phase.parts.values()])
    columns = [*summary_columns("phase: text | wall: ns | share: pct | host in its ranges: ns | bound by: text | "
                                "compute: ns | idle: ns"),
               *(SummaryColumn(part.label, "ns") for part in PARTS.values())]
    return SummaryTable("Phases", columns, rows,
                        "By who launched the work; a gap is its phase's whose work ended it. The phases of all GPUs add up to "
                        "their wall time. Forward is also what an operator launched in none of the other phases.")


def range_table(facts: TimeFacts) -> SummaryTable:
    gpu_ns = int(facts.frame["dur_ns"][facts.frame.work].sum())
    rows: list[Row] = [[time.name[:NAME_CHARS], time.longest_id, time.ranges, time.gpu_ns,
                        share_pct(time.gpu_ns, gpu_ns), time.projected_ns, time.launches, time.host_ns]
                       for time in facts.ranges]
    columns = summary_columns("range: text | longest: slice | ranges: count | GPU time: ns | share of GPU work: pct | "
                              "projected: ns | launches: count | on the CPU: ns")
    return SummaryTable("Ranges", columns, rows, "GPU time of the work that was launched within (NVTX, record_function), wherever "
                        "it ran; ranges contain each other, so they do not add up. Projected: first start to last end on the GPU.")


def kernel_table(facts: TimeFacts) -> SummaryTable:
    """Return what the classes rest on: every kernel with the regime that it was given."""
    everything = sum(kernel.ns for kernel in facts.kernels)
    rows: list[Row] = []
    for kernel in facts.kernels[:MOST_KERNELS]:
        kind, by_name = kind_of(kernel.name)
        rows.append([short_name(kernel.name), kind, kernel.regime, "name" if by_name == kernel.regime else "shapes of its operator",
                     kernel.launches, kernel.ns, share_pct(kernel.ns, everything), kernel.small_ns])
    columns = summary_columns("kernel: text | what it is: text | limited by: text | told from: text | launches: count | "
                              "time: ns | share of kernels: pct | in launches under 10 µs: ns")
    note = ("A trace has no counters: this is inferred from names, and for matrix products with recorded shapes from FLOP per byte "
            "against the GPU's ridge point. Capture counters to know.")
    left = f" The first {MOST_KERNELS} of {len(facts.kernels):,}." if len(facts.kernels) > MOST_KERNELS else ""
    return SummaryTable("What limits each kernel", columns, rows, note + left)


def time_result(frame: Frame) -> Result:
    """Return where the time went per GPU, step, phase and range, and what holds the GPUs back."""
    facts = TimeFacts(frame)
    if not facts.devices:
        return Result(no_work_text(frame), applies=False)
    return Result(answer(facts), numbers(facts), tables(facts), findings(facts))
