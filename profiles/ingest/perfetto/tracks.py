"""Track descriptors (a tree of processes, threads, counters and custom tracks) to tracks of the timeline."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from profiles.ingest.core.build import TraceBuilder
from profiles.ingest.core.protobuf_messages import text
from profiles.ingest.trace import Integrity, Track

MAX_DESCRIPTORS = 1_000_000
MAX_DEPTH = 64
_UNITS = {1: "ns", 2: "", 3: "bytes"}
_AGENT = re.compile(r"Agent \[(\d{1,6})\] \(GPU\)|^GPU (\d{1,6})\b")
_STREAM = re.compile(r"(?:stream|queue)\D{0,6}(\d{1,18})", re.IGNORECASE)
_BRACKETS = re.compile(r"[\[\]\"]+")    # rocprofv3 writes STREAM [" 1 "]
_EXPLICIT = 3                            # TrackDescriptor.child_ordering


@dataclass
class Node:
    """A track as its descriptors say; several of one uuid add up."""

    parent: int = 0
    name: str = ""
    pid: int | None = None
    tid: int | None = None
    is_process: bool = False
    is_counter: bool = False
    unit: str | None = None
    factor: int = 1
    incremental: bool = False
    rank: int = 0
    children_ranked: bool = False


class Tracks:
    """Numbers tracks by uuid and names them at the end, when all descriptors are known."""

    def __init__(self, builder: TraceBuilder, integrity: Integrity) -> None:
        self.builder, self.integrity = builder, integrity
        self.nodes: dict[int, Node] = {}
        self.numbers: dict[int, int] = {}                  # uuid -> builder's number
        self.processes: dict[int, str] = {}                # pid -> name
        self.threads: dict[tuple[int, int], str] = {}      # pid, tid -> name
        self._mine: list[int] = []
        self._new_lanes: list[tuple[int, int]] = []
        self._lanes: dict[int, tuple[int, int]] = {}       # builder's number of a thread known by ids alone

    def describe(self, message: Any) -> None:
        """Take a TrackDescriptor."""
        node = self.nodes.get(message.uuid)
        if node is None:
            if len(self.nodes) >= MAX_DESCRIPTORS:
                self.integrity.repair("track descriptors beyond the first million were not used")
                return
            node = self.nodes[message.uuid] = Node()
        node.parent = message.parent_uuid or node.parent
        node.name = text((message.name or message.static_name or message.atrace_name)[:1000]) or node.name
        node.rank = message.sibling_order_rank or node.rank
        node.children_ranked |= message.child_ordering == _EXPLICIT
        if message.HasField("process"):
            self.process(message.process, node)
        if message.HasField("thread"):
            self.thread(message.thread, node)
        if message.HasField("counter"):
            counter = message.counter
            node.is_counter, node.incremental = True, counter.is_incremental
            node.unit = text(counter.unit_name[:40]) or _UNITS.get(counter.unit, "")
            node.factor = counter.unit_multiplier or 1
            if counter.type == 1:
                node.unit, node.name = "ns", node.name or "thread time"
            elif counter.type == 2:
                node.name = node.name or "thread instructions"

    def process(self, message: Any, node: Node | None = None) -> None:
        name = text((message.process_name or (message.cmdline[0] if message.cmdline else b""))[:500])
        if name:
            self._remember(self.processes, message.pid, name)
        if node:
            node.is_process, node.pid = True, message.pid

    def thread(self, message: Any, node: Node | None = None) -> None:
        if message.thread_name:
            self._remember(self.threads, (message.pid, message.tid), text(message.thread_name[:500]))
        if node:
            node.pid, node.tid = message.pid, message.tid

    def process_tree(self, message: Any) -> None:
        for process in message.processes:
            if process.cmdline:
                self._remember(self.processes, process.pid, text(process.cmdline[0][:500]))
        for thread in message.threads:
            if thread.name:
                self._remember(self.threads, (thread.tgid, thread.tid), text(thread.name[:500]))

    def _remember(self, names: dict[Any, str], key: Any, name: str) -> None:
        if len(names) < MAX_DESCRIPTORS or key in names:
            names[key] = name

    def number(self, uuid: int) -> int:
        """The builder's number of a track, which may be described later."""
        number = self.numbers.get(uuid)
        if number is None:
            number = self.builder.track(("uuid", uuid), lambda: self._own(uuid))
            if len(self.numbers) < MAX_DESCRIPTORS:
                self.numbers[uuid] = number
        return number

    def _own(self, uuid: int) -> Track:
        """Called for a track that is not one of those beyond the builder's limit, which share one."""
        self._mine.append(uuid)
        return Track(kind="other", name="", group="")

    def lane(self, pid: int, tid: int) -> int:
        """The number of a thread that old-style events name by its ids."""
        def own() -> Track:
            self._new_lanes.append((pid, tid))
            return Track(kind="other", name="", group="")
        number = self.builder.track(("thread", pid, tid), own)
        if self._new_lanes:
            self._lanes[number] = self._new_lanes.pop()
        return number

    def finish(self, gpu: dict[int, tuple[int | None, int | None]]) -> None:
        """Describe every numbered track.

        `gpu`: number of a track with GPU work -> its device and stream, where known.
        """
        for place, uuid in enumerate(sorted(self._mine, key=self._place)):
            number = self.numbers[uuid]
            self.builder.describe(number, self._track(uuid, number, place, gpu))
        for number, (pid, tid) in self._lanes.items():
            self.builder.describe(number, Track(
                kind="thread", name=self._thread_name(pid, tid), group=self._group(pid), sort=tid, pid=str(pid), tid=str(tid)))

    def _track(self, uuid: int, number: int, place: int, gpu: dict[int, tuple[int | None, int | None]]) -> Track:
        node = self.nodes.get(uuid, Node())
        pid, names = self._path(uuid)
        name = " / ".join(names)[-500:] or (f"track {uuid}" if node.tid is None else "")
        if node.is_counter:
            device = _agent(name)
            return Track(kind="counter", name=name, group=f"GPU {device}" if device is not None else self._group(pid), sort=place,
                         pid=None if pid is None else str(pid), device=device, unit=node.unit)
        if number in gpu:
            device, stream = gpu[number]
            match = _STREAM.search(name)
            stream = int(match[1]) if stream is None and match else stream
            group = f"GPU {device}" if device is not None else "GPU"
            return Track(kind="stream", name=" ".join(_BRACKETS.sub(" ", name).split()), group=group, sort=place,
                         pid=None if pid is None else str(pid), device=device, stream=stream)
        if node.tid is not None:
            return Track(kind="thread", name=self._thread_name(node.pid or 0, node.tid), group=self._group(node.pid),
                         sort=place, pid=str(node.pid), tid=str(node.tid))
        if node.is_process:
            name = "process"
        return Track(kind="thread" if pid is not None else "other", name=name.strip() or "events", group=self._group(pid),
                     sort=place, pid=None if pid is None else str(pid))

    def _group(self, pid: int | None) -> str:
        if pid is None:
            return "trace"
        name = self.processes.get(pid)
        return f"{name} ({pid})" if name else f"process {pid}"

    def _thread_name(self, pid: int, tid: int) -> str:
        name = self.threads.get((pid, tid))
        return f"{name} ({tid})" if name else f"thread {tid}"

    def _path(self, uuid: int) -> tuple[int | None, list[str]]:
        """The process above a track and the names from there down to it."""
        names: list[str] = []
        node = self.nodes.get(uuid)
        for _ in range(MAX_DEPTH):
            if node is None:
                return None, names[::-1]
            if node.is_process:
                return node.pid, names[::-1]
            if node.tid is not None and names:
                return node.pid, [*names, self._thread_name(node.pid or 0, node.tid)][::-1]
            if node.name:
                names.append(node.name)
            if node.tid is not None:
                return node.pid, names[::-1]
            node = self.nodes.get(node.parent)
        return None, names[::-1]

    def _place(self, uuid: int) -> tuple[Any, ...]:
        """Sort key: from the root down, each level by its rank where the parent asks for it, then threads by id, then name."""
        steps: list[tuple[int, int, str]] = []
        for _ in range(MAX_DEPTH):
            node = self.nodes.get(uuid)
            if node is None:
                break
            parent = self.nodes.get(node.parent)
            rank = node.rank if parent is not None and parent.children_ranked else 0
            main = node.tid is not None and node.tid == node.pid
            steps.append((rank, -1 if main else node.tid if node.tid is not None else 1 << 62, node.name))
            uuid = node.parent
        return tuple(steps[::-1])


def _agent(name: str) -> int | None:
    """The GPU that a counter's name says it belongs to: "ALLOCATE BYTES on Agent [4] (GPU)"."""
    match = _AGENT.search(name)
    return int(match[1] or match[2]) if match else None
