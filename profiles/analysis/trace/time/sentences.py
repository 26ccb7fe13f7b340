"""What the topic "time" says in words: its answer and its findings, with the numbers they rest on."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from profiles.analysis.core.frame import Frame
from profiles.analysis.core.result import Finding
from profiles.analysis.core.sentences import pct_text, plural, time_text
from profiles.analysis.trace.account.account import account_of
from profiles.analysis.trace.account.causes import CAUSES
from profiles.analysis.trace.account.words import group_text
from profiles.analysis.trace.time.classes import PARTS, Verdict
from profiles.analysis.trace.time.facts import StepTime, TimeFacts

DATA_PCT = 10.0                 # of the wall time: from here on data loading is a finding, twice that a severe one
TRANSFER_PCT = 10.0             # the same of exposed copies
SLOW_STEP = 1.5                 # times the median of the steps that count
MOST_SLOW = 3


def no_work_text(frame: Frame) -> str:
    """Why there is no time of a GPU to divide."""
    what = "No GPU work in this trace" if frame.rows else "This trace holds no slices"
    return f"{what}: record kernels and copies too (`ProfilerActivity.CUDA`, `nsys profile -t cuda`)."


def answer(facts: TimeFacts) -> str:
    whole, of = facts.whole
    return f"{_bottleneck_text(whole)} {_busy_text(facts)}{_scope_text(facts, of)}"


def _bottleneck_text(verdict: Verdict) -> str:
    if not verdict.bound:
        return "No time passes between the first and the last GPU work."
    by_time = sorted(verdict.classes, key=lambda name: -verdict.classes[name])
    others = ", ".join(f"{name} {pct_text(verdict.pct(name))}" for name in by_time
                       if name != verdict.bound and verdict.classes[name])
    rest = f"; {others}" if others else ""
    if verdict.bound == "unknown":
        return f"What holds the GPU back is not known: kernels of unknown kind take {pct_text(verdict.pct('unknown'))}{rest}."
    if verdict.bound != "overhead":
        what = "arithmetic" if verdict.bound == "compute" else "memory traffic"
        return f"{verdict.bound.capitalize()} holds the GPU back: {what} takes {pct_text(verdict.pct(verdict.bound))}{rest}."
    return f"Overhead holds the GPU back: {pct_text(verdict.pct('overhead'))} of its time{rest}."      # of what: the account


def _busy_text(facts: TimeFacts) -> str:
    busy_pct = 100 * sum(each.work.busy.length_ns for each in facts.devices) / (facts.wall_ns * len(facts.devices))
    who = facts.devices[0].work.label if len(facts.devices) == 1 else f"{plural(len(facts.devices), 'GPU')} on average"
    return f"{who} {'is' if len(facts.devices) == 1 else 'are'} busy {pct_text(busy_pct)} of {time_text(facts.wall_ns)}"


def _scope_text(facts: TimeFacts, of: str) -> str:
    if of == "span":
        return "; the classes are of the time from each GPU's first to its last work."
    steps = [step for step in facts.steps if step.counted.counts]
    mean = time_text(float(np.mean([step.dur_ns for step in steps])))
    kind = "repetition" if facts.marked.source == "detected" else "step"
    left = [step for step in facts.steps if not step.counted.counts]
    whys = " and ".join(dict.fromkeys(step.counted.why for step in left))
    out = f" and {plural(len(left), kind)} of {whys} left out" if left else ""
    return f"; the classes are of {plural(len(steps), kind)} of {mean} on average{out}."


def findings(facts: TimeFacts) -> list[Finding]:
    return [*_find_data(facts), *_find_transfers(facts), *_find_left_out(facts), *_find_slow_steps(facts)]


def _find_data(facts: TimeFacts) -> Iterator[Finding]:
    """As the account has it: what it costs all GPUs, also those that wait for the one that loads."""
    account = account_of(facts.frame)
    group = next((each for each in account.groups if each.cause == "data_loading"), None)
    pct = 100 * group.wall_ns / max(1, account.wall_ns) if group else 0.0
    if group and pct >= DATA_PCT:
        yield Finding(
            "data_loading", "high" if pct >= 2 * DATA_PCT else "medium", group_text(account, group), CAUSES[group.cause].advice,
            {"data_loading_ns": group.wall_ns, "of_ns": account.wall_ns, "data_loading_pct": pct},
            worth_ns=float(group.gain_ns))


def _find_transfers(facts: TimeFacts) -> Iterator[Finding]:
    whole, _ = facts.whole
    pct = whole.part_pct("transfers")
    if pct >= TRANSFER_PCT:
        yield Finding(
            "exposed_transfers", "high" if pct >= 2 * TRANSFER_PCT else "medium",
            f"Copies keep the GPU from computing {pct_text(pct)} of its time",
            "Copy from pinned memory on a stream of its own while the step before computes (`pin_memory()`, "
            "`to(device, non_blocking=True)`), copy less, or keep the data on the GPU.",
            {"transfers_ns": whole.parts["transfers"], "of_ns": whole.total_ns, "transfers_pct": pct},
            worth_ns=whole.parts["transfers"] / len(facts.devices))


def _find_left_out(facts: TimeFacts) -> Iterator[Finding]:
    left = [step for step in facts.steps if not step.counted.counts]
    if left and len(left) < len(facts.steps):
        typical = _median(facts)
        whys = " and ".join(dict.fromkeys(step.counted.why for step in left))
        names = ", ".join(f"`{step.span.name[:60].replace('`', chr(39))}`" for step in left[:MOST_SLOW])
        yield Finding(
            "warm_up", "info", f"{plural(len(left), 'step')} of {whys} left out of averages: {names}"
            + (" and others" if len(left) > MOST_SLOW else ""),
            "Nothing to do for a long run. To measure steady steps record later (`schedule(wait=…, warmup=…)`, "
            "`nsys profile --delay`).",
            {"steps": len(left), "longest_ns": max(step.dur_ns for step in left), "typical_ns": typical,
             "compiling_ns": sum(step.counted.compiling_ns for step in left)})


def _median(facts: TimeFacts) -> float:
    return float(np.median([step.dur_ns for step in facts.steps if step.counted.counts]))


def _find_slow_steps(facts: TimeFacts) -> Iterator[Finding]:
    """Steps that count and take much longer than the others: which part grew the most against its median."""
    counts = [step for step in facts.steps if step.counted.counts]
    if len(counts) < 4 or facts.marked.source == "detected":
        return
    typical = _median(facts)
    usual = {name: float(np.median([step.parts[name] for step in counts])) for name in PARTS}
    slow = sorted((step for step in counts if step.dur_ns >= SLOW_STEP * typical), key=lambda step: -step.dur_ns)
    for step in slow[:MOST_SLOW]:
        yield _slow_step_finding(step, typical, usual)


def _slow_step_finding(step: StepTime, typical: float, usual: dict[str, float]) -> Finding:
    grown = max(PARTS, key=lambda name: step.parts[name] - usual[name])
    more = step.parts[grown] - usual[grown]
    name = step.span.name[:60].replace("`", "'")
    return Finding(
        "slow_step", "medium", f"`{name}` takes {step.dur_ns / typical:.1f} times the typical step; "
        f"{time_text(more)} of the {time_text(step.dur_ns - typical)} more is {PARTS[grown].label}",
        "Open the step in the timeline beside a typical one: a garbage collection, a checkpoint, an evaluation or another "
        "process on the host or GPU.",
        {"start_ns": step.span.start_ns, "end_ns": step.span.end_ns, "step_ns": step.dur_ns, "typical_ns": typical,
         "grown_part": grown, "grown_ns": more}, worth_ns=float(step.dur_ns - typical))
