"""Is a candidate right, and does it do its work where it is timed? Each check returns what it saw; nothing here decides."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch

from tuner.candidates.judge.loading import Launch, Own
from tuner.candidates.judge.taken import Taken
from tuner.tuning.measure.accuracy import Verdict, compare_output
from tuner.tuning.trial import Config

DELAY_CYCLES = 20_000_000    # about 10 ms: longer than any launch needs that does not wait for its inputs
REPEATS = 3                  # launches on the same inputs, compared bit by bit
BURST_MS, BURST_MOST, BURST_LEAST = 4.0, 200, 10
SLACK_MS, SLACK_SHARE = 0.1, 0.1       # what may be left after the last event, above what the operator's own launch leaves


def check_launch(own: Own, launch: Launch, config: Config, seeds: tuple[int, int], tolerance: float,
                 taken: Taken) -> dict[str, Any]:
    """Return what one launch on fresh inputs into a poisoned output did.

    {"seed", "right", "message", "relative_error", "worst_error", "changed": names of inputs that it altered, "late": why its work
    was not done in the order of the stream, or ""}; `seeds`: of the inputs, and of those that lie there before

    The inputs are drawn, and the output poisoned, on the current stream behind a delay: what does not wait for that stream reads
    older inputs. What the stream copies after the launch is compared: what another stream still computes is not in it.
    """
    problem, (seed, other_seed) = own.problem, seeds
    problem.refill(seed)
    reference = problem.reference()
    before = {name: value.clone() for name, value in own.left_alone.items()}
    problem.refill(other_seed)
    snapshot = torch.empty_like(problem.out)
    taken.synchronize()
    stream = taken.stream()
    taken.delay(DELAY_CYCLES)
    problem.refill(seed)
    problem.out.fill_(math.nan)
    launch(config)
    moved = taken.stream() != stream
    snapshot.copy_(problem.out)
    taken.synchronize()
    verdict = compare_output(snapshot, reference, tolerance)
    late = "it changed the current stream" if moved else ""
    if not verdict.right and not late and compare_output(problem.out, reference, tolerance).right:
        late = "its output was not there when its stream came to it: work is left on another stream"
    changed = [name for name, value in own.left_alone.items() if not same_bits(value, before[name])]
    beyond = own.fences.why_broken()
    if not beyond and not verdict.right and not late:
        beyond = own.fences.why_read(lambda: launch(config), problem.out, lambda: problem.refill(seed))
        taken.synchronize()
    wrong = late or "; ".join(filter(None, (beyond, "" if verdict.right else verdict.message)))
    return {"seed": seed, "right": not wrong, "message": wrong,
            **errors_of(verdict), "changed": changed, "late": late}


def errors_of(verdict: Verdict) -> dict[str, float | None]:
    """Return the errors as numbers that JSON has; null where an element is not finite."""
    return {"relative_error": verdict.relative_error if math.isfinite(verdict.relative_error) else None,
            "worst_error": verdict.worst if math.isfinite(verdict.worst) else None}


def same_bits(tensor: torch.Tensor, other: torch.Tensor) -> bool:
    """Return whether two tensors hold the same bits, NaN included."""
    return bool(torch.equal(_bytes(tensor), _bytes(other)))


def _bytes(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.contiguous().view(-1).view(torch.uint8)


def check_repeats(own: Own, launch: Launch, config: Config, seed: int, taken: Taken) -> dict[str, Any]:
    """Return {"launches", "differing"}: elements that were not the same bits in every launch on the same inputs."""
    problem = own.problem
    first: torch.Tensor | None = None
    differing = 0
    for _ in range(REPEATS):
        problem.refill(seed)
        problem.out.fill_(math.nan)
        launch(config)
        taken.synchronize()
        if first is None:
            first = problem.out.clone()
        elif not same_bits(first, problem.out):
            differing = max(differing, int((first.float() != problem.out.float()).sum().item()))
    return {"launches": REPEATS, "differing": differing}


def check_streams(own: Own, launch: Launch, config: Config, own_config: Config, taken: Taken) -> dict[str, Any]:
    """Return {"event_ms", "left_ms", "own_left_ms", "launches", "late"}: what the device did after the last event of a burst.

    The same burst of the operator's own launch says what a host needs to see that. {} without a GPU.
    """
    if not taken.is_gpu:
        return {}
    left_ms, event_ms, launches = _burst(lambda: launch(config), taken)
    own_left_ms, _, _ = _burst(lambda: own.problem.launch(own_config), taken)
    return {"launches": launches, "event_ms": round(event_ms, 4), "left_ms": round(left_ms, 4),
            "own_left_ms": round(own_left_ms, 4), "late": left_ms > own_left_ms + SLACK_MS + SLACK_SHARE * event_ms}


def _burst(work: Callable[[], Any], taken: Taken) -> tuple[float, float, int]:
    work()
    taken.synchronize()
    began_s = taken.now_s()
    work()
    taken.synchronize()
    once_ms = (taken.now_s() - began_s) * 1000
    launches = max(BURST_LEAST, min(BURST_MOST, math.ceil(BURST_MS / max(once_ms, 1e-3))))
    best: tuple[float, float] | None = None
    for _ in range(REPEATS):                        # the least: a host that was busy elsewhere says too much
        start, end = taken.event(enable_timing=True), taken.event(enable_timing=True)
        taken.record(start)
        for _ in range(launches):
            work()
        taken.record(end)
        taken.wait_for_event(end)
        seen_s = taken.now_s()
        taken.synchronize()
        left_ms = (taken.now_s() - seen_s) * 1000
        if best is None or left_ms < best[0]:
            best = left_ms, taken.elapsed_ms(start, end)
    assert best is not None
    return best[0], best[1], launches
