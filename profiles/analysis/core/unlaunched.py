"""Why a trace does not say which call launched which GPU work, in words: what is missing is not always the calls."""

from __future__ import annotations

import numpy as np

from profiles.analysis.core.frame import Frame
from profiles.analysis.core.sentences import plural
from profiles.ingest.arrays import Bools, Rows
from profiles.ingest.trace import Category
from profiles.ingest.windows import MISSING


def why_no_calls(frame: Frame) -> str:
    """Return a sentence's end and what to do: "it holds no runtime calls with correlation ids. Record …"

    For traces in which no GPU work has a known launch call.
    """
    calls = frame.of(Category.RUNTIME)
    if not calls.size:
        return ("it holds no runtime calls with correlation ids. Record the CUDA runtime, too (`ProfilerActivity.CPU`, "
                "`nsys profile -t cuda`).")
    numbered = int(np.count_nonzero(~_without_id(frame, calls)))
    if not numbered:
        return f"it holds {plural(calls.size, 'runtime call')} without correlation ids. Keep their arguments when you cut a trace."
    beside = plural(numbered, "runtime call")
    without = int(np.count_nonzero(_without_id(frame, frame.work)))
    if without:
        what = "its GPU work" if without == frame.work.size else f"{plural(without, 'piece')} of its GPU work"
        return f"{what} without a correlation id (0 is none), beside {beside} with one. The profiler wrote no link: record again."
    return f"no correlation id of its GPU work is among those of {beside}. Record the launches and the GPU in one session."


def _without_id(frame: Frame, rows: Rows) -> Bools:
    ids = frame["correlation"][rows]
    missing: Bools = (ids == MISSING) | (ids == 0)
    return missing
