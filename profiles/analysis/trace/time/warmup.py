"""Which steps are warm-up or compilation: they are shown, and left out of averages."""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np

from profiles.analysis.core import intervals
from profiles.analysis.core.frame import Frame
from profiles.analysis.trace.time.steps import Span
from profiles.analysis.trace.time.tiling import DeviceWork
from profiles.ingest.trace import Category

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
        rows = rows[np.array([each == rank for each in frame.rank_of_track])[frame["track"][rows]]]
    return intervals.union(frame["start_ns"][rows], frame.end_ns[rows])
