"""What the launches of traces compute, as columns beside their launches, and both sides by it.

What two traces' steps needed, did besides and went to, as their stored analyses say it.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import astuple, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from profiles.analysis.compare.launch_operations import LaunchOperations, launch_operations
from profiles.analysis.compare.operations import UNKNOWN, VERDICTS, Operation, OperationRow, compare_operations
from profiles.analysis.compare.step import StepChange, step_change
from profiles.analysis.core.sentences import time_text
from profiles.analysis.trace.account.result import VERSION as CAUSES_VERSION
from profiles.analysis.trace.needed.facts import MOST_LAUNCHES
from profiles.analysis.trace.needed.topic import VERSION as NEEDED_VERSION
from profiles.compare.frame_selectors import MOST_SLICES, kept, page_frame, slices
from profiles.ingest.arrays import Ints
from profiles.models import Profile
from profiles.store.objects import topic_read
from profiles.store.timeline import timeline

_ARRAYS = (("operation", np.int32), ("by_kernel", np.int32), ("has_operator", np.bool_), ("flop", np.float64),
           ("bytes", np.float64), ("call_work", np.float64))


def operations_of(profile: Profile) -> LaunchOperations | None:
    """Return what each kernel of a trace computes, None where that is not looked at."""
    packed = kept("operations-1", profile, lambda: _pack(profile))
    if not packed:
        return None
    parts, operations = packed
    arrays: list[Any] = [np.frombuffer(zlib.decompress(part), dtype) for part, (_, dtype) in zip(parts, _ARRAYS, strict=True)]
    operation, by_kernel, has_operator, *amounts = arrays
    return LaunchOperations(operation, by_kernel, [Operation(*row) for row in operations], has_operator, *amounts)


def _pack(profile: Profile) -> tuple[list[bytes], list[tuple[str, ...]]] | tuple[()]:
    frame = page_frame(profile)
    operations = launch_operations(frame) if frame is not None else None
    if operations is None:
        return ()
    return ([zlib.compress(getattr(operations, name).astype(dtype).tobytes(), 1) for name, dtype in _ARRAYS],
            [astuple(operation) for operation in operations.operations])


def too_large_text(profile: Profile) -> str:
    """Return what is left out of a trace that `operations_of` is None of, as it is too large; "" where it is not."""
    rows = slices(profile)
    if rows > MOST_SLICES:
        return f"{profile.name} has {rows:,} slices: of more than {MOST_SLICES:,} steps, operations and shapes are not told apart."
    if profile.launches > MOST_LAUNCHES:
        return f"{profile.name} has {profile.launches:,} launches: of more than {MOST_LAUNCHES:,} operations and a step's parts " \
            "are not told apart."
    return ""


def with_operations(table: pa.Table, operations: LaunchOperations | None, index: Ints) -> pa.Table:
    """Return a profile's launches with what each computes: the columns that `compare_operations` reads; `index`: of its kernels."""
    if operations is None:
        count = len(index)
        nothing, nan = np.zeros(count, np.int64), np.full(count, np.nan)
        columns = {"operation": _texts(nothing, [UNKNOWN]), "by_kernel": _texts(nothing, [UNKNOWN]),
                   "has_operator": pa.array(np.zeros(count, np.bool_)), "flop": pa.array(nan), "bytes": pa.array(nan),
                   "work": pa.array(nan)}
    else:
        positions = np.minimum(index, operations.operation.size - 1)
        columns = {"operation": _texts(operations.operation[positions], operations.operations),
                   "by_kernel": _texts(operations.by_kernel[positions], operations.operations),
                   "has_operator": pa.array(operations.has_operator[positions]), "flop": pa.array(operations.flop[positions]),
                   "bytes": pa.array(operations.bytes[positions]), "work": pa.array(operations.call_work[positions])}
    for name, column in columns.items():
        table = table.append_column(name, column)
    return table


def _texts(codes: npt.NDArray[np.integer], operations: Sequence[Operation]) -> pa.Array:
    """A text column; operations that differ in what only people read are one."""
    texts = {operation.text: None for operation in operations}
    number = {text: index for index, text in enumerate(texts)}
    own = np.array([number[operation.text] for operation in operations], np.int32)
    return pa.DictionaryArray.from_arrays(pa.array(own[codes]), pa.array(list(texts), pa.string())).cast(pa.string())


def operation_rows(old: pa.Table, new: pa.Table, made: Iterable[LaunchOperations | None], old_units: float,
                   new_units: float) -> list[OperationRow]:
    """Return both sides by what they compute; none where no trace of a side says it. `made`: of the traces of both."""
    rows = compare_operations(old, new, [UNKNOWN, *(each for one in made if one is not None for each in one.operations)],
                              old_units=old_units, new_units=new_units)
    named_rows = [row for row in rows if row.kind != UNKNOWN.kind]
    both = any(row.old.launches for row in named_rows) and any(row.new.launches for row in named_rows)
    return rows if both else []


# ---- what the page says of them ----

SHOWN = 6                       # operations of a kind on the page; the API has them all
LEAST_SHARE = 0.002             # of the longer side's time, that a change of an operation must be to be shown
_MARKS = {"slower": ("▲", "slower"), "unknown_slower": ("▲", "slower"), "faster": ("▼", "faster"),
          "unknown_faster": ("▼", "faster"), "unchanged": ("=", "unchanged"), "new": ("+", "new"), "gone": ("−", "gone"),
          "more_work": ("△", ""), "less_work": ("▽", ""),
          "more_launches": ("△", ""), "fewer_launches": ("▽", ""), "replaced": ("⇄", ""), "moved": ("⇄", ""), "unmoved": ("⇄", "")}


@dataclass(frozen=True)
class OperationLine:
    """A kind of operations, or one of a kind, as a line of the table."""

    row: OperationRow
    parts: list[OperationLine]

    @property
    def lines(self) -> list[OperationLine]:
        """Return the kind and its operations, as the table has them."""
        return [self, *self.parts]

    @property
    def sign(self) -> str:
        return _MARKS[self.row.verdict][0]

    @property
    def css(self) -> str:
        return _MARKS[self.row.verdict][1]

    @property
    def verdict(self) -> str:
        return VERDICTS[self.row.verdict]

    @property
    def what(self) -> str:
        """"copy, backward"; of a kind of one operation both: "Activations: silu"."""
        only = self.row.parts[0].what if len(self.row.parts) == 1 else self.row.what
        text = self.row.what if only.lower() == self.row.what.lower() else f"{self.row.what}: {only}"
        return f"{text}, {self.row.phase}" if self.row.phase else text

    @property
    def launches_text(self) -> str:
        """"31 → 2"; once where both sides agree. A step's mean may be no whole number."""
        old, new = (f"{side.launches:,.0f}" if round(side.launches, 6).is_integer() else f"{side.launches:,.1f}"
                    for side in (self.row.old, self.row.new))
        return old if old == new else f"{old} → {new}"


def operation_lines(rows: Sequence[OperationRow]) -> list[OperationLine]:
    """Return the kinds with those of their operations that changed most."""
    least_ns = _least_ns(rows)
    lines = []
    for row in rows:
        shown = [part for part in row.parts if abs(part.delta_ns) >= least_ns and part.verdict != "unchanged"][:SHOWN]
        lines.append(OperationLine(row, [OperationLine(part, []) for part in shown] if len(row.parts) > 1 else []))
    return lines


def _least_ns(rows: Sequence[OperationRow]) -> float:
    return LEAST_SHARE * max(sum(row.old.ns for row in rows), sum(row.new.ns for row in rows))


def operations_answer(rows: Sequence[OperationRow]) -> str:
    """Return the kinds of most change in a sentence: "Attention 13.3 ms → 551 µs (less work), …"; "" where nothing changed."""
    changed = [row for row in rows if row.verdict != "unchanged" and abs(row.delta_ns) >= _least_ns(rows)]
    texts = [f"{row.what if not index else row.what[:1].lower() + row.what[1:]} {time_text(row.old.ns)} → {time_text(row.new.ns)} "
             f"({VERDICTS[row.verdict]})" for index, row in enumerate(changed[:3])]
    return f"{', '.join(texts)}." if texts else ""


_NOTHING: Mapping[str, Any] = {"gpus": [], "kinds": []}     # of a trace that holds no GPU work


def step_of_profiles(old: Sequence[Profile], new: Sequence[Profile]) -> StepChange | None:
    """Return how the step changed, None where one side has no steps or what it needs is not stored yet."""
    needs = [[numbers for profile in side if (numbers := _numbers(profile, "needed", NEEDED_VERSION)) is not None]
             for side in (old, new)]
    if [len(side) for side in needs] != [len(old), len(new)]:
        return None
    causes = [[_numbers(profile, "causes", CAUSES_VERSION) or _NOTHING for profile in side] for side in (old, new)]
    return step_change(needs[0], needs[1], causes[0], causes[1])


def without_needs(profiles: Sequence[Profile]) -> list[Profile]:
    """Return the traces of which this version has not stored what they need; their pages make it."""
    return [profile for profile in profiles
            if profile.kind == Profile.Kind.TRACE and _numbers(profile, "needed", NEEDED_VERSION) is None]


def _numbers(profile: Profile, topic: str, version: int) -> Mapping[str, Any] | None:
    """The numbers of a profile's analysis as it is stored; None where it is not."""
    try:
        document = topic_read(profile.pk, topic, version, int(timeline(profile.pk).document["written"]))
    except FileNotFoundError:
        return _NOTHING
    if document is None:
        return None
    return document["numbers"] if document["applies"] else _NOTHING
