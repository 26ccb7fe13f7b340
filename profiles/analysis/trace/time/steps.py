"""The steps of a trace: as the file marks them, else as the repeating sequence of its kernels shows them.

1. `ProfilerStep#N` (torch.profiler);
2. ranges that repeat one after another on one thread under one name but for a number that counts up (NVTX,
   record_function, JAX's `StepTraceAnnotation`): names that say step, iteration or batch first (these may hold any
   numbers), else what covers the most of its thread;
3. from the end of one `Optimizer.step` to the end of the next;
4. detected: the shortest distance P at which the sequence of a GPU's work by name, in order of its launch calls, agrees
   with itself best. Names become random signs and agreement is their autocorrelation (Wiener-Khinchin, by FFT), so the
   search is O(n log n); the best distances are then counted exactly. A step begins where the GPU was idle the longest.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from profiles.analysis.core import intervals
from profiles.analysis.core.columns import NONE
from profiles.analysis.core.digest import STEP
from profiles.analysis.core.frame import ASKED_CHARS, Frame
from profiles.analysis.trace.time.ranges import phase_of
from profiles.analysis.trace.time.tiling import DeviceWork
from profiles.ingest.arrays import Ints, Rows, stable_order
from profiles.ingest.trace import Category

MOST_STEPS = 10_000
MOST_STEMS = 100                # names of ranges that are looked into, the most time first
FEWEST = 3                      # repetitions that make a step of something nobody marked
LEAST_KERNELS = 2               # of a detected step: one kernel over and over is no step
LEAST_AGREEMENT = 0.9           # of kernels P apart, within the stretch that repeats
LEAST_KAPPA = 0.6               # of the whole sequence, beyond what chance makes agree (Cohen's kappa)
LEAST_COVER = 0.5               # of the thread's time from the first to the last of the ranges
STEP_WORD = re.compile(r"(?<![a-z])(step|iter|iteration|train_?step|batch|decode|execute)(?![a-z])", re.IGNORECASE)
_NO_STEP = re.compile(r"CompiledFxGraph|nccl:|gloo:|dynamo|inductor", re.IGNORECASE)
_UPDATE = re.compile(r"Optimizer\.step#")
_NUMBER = re.compile(r"\d+")
_SEED = 4                       # the signs of names are the same in every run


@dataclass(frozen=True)
class Span:
    """One step. `end_ns` is where it ends on the CPU, of a detected one where the next begins on the GPU."""

    name: str
    rank: str
    start_ns: int
    end_ns: int


@dataclass(frozen=True)
class Steps:
    """`source`: "marked" (ProfilerStep), "ranges", "detected", "" where there are none; `how` says it in a sentence."""

    source: str
    how: str
    spans: list[Span]


def steps_of(frame: Frame, works: list[DeviceWork]) -> Steps:
    """The steps of every rank, in order of start."""
    marked = frame.rows_by_name(lambda name: bool(STEP.match(name)), Category.ANNOTATION, Category.CPU_OP)
    if marked.size:
        return Steps("marked", "steps as the profiler marked them (`ProfilerStep#N`)", _spans(frame, marked))
    ranges = _repeating(frame)
    if ranges is not None:
        name = _NUMBER.sub("N", frame.text(int(ranges[0])))[:80]
        return Steps("ranges", f"steps are the ranges `{_without_backticks(name)}`, which repeat one after another",
                     _spans(frame, ranges))
    updates = _updates(frame)
    if updates:
        return Steps("ranges", "steps go from the end of one `Optimizer.step` to the end of the next", updates)
    spans, period = [], 0
    for rank in dict.fromkeys(work.rank for work in works):
        most = max((work for work in works if work.rank == rank), key=lambda work: work.rows.size)
        detected, length = detect_steps(frame, most)
        spans += detected
        period = period or length
    if not spans:
        return Steps("", "no steps: the trace marks none, and its kernels repeat no sequence", [])
    how = f"no steps are marked; one sequence of {period:,} kernels and copies repeats, as an iteration does, or a layer of one"
    return Steps("detected", how, sorted(spans, key=_start_ns))


def _start_ns(span: Span) -> int:
    return span.start_ns


def _without_backticks(name: str) -> str:
    return name.replace("`", "'")


def _spans(frame: Frame, rows: Rows) -> list[Span]:
    return [Span(frame.text(row), frame.rank_of_track[int(frame["track"][row])], int(frame["start_ns"][row]),
                 int(frame.end_ns[row])) for row in rows[:MOST_STEPS].tolist()]


def _repeating(frame: Frame) -> Rows | None:
    """Ranges that stand for steps, None where none do."""
    rows = frame.rows_by_name(lambda name: not _NO_STEP.search(name) and not phase_of(name), Category.ANNOTATION)
    rows = rows[frame["dur_ns"][rows] > 0]
    if rows.size < FEWEST:
        return None
    codes, indexes = np.unique(frame["name"][rows], return_inverse=True)
    stems = [_NUMBER.sub("#", frame.names[code][:ASKED_CHARS] if code >= 0 else "") for code in codes.tolist()]
    number = {stem: i for i, stem in enumerate(dict.fromkeys(stems))}
    stem = np.array([number[name] for name in stems])[indexes]
    rank = frame.rank_numbers[1][frame["track"][rows]]
    best: tuple[bool, float, Rows] | None = None
    counts, texts = np.bincount(stem), list(number)
    likely = np.flatnonzero((counts >= FEWEST) & (counts <= MOST_STEPS))
    longest = stable_order(-np.bincount(stem, frame["dur_ns"][rows])[likely])[:MOST_STEMS]
    for code in likely[longest].tolist():
        text = texts[code]
        mine = rows[stem == code]
        if not STEP_WORD.search(text) and not _counts_up([frame.text(row) for row in mine.tolist()]):
            continue
        cover = min(_cover(frame, mine[rank[stem == code] == each]) for each in np.unique(rank[stem == code]).tolist())
        word = bool(STEP_WORD.search(text))
        if cover >= LEAST_COVER and (best is None or (word, cover) > best[:2]):
            best = (word, cover, mine)
    return best[2] if best else None


def _cover(frame: Frame, rows: Rows) -> float:
    """Share of the time from their first start to their last end that some ranges fill; 0 where they overlap or change
    threads, or are fewer than FEWEST."""
    start, end = frame["start_ns"][rows], frame.end_ns[rows]
    if rows.size < FEWEST or np.unique(frame["track"][rows]).size > 1 or (start[1:] < end[:-1]).any():
        return 0.0
    return float((end - start).sum() / (end[-1] - start[0]))


def _counts_up(names: list[str]) -> bool:
    """One name over and over, or one whose numbers never fall and which no two have in common: "layer 1", "layer 2"."""
    if len(set(names)) == 1:
        return True
    numbers = [[int(digits[:18]) for digits in _NUMBER.findall(name)] for name in names]
    return all(before <= after and before != after for before, after in pairwise(numbers))


def _updates(frame: Frame) -> list[Span]:
    """Spans between the ends of the most frequent optimizer's steps, per rank; the first begins with the recording."""
    spans: list[Span] = []
    rows = frame.rows_by_name(lambda name: bool(_UPDATE.match(name)), Category.ANNOTATION, Category.CPU_OP)
    labels = np.array(frame.rank_of_track)[frame["track"][rows]] if rows.size else np.empty(0, np.str_)
    for rank in dict.fromkeys(labels.tolist()):
        mine = rows[labels == rank]
        codes, count = np.unique(frame["name"][mine], return_counts=True)
        ends = np.sort(frame.end_ns[mine[frame["name"][mine] == codes[np.argmax(count)]]])
        if ends.size >= FEWEST:
            whole = np.r_[first_of(frame, rank), ends[:MOST_STEPS]].tolist()
            spans += [Span(f"update {i}", rank, start, end) for i, (start, end) in enumerate(pairwise(whole)) if end > start]
    return sorted(spans, key=_start_ns)


def first_of(frame: Frame, rank: str) -> int:
    """Return when the first slice of a rank's CPU begins."""
    rows = frame.of(Category.RUNTIME, Category.CPU_OP, Category.PYTHON, Category.ANNOTATION)
    mine = np.array([label == rank for label in frame.rank_of_track], np.bool_)[frame["track"][rows]]
    return int(frame["start_ns"][rows[np.argmax(mine)]])


def detect_steps(frame: Frame, work: DeviceWork) -> tuple[list[Span], int]:
    """Return the steps of one GPU by its work, and how many pieces of it one has.

    ([], 0) where nothing repeats.
    """
    rows = work.rows
    call = frame.call[rows]
    when = np.where(call >= 0, frame["start_ns"][np.maximum(call, 0)], frame["start_ns"][rows])
    rows = rows[np.lexsort((np.arange(rows.size), when))]
    names = frame["name"][rows].astype(np.int64)
    period = period_of(names)
    if not period:
        return [], 0
    first, last = _steady(names, period)
    if last - first < FEWEST * period:
        return [], 0
    starts, ends = frame["start_ns"][rows], np.maximum.accumulate(frame.end_ns[rows])
    gap = np.maximum(starts - np.r_[starts[:1], ends[:-1]], 0)
    phase = _longest_gap(gap[first:last], period)
    begins = np.arange(first + phase, last - period + 1, period)
    begin_ns = starts[begins]
    until = np.r_[begin_ns[1:], int(ends[min(int(begins[-1]) + period, rows.size) - 1])] if begins.size else begin_ns
    pairs = zip(begin_ns[:MOST_STEPS].tolist(), until[:MOST_STEPS].tolist(), strict=True)
    return [Span(f"repetition {number}", work.rank, start, end) for number, (start, end) in enumerate(pairs)], period


def period_of(names: Ints) -> int:
    """The shortest distance at which a sequence agrees with itself best; 0 where it does not."""
    n = names.size
    if n < FEWEST * LEAST_KERNELS:
        return 0
    distinct, code = np.unique(names, return_inverse=True)
    if distinct.size < 2:
        return 0
    signs = np.random.default_rng(_SEED).choice((-1.0, 1.0), (4, distinct.size))
    agree = np.zeros(n // FEWEST + 1)
    size = 1 << int(2 * n - 1).bit_length()
    for sign in signs:
        spectrum = np.fft.rfft(sign[code], size)
        agree += np.fft.irfft(spectrum * np.conj(spectrum), size)[:agree.size]
    agree /= len(signs) * (n - np.arange(agree.size))
    agree[:LEAST_KERNELS] = -1
    likely = stable_order(-agree)[:64]
    exact = {int(lag): float(np.mean(names[lag:] == names[:-lag])) for lag in likely if lag >= LEAST_KERNELS}
    best = max(exact.values(), default=0.0)
    chance = float(np.sum((np.bincount(code) / n) ** 2))
    if best - chance < LEAST_KAPPA * (1 - chance) or float(np.mean(names[1:] == names[:-1])) >= best - 0.01:
        return 0
    return min(lag for lag, share in exact.items() if share >= best - 0.01)


def _steady(names: Ints, period: int) -> tuple[int, int]:
    """The stretch in which the sequence repeats: what comes before (warm-up) and after is no step."""
    same = np.r_[0, np.cumsum(names[period:] == names[:-period])]         # matches among the first pairs
    good = np.flatnonzero(same[period:] - same[:-period] >= LEAST_AGREEMENT * period)
    return (int(good[0]), int(good[-1]) + 2 * period) if good.size else (0, 0)


def _longest_gap(gap: Ints, period: int) -> int:
    """Where in the period the GPU waits longest, the median over the repetitions."""
    whole = gap[:gap.size - gap.size % period].reshape(-1, period)
    return int(np.argmax(np.median(whole[1:] if len(whole) > 2 else whole, axis=0)))


# The step of each kernel, in both senses: the one in which its launch call began, and the one in which it began to run.
#
# They differ where the host is ahead of the GPU: the last kernels of a step run while the host is in the next. What a step launched
# is its work, whatever waits before it; what ran in it is what the GPU did in that time. Neither is the other's error.


@dataclass(frozen=True)
class KernelSteps:
    """Number of the step (among the spans) of every kernel of a frame, in order of start; NONE: outside every step.

    `launched` is also NONE where the launch call is not known; None where steps are stretches of the GPU's work: no call is in one.
    """

    launched: Ints | None
    ran: Ints

    @property
    def elsewhere(self) -> Ints:
        """Return the places of the kernels that began in another step than the one that launched them."""
        if self.launched is None:
            return np.empty(0, np.int64)
        return np.flatnonzero((self.launched >= 0) & (self.launched != self.ran))

    def sums(self, dur_ns: Ints, steps: int) -> tuple[Ints | None, Ints]:
        """Return kernels and ns by step, shape (2, steps + 1) each, of both senses; the last is outside every step."""
        def of(step: Ints) -> Ints:
            place = np.where(step >= 0, step, steps)
            out = np.zeros((2, steps + 1), np.int64)
            np.add.at(out[0], place, 1)
            np.add.at(out[1], place, dur_ns)
            return out
        return None if self.launched is None else of(self.launched), of(self.ran)


def kernel_steps(frame: Frame, steps: Steps) -> KernelSteps:
    """Return the steps of a frame's kernels, each among those of its own rank."""
    rows = frame.kernels
    rank = np.array(frame.rank_of_track or [""])[frame["track"][rows]] if rows.size else np.empty(0, np.str_)
    call = frame.call[rows]
    launched = np.where(call >= 0, frame["start_ns"][np.maximum(call, 0)], -1) if rows.size else np.empty(0, np.int64)
    ran = _steps_at(steps.spans, frame["start_ns"][rows].astype(np.int64), rank)
    return KernelSteps(None if steps.source == "detected" else _steps_at(steps.spans, launched, rank), ran)


def _steps_at(spans: Sequence[Span], moments: Ints, rank: np.ndarray[tuple[int], np.dtype[np.str_]]) -> Ints:
    """Return the step around each moment; of steps that overlap, the one that began last."""
    out = np.full(moments.size, NONE, np.int64)
    for own in dict.fromkeys(span.rank for span in spans):
        numbers = np.array([index for index, span in enumerate(spans) if span.rank == own], np.int64)
        start, end = (np.array([getattr(spans[at], name) for at in numbers.tolist()], np.int64) for name in ("start_ns", "end_ns"))
        order = stable_order(start)
        numbers, start, end = numbers[order], start[order], end[order]
        mine = np.flatnonzero(rank == own) if own else np.arange(moments.size)
        positions = np.searchsorted(start, moments[mine], side="right") - 1
        inside = (positions >= 0) & (moments[mine] < end[np.maximum(positions, 0)])
        out[mine[inside]] = numbers[positions[inside]]
    return out


# Which steps are warm-up or compilation: they are shown, and left out of averages.

COMPILED_PCT = 5.0              # of a step's time in compilation: it is a compiling step, wherever it stands
SLOWER = 1.5                    # times the typical step (median of the later half): a leading step that long is warm-up
FEWEST_LEFT = 1                 # steps that must remain; else those of warm-up and compilation count
WARM_UP = "warm-up"             # what a leading step that takes that long is called
NO_WORK = "no GPU work"         # a step that the recording cut, or of the CPU alone
# Slices in which code is compiled, loaded or tuned: torch.compile and Inductor, Triton, NVRTC, CUDA modules, XLA, autotuners.
COMPILATION = re.compile(r"compile_fx|torchdynamo|dynamo|inductor.*compile|_compile\b|triton.*compil|compile_inner|nvrtc|ptxas|"
                         r"moduleload|libraryload|xlacompile|backend_compile|pjrt.*compile|jit_compile|autotun|cudnnfind",
                         re.IGNORECASE)
# What runs compiled code, or looks whether there is some, compiles nothing.
NO_COMPILATION = re.compile(r"call compiledfxgraph|torch-compiled region|compiled_function|cudamoduleloadingmode|cache lookup|"
                            r"_dynamo/(?:eval_frame|external_utils|decorators|utils|mutation_guard)\.py|"
                            r"_inductor/(?:output_code|utils)\.py", re.IGNORECASE)


@dataclass(frozen=True)
class StepVerdict:
    """Whether a step counts in averages, and if not, why not."""

    counts: bool
    why: str = ""               # "compilation" | "warm-up" | NO_WORK | "": a word for the table
    compiling_ns: int = 0


def judge_steps(frame: Frame, spans: list[Span], works: list[DeviceWork]) -> list[StepVerdict]:
    """Return one verdict per step. Ranks are judged apart."""
    verdicts: dict[int, StepVerdict] = {}
    for rank in dict.fromkeys(span.rank for span in spans):
        mine = [i for i, span in enumerate(spans) if span.rank == rank]
        verdicts.update(zip(mine, _judge_rank(frame, rank, [spans[i] for i in mine], works), strict=True))
    return [verdicts[i] for i in range(len(spans))]


def _judge_rank(frame: Frame, rank: str, spans: list[Span], works: list[DeviceWork]) -> list[StepVerdict]:
    start = np.array([span.start_ns for span in spans], np.int64)
    end = np.array([span.end_ns for span in spans], np.int64)
    dur = np.maximum(end - start, 1)
    compiling = intervals.overlap_ns(_compilation(frame, rank), start, end)
    busy = intervals.join(intervals.EMPTY, *(work.busy for work in works if work.rank == rank or not work.rank))
    empty = intervals.overlap_ns(busy, start, end) == 0
    compiles = 100 * compiling / dur >= COMPILED_PCT
    steady = dur[~compiles & ~empty]
    typical = float(np.median(steady[steady.size // 2:])) if steady.size else 0.0
    slow = (dur >= SLOWER * typical) & ~empty
    leading = np.cumprod(slow | compiles | empty).astype(np.bool_)
    whys = np.where(empty, NO_WORK, np.where(compiles, "compilation", np.where(leading & slow, WARM_UP, "")))
    if np.count_nonzero(whys == "") < FEWEST_LEFT:
        whys = np.where(whys == NO_WORK, whys, "")
    return [StepVerdict(not why, why, int(ns)) for why, ns in zip(whys.tolist(), compiling, strict=True)]


def _compilation(frame: Frame, rank: str) -> intervals.Intervals:
    """When some thread of a rank compiles."""
    rows = frame.rows_by_name(lambda name: bool(COMPILATION.search(name)) and not NO_COMPILATION.search(name),
                       Category.CPU_OP, Category.PYTHON, Category.ANNOTATION, Category.RUNTIME)
    if rank:
        rows = rows[np.array([track_rank == rank for track_rank in frame.rank_of_track])[frame["track"][rows]]]
    return intervals.union(frame["start_ns"][rows], frame.end_ns[rows])
