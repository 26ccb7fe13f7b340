"""What a memory snapshot says in tables: bytes per GPU, the peak by who asked for it, what is held at the end, segments, blocks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from profiles.ingest.other.snapshot_history import History, Stacks
from profiles.ingest.trace import Cell, CellRows, Integrity, SummaryColumn, SummaryTable, summary_columns, with_rows

MAX_ROWS = 5000                          # of segments and of blocks; their sums are of all
TOP_STACKS = 100
MAX_DEVICES = 64
_ACTIVE = "active_allocated"


@dataclass
class Block:
    device: int
    address: int
    size: int
    requested: int
    state: str
    stack: int


class State:
    """The segments and blocks at the moment of the snapshot."""

    def __init__(self, stacks: Stacks, integrity: Integrity) -> None:
        self.stacks, self.integrity = stacks, integrity
        self.segments: list[tuple[dict[str, Any], int, int]] = []      # with its number of blocks and its largest unused one
        self.blocks: list[Block] = []
        self._now: dict[int, dict[str, int]] = {}
        self._stuck: dict[int, int] = {}         # unused bytes in segments of which something is in use

    def take(self, segments: Any) -> None:
        list_ids: set[int] = set()
        for segment in segments if type(segments) is list else []:
            self.integrity.records_read += 1
            device = whole(segment.get("device"), MAX_DEVICES) if type(segment) is dict else MAX_DEVICES
            if device >= MAX_DEVICES or type(segment.get("blocks")) is not list or id(segment["blocks"]) in list_ids:
                self.integrity.drop("a segment without blocks of its own, or of an impossible GPU")
                continue
            list_ids.add(id(segment["blocks"]))                        # a pickle may hold one list in many places
            now = self._now.setdefault(device, {"allocated": 0, "active": 0, "reserved": 0})
            for name, key in (("allocated", "allocated_size"), ("active", "active_size"), ("reserved", "total_size")):
                now[name] += whole(segment.get(key))
            first = len(self.blocks)
            self._blocks(device, segment)
            own = self.blocks[first:]
            unused = max((block.size for block in own if block.state == "inactive"), default=0)
            self.segments.append((segment, len(own), unused))
            if any(block.state != "inactive" for block in own):
                self._stuck[device] = self._stuck.get(device, 0) + sum(block.size for block in own if block.state == "inactive")
        self.integrity.kinds |= {"segment": len(self.segments), "block": len(self.blocks)} if self.segments else {}

    def _blocks(self, device: int, segment: dict[str, Any]) -> None:
        address = whole(segment.get("address"))
        for block in segment["blocks"]:
            self.integrity.records_read += 1
            if type(block) is not dict:
                self.integrity.drop("a block that is none")
                continue
            size = whole(block.get("size"))
            frames = block.get("frames")
            history = block.get("history")
            if not frames and type(history) is list and history and type(history[0]) is dict:      # PyTorch 2.0
                frames = history[0].get("frames")
            self.blocks.append(Block(device, whole(block.get("address"), address), size, whole(block.get("requested_size"), size),
                                     _text(block.get("state")), self.stacks.number(frames)))
            address += size

    def devices(self) -> set[int]:
        return set(self._now)

    def sums_by_device(self) -> list[dict[str, int]]:
        """Return each GPU's state at the end: bytes, and how they are cut up."""
        out = {device: {
            "device": device, **{f"{name}_bytes": size for name, size in now.items()}, "unused_bytes": 0,
            "stuck_bytes": self._stuck.get(device, 0), "largest_unused_bytes": 0, "unused_blocks": 0, "used_blocks": 0,
            "segments": 0} for device, now in sorted(self._now.items())}
        for block in self.blocks:
            sums = out[block.device]
            if block.state == "inactive":
                sums["unused_bytes"] += block.size
                sums["unused_blocks"] += 1
                sums["largest_unused_bytes"] = max(sums["largest_unused_bytes"], block.size)
            sums["used_blocks"] += block.state == _ACTIVE
        for segment, _, _ in self.segments:
            out[whole(segment.get("device"))]["segments"] += 1
        return list(out.values())

    def bytes_now(self, device: int) -> dict[str, int] | None:
        """Allocated, active and reserved bytes; None where no segments are known of the GPU."""
        return self._now.get(device)


def whole(value: Any, otherwise: int = 0) -> int:
    """Return a whole number of bytes or a count as the file has it, else `otherwise`."""
    return value if type(value) is int and 0 <= value < 2**62 else otherwise


def _text(value: Any) -> str:
    return value[:40] if type(value) is str else ""


def headline(histories: Sequence[History], state: State) -> str:
    """The sentence at the top: the GPU whose peak is the highest, or that holds most."""
    peaks = [(int(history.levels["allocated"].max()), history.device) for history in histories if history.time_ns]
    totals = [(now["allocated"], device) for device in state.devices() if (now := state.bytes_now(device))]
    if not peaks and not totals:
        return ""
    most, device = max(peaks or totals)
    text = f"GPU {device} has {_si(most)} allocated {'at the peak' if peaks else 'at this moment'}"
    now = state.bytes_now(device)
    if now and now["reserved"]:
        unused = now["reserved"] - now["active"]
        text += f"; of {_si(now['reserved'])} reserved {100 * unused / now['reserved']:.0f} % are unused at the end"
    return text + "."


def _si(size: float) -> str:
    for unit in ("bytes", "kB", "MB", "GB"):
        if size < 1000:
            return f"{size:.3g} {unit}"
        size /= 1000
    return f"{size:.3g} TB"


def tables(histories: Sequence[History], state: State, stacks: Stacks) -> list[SummaryTable]:
    """Return all tables that have rows."""
    zero = min((time for history in histories for time in history.time_ns), default=0)
    all_tables = [_overview_table(histories, state, zero)]
    all_tables += [_peak_table(history, stacks) for history in histories]
    all_tables += [_held_table(state, stacks), _failure_table(histories, stacks, zero), _segment_table(state),
                   _block_table(state, stacks)]
    return with_rows(all_tables)


def _overview_table(histories: Sequence[History], state: State, zero_ns: int) -> SummaryTable:
    rows: CellRows = []
    of = {history.device: history for history in histories}
    for device in sorted(set(of) | state.devices()):
        rows.append([device, *_history_cells(of.get(device), zero_ns), *_state_cells(device, state)])
    columns = summary_columns("GPU | Peak allocated: bytes | Peak at: ns | Peak reserved: bytes | "
                              "Allocated at the end: bytes | Reserved at the end: bytes | Unused of reserved: bytes | "
                              "Unused share: pct | Largest unused block: bytes | Fragmentation: pct | Segments: count | "
                              "Blocks in use: count")
    return SummaryTable("Memory", columns, rows, "Peaks are of the recorded history. Unused is reserved and not in use; "
                        "fragmentation is the share of it outside its largest block. Times count from the first entry.")


def _history_cells(history: History | None, zero_ns: int) -> list[Cell]:
    if history is None or not history.time_ns:
        return [None, None, None]
    allocated = history.levels["allocated"]
    peak = int(np.argmax(allocated))
    return [int(allocated[peak]), history.time_ns[peak] - zero_ns, int(history.levels["reserved"].max())]


def _state_cells(device: int, state: State) -> list[Cell]:
    now = state.bytes_now(device)
    if now is None:
        return [None] * 8
    free = [block.size for block in state.blocks if block.device == device and block.state == "inactive"]
    unused = now["reserved"] - now["active"]
    return [
        now["allocated"], now["reserved"], unused, 100.0 * unused / now["reserved"] if now["reserved"] else None,
        max(free, default=0), 100.0 * (1 - max(free) / sum(free)) if sum(free) else None,
        sum(segment.get("device") == device for segment, _, _ in state.segments),
        sum(block.device == device and block.state == _ACTIVE for block in state.blocks)]


def _peak_table(history: History, stacks: Stacks) -> SummaryTable:
    """Who had asked for the bytes that were allocated at the peak."""
    level = history.levels["allocated"]
    peak_index = int(np.argmax(level)) if level.size else 0
    sums: dict[int, list[int]] = {}
    size = history.rounded_sizes().tolist()
    for began, ended in history.alive:
        if began <= peak_index and (ended < 0 or ended > peak_index):
            entry = sums.setdefault(history.stack[began], [0, 0])
            entry[0] += size[began]
            entry[1] += 1
    peak = int(level[peak_index]) if level.size else 0
    earlier = peak - sum(stack_sums[0] for stack_sums in sums.values())
    rows = _by_stack(sums, stacks, peak)
    if earlier > 0:
        rows.append([earlier, 100.0 * earlier / peak, None, "allocated before the recording's first entry", None])
    return SummaryTable(f"Allocated at the peak of GPU {history.device}, by who asked for it", _stack_columns(), rows,
                        "Sizes rounded up to 512 bytes, as the allocator counts them.")


def _by_stack(sums: dict[int, list[int]], stacks: Stacks, everything: int) -> CellRows:
    ordered = sorted(sums.items(), key=lambda item: -item[1][0])
    rows: CellRows = [
        [size, 100.0 * size / everything if everything else None, count, stacks.site(stack) or "no stack was recorded",
         "\n".join(stacks.lines(stack))[:3000] if stack >= 0 else None] for stack, (size, count) in ordered[:TOP_STACKS]]
    if len(ordered) > TOP_STACKS:
        rest = [stack_sums for _, stack_sums in ordered[TOP_STACKS:]]
        size = sum(stack_sums[0] for stack_sums in rest)
        rows.append([size, 100.0 * size / everything if everything else None, sum(stack_sums[1] for stack_sums in rest),
                     f"{len(rest)} further stacks", None])
    return rows


def _stack_columns() -> list[SummaryColumn]:
    return summary_columns("Bytes: bytes | Share: pct | Blocks: count | Asked for by: text | Stack: text")


def _held_table(state: State, stacks: Stacks) -> SummaryTable:
    sums: dict[int, list[int]] = {}
    for block in state.blocks:
        if block.state == _ACTIVE:
            entry = sums.setdefault(block.stack, [0, 0])
            entry[0] += block.size
            entry[1] += 1
    everything = sum(stack_sums[0] for stack_sums in sums.values())
    return SummaryTable("In use at the end, by who asked for it", _stack_columns(), _by_stack(sums, stacks, everything))


def _failure_table(histories: Sequence[History], stacks: Stacks, zero_ns: int) -> SummaryTable:
    rows: CellRows = []
    for history in histories:
        for i, action in enumerate(history.action):
            if action == "oom" and len(rows) < MAX_ROWS:
                free = history.address[i] if history.address[i] >= 0 else None
                rows.append([history.device, history.time_ns[i] - zero_ns, history.bytes[i], free, stacks.site(history.stack[i])])
    columns = summary_columns("GPU | Time: ns | Asked for: bytes | Free on the GPU: bytes | Asked for by: text")
    return SummaryTable("Out of memory", columns, rows)


def _segment_table(state: State) -> SummaryTable:
    rows: CellRows = []
    for segment, count, largest in state.segments[:MAX_ROWS]:
        stream = segment.get("stream")
        rows.append([whole(segment.get("device")), hex(whole(segment.get("address"))), _text(segment.get("segment_type")),
                     str(whole(stream)) if type(stream) is int else "", whole(segment.get("total_size")),
                     whole(segment.get("allocated_size")), whole(segment.get("active_size")), count, largest])
    columns = summary_columns("GPU | Address: text | Kind: text | Stream: text | Size: bytes | Allocated: bytes | "
                              "Active: bytes | Blocks: count | Largest unused: bytes")
    return SummaryTable("Segments", columns, rows, _cut(len(state.segments)))


def _block_table(state: State, stacks: Stacks) -> SummaryTable:
    largest = sorted(state.blocks, key=lambda block: -block.size)[:MAX_ROWS]
    rows: CellRows = []
    for block in largest:
        rows.append([block.device, hex(block.address), block.state, block.size, block.requested, stacks.site(block.stack)])
    columns = summary_columns("GPU | Address: text | State: text | Size: bytes | Asked for: bytes | Asked for by: text")
    return SummaryTable("Blocks, largest first", columns, rows, _cut(len(state.blocks)))


def _cut(count: int) -> str:
    return f"The first {MAX_ROWS:,} of {count:,}." if count > MAX_ROWS else ""
