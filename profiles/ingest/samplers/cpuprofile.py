"""V8's `.cpuprofile` (node --cpu-prof, Chrome DevTools): the stack that each sample saw, as nested slices.

https://chromedevtools.github.io/devtools-protocol/tot/Profiler/#type-Profile; drawn as DevTools does (its
CPUProfileDataModel): samples are put in order of time, a sample lasts until the next one, (root), (idle) and (program) are no
functions, (garbage collector) lies on the stack that ran before it. Before 2016 the tree was nested below `head`, with
`timestamps` in µs and start and end in seconds.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

import msgspec
import numpy as np

from profiles.ingest.arrays import Bools, Int32, Ints, stable_order
from profiles.ingest.core.build import TraceBuilder
from profiles.ingest.core.events import MISSING
from profiles.ingest.core.source import Source
from profiles.ingest.samplers.document import (
    MAX_DEPTH,
    MAX_SLICES,
    NUMBERS,
    Frames,
    StackSlices,
    decode_document,
    iterate_elements,
    load_content,
    to_ns,
)
from profiles.ingest.trace import Category, Integrity, Trace, TraceError, Track

FORMAT = "cpuprofile"
MAX_NODES = 1_000_000
_NODE = re.compile(rb'(?<=\})\s*,\s*(?=\{\s*"id"\s*:)')
_TREE = re.compile(rb'"nodes"\s*:\s*\[|"head"\s*:\s*\{')
_OTHERS = re.compile(rb'"(?:traceEvents|ph|selfSize)"\s*:')
_ROOT, _IDLE, _PROGRAM, _COLLECTOR = "(root)", "(idle)", "(program)", "(garbage collector)"
_NONE, _GC = -1, -2                      # what a sample shows: no stack, the garbage collector; else a node
_HINT = "Record it again with node --cpu-prof or the Performance panel, and let the program end by itself."


class _Document(msgspec.Struct):
    nodes: msgspec.Raw = msgspec.Raw()
    head: msgspec.Raw = msgspec.Raw()
    startTime: Any = None
    endTime: Any = None
    samples: msgspec.Raw = msgspec.Raw()
    timeDeltas: msgspec.Raw = msgspec.Raw()
    timestamps: msgspec.Raw = msgspec.Raw()


class _Call(msgspec.Struct, gc=False):
    functionName: str = ""
    url: str = ""
    lineNumber: int | float | None = None
    columnNumber: int | float | None = None


class _Node(msgspec.Struct):
    id: int
    callFrame: _Call
    parent: int | None = None
    children: list[int] | None = None


class _OldNode(msgspec.Struct):
    id: int
    functionName: str = ""
    url: str = ""
    lineNumber: int | float | None = None
    columnNumber: int | float | None = None
    children: list[_OldNode] | None = None


@dataclass
class _Tree:
    """Nodes by their place in the file; -1 is no parent. (root) is nobody's parent: it is not drawn."""

    places_by_id: dict[int, int] = field(default_factory=dict)
    frame: list[int] = field(default_factory=list)
    name: list[str] = field(default_factory=list)
    parent: list[int] = field(default_factory=list)
    depth: list[int] = field(default_factory=list)
    top: list[int] = field(default_factory=list)         # the outermost call that a node lies in
    drawn: list[int] = field(default_factory=list)       # the node itself, or where it is too deep the deepest drawn around it


def sniff(head: bytes) -> bool:
    """Tell whether content is a JSON object with V8's tree of calls."""
    text = head.removeprefix(b"\xef\xbb\xbf").lstrip()
    return text[:1] == b"{" and b'"functionName"' in text and bool(_TREE.search(text)) and not _OTHERS.search(text) and (
        b'"callFrame"' in text or b'"hitCount"' in text)


def read(source: Source) -> Trace:
    """Raises TraceError where no sample has a time and a stack."""
    integrity = Integrity()
    document = decode_document(load_content(source, integrity), _Document, integrity)
    builder = TraceBuilder(source, FORMAT, integrity)
    frames = Frames(builder)
    tree = _read_tree(document, frames, integrity)
    source.progress("reading", 0)
    shown, at_ns, end_ns = _read_samples(document, tree, integrity)
    slices = StackSlices(builder, frames)
    slices.begin_track(builder.track("samples", lambda: Track(kind="thread", name="JavaScript", group="V8 CPU profile")))
    _draw(slices, tree, frames, (shown, at_ns, end_ns), integrity)
    slices.finish(integrity)
    integrity.settle()
    if not builder.rows:
        raise TraceError("samples", f"none of its {integrity.records_read:,} samples shows a function at a known time", _HINT)
    return builder.finish(devices=[])


def _read_tree(document: _Document, frames: Frames, integrity: Integrity) -> _Tree:
    tree = _Tree()
    links: list[tuple[int, list[int] | None, int | None]] = []       # place, ids of the children, id of the parent
    unread = beyond = repeated = 0
    for nodes in iterate_elements(document.nodes, _NODE, _Node) if bytes(document.nodes) else [_flatten(document.head)]:
        for node in nodes:
            if node is None or node.id in tree.places_by_id or len(tree.frame) >= MAX_NODES:
                unread += node is None
                repeated += node is not None and node.id in tree.places_by_id
                beyond += node is not None and node.id not in tree.places_by_id
                continue
            links.append((len(tree.frame), node.children, node.parent))
            tree.places_by_id[node.id] = len(tree.frame)
            tree.frame.append(_add_frame(frames, node.callFrame))
            tree.name.append(node.callFrame.functionName[:100])
    if not tree.frame:
        raise TraceError("nodes", "the file describes no calls, so its samples have no names", _HINT)
    integrity.repair("nodes that could not be understood were left out", unread)
    integrity.repair("nodes whose id another node has were left out", repeated)
    integrity.repair(f"nodes beyond the first {MAX_NODES:,} were left out", beyond)
    _link(tree, links)
    integrity.repair("nodes that lie within themselves: drawn as outermost calls", _measure(tree))
    return tree


def _flatten(raw: msgspec.Raw) -> list[_Node | None]:
    """Return the nodes of an old file's nested tree, whose lines and columns count from 1."""
    text = bytes(raw)
    if text.count(b"{") > MAX_NODES:
        raise TraceError("head", f"a tree of more than {MAX_NODES:,} calls", "Record for a shorter time.")
    try:
        waiting = [msgspec.json.decode(text, type=_OldNode)] if text else []
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise TraceError("head", f"not a tree of calls as V8 writes it ({str(error)[:200]})", _HINT) from None
    out: list[_Node | None] = []
    while waiting:
        node = waiting.pop()
        children = node.children or []
        line, column = (None if number is None else number - 1 for number in (node.lineNumber, node.columnNumber))
        call = _Call(node.functionName, node.url, line, column)
        out.append(_Node(node.id, call, None, [child.id for child in children]))
        waiting += reversed(children)
    return out


def _add_frame(frames: Frames, call: _Call) -> int:
    """Lines and columns count from 0 in the tree of today; people and DevTools count from 1."""
    place: dict[str, Any] = {"file": call.url[:1000]} if call.url else {}
    place |= {key: int(value) + 1 for key, value in (("line", call.lineNumber), ("col", call.columnNumber))
              if value is not None and 0 <= value < 2**31}
    return frames.add(call.functionName or "(anonymous)", place, Category.OTHER)


def _link(tree: _Tree, links: list[tuple[int, list[int] | None, int | None]]) -> None:
    tree.parent = [-1] * len(tree.frame)
    for place, children, parent in links:
        is_root = tree.name[place] == _ROOT
        if parent is not None and tree.parent[place] < 0:
            above = tree.places_by_id.get(parent, -1)
            tree.parent[place] = -1 if above >= 0 and tree.name[above] == _ROOT else above
        for child in () if is_root else children or ():
            below = tree.places_by_id.get(child, -1)
            if below >= 0 and tree.parent[below] < 0:
                tree.parent[below] = place


def _measure(tree: _Tree) -> int:
    """Set depth, top and drawn of every node; returns how many circles were opened."""
    count, circles = len(tree.frame), 0
    tree.depth, tree.top, tree.drawn = [-1] * count, list(range(count)), list(range(count))
    for first in range(count):
        path: list[int] = []
        within: set[int] = set()
        node = first
        while node >= 0 and tree.depth[node] < 0 and node not in within:
            path.append(node)
            within.add(node)
            node = tree.parent[node]
        if node in within:
            circles += 1
            tree.parent[path[-1]] = -1
        for node in reversed(path):
            above = tree.parent[node]
            tree.depth[node] = tree.depth[above] + 1 if above >= 0 else 0
            tree.top[node] = tree.top[above] if above >= 0 else node
            tree.drawn[node] = node if tree.depth[node] < MAX_DEPTH else tree.drawn[above]
    return circles


def _read_samples(document: _Document, tree: _Tree, integrity: Integrity) -> tuple[Int32, Ints, int]:
    """Return what each sample shows and when, in order of time, and the end of the last."""
    places = [np.array([tree.places_by_id.get(node_id, _NONE) for node_id in piece], np.int32)
              for piece in iterate_elements(document.samples, NUMBERS, int)]
    place = np.concatenate(places) if places else np.empty(0, np.int32)
    times, good = _sample_times(document, integrity)
    if place.size and not times.size:
        raise TraceError("timeDeltas", "the file states no times of its samples", _HINT)
    integrity.records_read = place.size
    integrity.kinds["sample"] = place.size
    both = min(place.size, times.size)
    integrity.drop("samples without a time", place.size - both + int(np.count_nonzero(~good[:both])))
    unknown = place[:both] < 0
    integrity.drop("samples of a node that the file does not describe", int(np.count_nonzero(unknown & good[:both])))
    integrity.repair("times behind that of the last sample were left out", max(times.size - both - 1, 0))
    place, times = place[:both][good[:both]], times[:both][good[:both]]
    if (times[1:] < times[:-1]).any():
        integrity.repair("samples out of order: put in order of time", int(np.count_nonzero(times[1:] < times[:-1])))
        order = stable_order(times)
        place, times = place[order], times[order]
    end_ns = to_ns(document.endTime, 1_000_000_000 if _is_old(document) else 1_000)
    last_ns = int(times[-1]) if times.size else 0
    if end_ns is None or end_ns < last_ns:
        integrity.remark("profile whose end is not stated or lies before its last sample: that sample has no duration")
    return _choose_drawn(place, tree, integrity), times, max(last_ns, end_ns if end_ns is not None else last_ns)


def _is_old(document: _Document) -> bool:
    return not bytes(document.nodes)


def _sample_times(document: _Document, integrity: Integrity) -> tuple[Ints, Bools]:
    """Return the time of each sample in ns, and which are believable."""
    deltas = bool(bytes(document.timeDeltas)) and not _is_old(document)
    raw = document.timeDeltas if deltas else document.timestamps
    parts = [np.array([MISSING if (ns := to_ns(sample_time, 1_000)) is None else ns for sample_time in piece], np.int64)
             for piece in iterate_elements(raw, NUMBERS, int | float)]
    values = np.concatenate(parts) if parts else np.empty(0, np.int64)
    good = values != MISSING
    values = np.where(good, values, 0)
    if not deltas:
        return values, good
    integrity.repair("time steps that are no number: taken as 0", int(np.count_nonzero(~good)))
    start_ns = to_ns(document.startTime, 1_000) or 0
    near = np.abs(np.cumsum(values.astype(np.float64)) + start_ns) < 2**62
    return np.cumsum(values) + start_ns, near


def _choose_drawn(place: Int32, tree: _Tree, integrity: Integrity) -> Int32:
    """Return the node that is drawn for each sample, _GC, or _NONE."""
    kinds = np.array([{_ROOT: 1, _IDLE: 2, _PROGRAM: 3, _COLLECTOR: 4}.get(name, 0) for name in tree.name] + [1], np.int8)
    kind = kinds[place]                              # place -1 takes the last: nothing
    top = np.array([*tree.top, -1], np.int32)[place]
    lone = np.zeros(place.size, np.bool_)
    if place.size > 2:
        lone[1:-1] = (kind[1:-1] == 3) & (kind[:-2] == 0) & (kind[2:] == 0) & (top[:-2] == top[2:])
        place = np.where(lone, np.roll(place, 1), place)
        kind = kinds[place]
    integrity.repair("a lone (program) between two samples of one call: drawn as the sample before it", int(np.count_nonzero(lone)))
    for number, name in ((1, _ROOT), (2, _IDLE), (3, _PROGRAM)):
        integrity.remark(f"samples of {name}: nothing is drawn", int(np.count_nonzero((kind == number) & (place >= 0))))
    drawn = np.array([*tree.drawn, _NONE], np.int32)[place]
    integrity.repair(f"samples of calls deeper than {MAX_DEPTH} levels: drawn to that depth", int(np.count_nonzero(
        (drawn != place) & (kind == 0))))
    return np.where(kind == 4, _GC, np.where(kind == 0, drawn, _NONE)).astype(np.int32)


def _draw(slices: StackSlices, tree: _Tree, frames: Frames, samples: tuple[Int32, Ints, int], integrity: Integrity) -> None:
    shown, times, end_ns = samples
    changes = np.flatnonzero(np.diff(shown, prepend=_NONE - 2))
    collector = frames.add(_COLLECTOR, {}, Category.OTHER)
    under = _NONE                                    # the stack below the garbage collector
    for start in range(0, changes.size, 65_536):
        here = changes[start:start + 65_536]
        for number, node, at_ns in zip(here.tolist(), shown[here].tolist(), times[here].tolist(), strict=True):
            if slices.full:
                integrity.drop(f"samples beyond the first {MAX_SLICES:,} slices", shown.size - number)
                slices.keep(0, at_ns)
                return
            if node == _GC:
                slices.open(collector, at_ns)
                continue
            _switch(slices, tree, under, node, at_ns)
            under = node
    slices.keep(0, end_ns)


def _switch(slices: StackSlices, tree: _Tree, before: int, node: int, at_ns: int) -> None:
    """End the calls of `before` that `node` does not lie in, and begin those around `node`."""
    opened: list[int] = []
    parent, depth = tree.parent, tree.depth
    while node != before:
        if before < 0 or (node >= 0 and depth[node] >= depth[before]):
            opened.append(node)
            node = parent[node]
        else:
            before = parent[before]
    slices.keep(depth[node] + 1 if node >= 0 else 0, at_ns)
    for call in reversed(opened):
        slices.open(tree.frame[call], at_ns)
