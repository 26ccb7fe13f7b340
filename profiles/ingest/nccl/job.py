"""What an NCCL log says, put together: communicators of ranks with their rings, trees, connections and collectives."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import NamedTuple

from profiles.ingest.nccl import lines
from profiles.ingest.nccl.lines import Place
from profiles.ingest.trace import Integrity

MAX_COMMUNICATORS, MAX_RANKS = 1_000, 20_000
MAX_ROWS = 20_000                # of rings, trees, connections, kinds of collectives: each
MAX_TEXTS = 2_000                # lines of topology, distinct warnings, settings: each
MAX_PENDING = 50_000             # lines of one process before it names its communicator


class Call(NamedTuple):
    """One kind of collective: calls that differ in nothing that matters for its cost."""

    name: str
    elements: int
    datatype: int
    operation: str
    root: int | None

    @property
    def bytes(self) -> int | None:
        datatype = lines.DATATYPES.get(self.datatype)
        return self.elements * datatype[1] if datatype else None


class Choice(NamedTuple):
    """What NCCL chose for a size."""

    algorithm: str
    protocol: str
    time_us: float | None        # of NCCL's own model
    channels: int | None


@dataclass
class Rank:
    number: int
    place: Place | None = None
    nvml: int | None = None
    bus: str = ""
    local: int | None = None
    init_s: float | None = None


@dataclass
class Communicator:
    name: str                    # the id that all its ranks print, else a number in the order of the log
    size: int
    ranks: dict[int, Rank] = field(default_factory=dict)
    nodes: int | None = None
    local_ranks: set[int] = field(default_factory=set)
    channels: tuple[int, int | None, int] | None = None             # collective, NVLS, point to point
    network: str = ""
    order: dict[int, tuple[list[int], bool]] = field(default_factory=dict)      # channel -> ranks, whole
    following: dict[int, dict[int, int]] = field(default_factory=dict)          # channel -> rank -> next
    parents: dict[int, dict[int, int]] = field(default_factory=dict)            # channel -> rank -> parent
    connections: dict[tuple[int, int, str, str], set[int]] = field(default_factory=dict)    # from, to, end, transport -> channels
    calls: dict[Call, Counter[int]] = field(default_factory=dict)               # -> calls by rank
    choices: dict[tuple[str, int], Counter[Choice]] = field(default_factory=dict)       # (collective or "", bytes)
    patterns: dict[tuple[str, ...], None] = field(default_factory=dict)

    def rank(self, number: int) -> Rank:
        return self.ranks.setdefault(number, Rank(number))

    def absorb(self, other: Communicator) -> None:
        """Add what other ranks of it say."""
        self.ranks |= {number: rank for number, rank in other.ranks.items() if rank.place is not None or number not in self.ranks}
        self.nodes, self.channels, self.network = self.nodes or other.nodes, self.channels or other.channels, (
            self.network or other.network)
        self.local_ranks |= other.local_ranks
        self.order |= other.order
        self.patterns |= other.patterns
        for mine, theirs in ((self.following, other.following), (self.parents, other.parents)):
            for channel, ranks in theirs.items():
                mine.setdefault(channel, {}).update(ranks)
        for key, channels in other.connections.items():
            self.connections.setdefault(key, set()).update(channels)
        for call, by_rank in other.calls.items():
            self.calls.setdefault(call, Counter()).update(by_rank)
        for size, choices in other.choices.items():
            self.choices.setdefault(size, Counter()).update(choices)


@dataclass
class Job:
    """All communicators of the processes that wrote the log."""

    integrity: Integrity
    version: tuple[str, str] | None = None
    communicators: dict[str, Communicator] = field(default_factory=dict)
    settings: dict[tuple[str, str], None] = field(default_factory=dict)
    warnings: Counter[tuple[str, str, str]] = field(default_factory=Counter)    # process, source, text
    topology: list[str] = field(default_factory=list)
    other: Counter[tuple[str, str]] = field(default_factory=Counter)            # level, text with # for numbers
    networks: dict[str, None] = field(default_factory=dict)
    _members: dict[tuple[str, int, str], tuple[Communicator, int]] = field(default_factory=dict)    # host, pid, pointer
    _current: dict[Place, tuple[Communicator, int]] = field(default_factory=dict)
    _last: dict[Place, tuple[Communicator, int]] = field(default_factory=dict)
    _pending: dict[Place, list[lines.Line]] = field(default_factory=dict)
    _made: Counter[tuple[str, int, int]] = field(default_factory=Counter)
    _drawer: Place | None = None

    def absorb(self, other: Job) -> None:
        """Add what another file of the same job says."""
        self.version = self.version or other.version
        self.settings |= other.settings
        self.warnings.update(other.warnings)
        self.networks |= other.networks
        self.other.update(other.other)
        self.topology = self.topology or other.topology
        for name, comm in other.communicators.items():
            self.communicators.setdefault(name, Communicator(name, comm.size)).absorb(comm)
        mine, theirs = self.integrity, other.integrity
        mine.records_read += theirs.records_read
        mine.records_kept += theirs.records_kept
        for counts, more in ((mine.kinds, theirs.kinds), (mine.not_kept, theirs.not_kept), (mine.repaired, theirs.repaired),
                             (mine.remarks, theirs.remarks)):
            counts |= {reason: counts.get(reason, 0) + count for reason, count in more.items()}
        mine.truncated_at = mine.truncated_at or theirs.truncated_at
        mine.notes += theirs.notes

    def take(self, line: lines.Line) -> bool:
        """Take one line of NCCL, of a form that is not read as one of its kind; False where there are too many kinds."""
        if line.level == "WARN":
            key = (f"{line.place.host}:{line.place.pid}", line.source, line.text[:1_000])
            if key in self.warnings or len(self.warnings) < MAX_TEXTS:
                self.warnings[key] += 1
            return True
        if line.level == "INFO" and (
                self._take_member(line) or self._take_call(line) or self._take_connection(line) or self._take_graph(line)):
            return True
        kind = (line.level, lines.without_numbers(line.text))
        if kind not in self.other and len(self.other) >= MAX_TEXTS:
            return False
        self.other[kind] += 1
        return True

    def _take_member(self, line: lines.Line) -> bool:
        if match := lines.INIT.match(line.text):
            pointer, number, size = match[1], int(match[2]), int(match[3])
            name = match[7] or (f"split {match[10]} of {self._name(line.place, match[8])}" + (f" ({match[9]})" if match[9] else "")
                                if match[8] else "")
            comm = self._hold(line.place, pointer, name, number, size)
            if comm:
                rank = comm.rank(number)
                rank.place, rank.bus = line.place._replace(device=int(match[4])), match[6]
                rank.nvml = int(match[5]) if match[5] else rank.nvml
                if match[11] == "COMPLETE":
                    self._current.pop(line.place, None)
            return True
        if match := lines.NODES.match(line.text):
            comm = self._hold(line.place, match[1], "", int(match[2]), int(match[3]))
            if comm:
                comm.nodes = int(match[4])
                comm.local_ranks.add(int(match[5]))
                comm.rank(int(match[2])).local = int(match[6])
            return True
        return False

    def _name(self, place: Place, pointer: str) -> str:
        member = self._members.get((place.host, place.pid, pointer))
        return member[0].name if member else pointer

    def _hold(self, place: Place, pointer: str, name: str, number: int, size: int) -> Communicator | None:
        """The communicator of this pointer in this process; from here on the one that the process speaks of."""
        key = (place.host, place.pid, pointer)
        member = self._members.get(key)
        renamed = member is not None and name and member[0].name != name and " of " not in member[0].name
        if member is None or member[0].size != size or member[1] != number or renamed:
            if len(self._members) >= MAX_RANKS or size > 10**6:
                self.integrity.remark(f"ranks beyond the first {MAX_RANKS:,}")
                return None
            if not name:         # before 2.18 no id is printed: the n-th one of a size is the same on all ranks
                group = (place.host, place.pid * 1024 + (place.device or 0), size)
                self._made[group] += 1
                name = f"{self._made[group]} of {size} ranks"
            if name not in self.communicators and len(self.communicators) >= MAX_COMMUNICATORS:
                self.integrity.remark(f"communicators beyond the first {MAX_COMMUNICATORS:,}")
                return None
            member = (self.communicators.setdefault(name, Communicator(name, size)), number)
            self._members[key] = member
        member[0].rank(number)
        self._speak_of(place, member)
        return member[0]

    def _speak_of(self, place: Place, member: tuple[Communicator, int]) -> None:
        """Lines of this process that name no communicator are about this one now, as are those that came before its name."""
        self._current[place] = self._last[place] = member
        for line in self._pending.pop(place, ()):
            self.take(line)

    def finish(self) -> None:
        """What came after a communicator was complete belongs to the last one of its process."""
        for place in list(self._pending):
            if place in self._last:
                self._speak_of(place, self._last[place])
        lost = sum(len(waiting) for waiting in self._pending.values())
        self.integrity.remark("lines about a communicator that this log does not name", lost)

    def _take_call(self, line: lines.Line) -> bool:
        if match := lines.CALL.match(line.text):
            member = self._members.get((line.place.host, line.place.pid, match[9]))
            if member is None:
                comm = self._hold(line.place, match[9], f"{match[9]} of {line.place.host}:{line.place.pid}", -1, int(match[10]))
                member = (comm, -1) if comm else None
            if member is None:
                return True
            self._speak_of(line.place, member)
            name = match[1]
            operation = int(match[7])
            call = Call(name, int(match[5]), int(match[6]),
                        lines.OPERATIONS.get(operation, "of the program") if name in lines.REDUCING else "",
                        int(match[8]) if name in ("Broadcast", "Reduce", "Gather", "Scatter") else None)
            if call in member[0].calls or len(member[0].calls) < MAX_ROWS:
                member[0].calls.setdefault(call, Counter())[member[1]] += 1
            else:
                self.integrity.remark(f"kinds of collectives beyond the first {MAX_ROWS:,}")
            return True
        if match := lines.CHOICE.fullmatch(line.text):
            comm = self._spoken_of(line)
            if comm and (len(comm.choices) < MAX_ROWS or (match[1] or "", int(match[2])) in comm.choices):
                channels = int(match[7]) - int(match[6]) + 1 if match[6] else None
                choice = Choice(lines.algorithm_name(match[3]), lines.protocol_name(match[4]), _number(match[5]), channels)
                comm.choices.setdefault((match[1] or "", int(match[2])), Counter())[choice] += 1
            return True
        return False

    def _spoken_of(self, line: lines.Line) -> Communicator | None:
        """The communicator that a line is about; None where the process names it later: the line waits."""
        if member := self._current.get(line.place):
            return member[0]
        waiting = self._pending.setdefault(line.place, [])
        if len(waiting) < MAX_PENDING and len(self._pending) < MAX_RANKS:
            waiting.append(line)
        return None

    def _take_connection(self, line: lines.Line) -> bool:
        text = line.text
        if match := lines.CONNECTION.fullmatch(text):
            if comm := self._spoken_of(line):
                key = (int(match[2]), int(match[3]), match[4] or "", match[5].strip())
                _add(comm.connections, key, self.integrity).add(int(match[1]))
        elif match := lines.RING_ORDER.fullmatch(text):
            if (comm := self._spoken_of(line)) and len(comm.order) < MAX_ROWS:
                comm.order[int(match[1])] = ([int(rank) for rank in match[3].split()], match[4] is None)
        elif match := lines.RING.fullmatch(text):
            if (comm := self._spoken_of(line)) and len(comm.following) < MAX_ROWS:
                comm.following.setdefault(int(match[1]), {})[int(match[3])] = int(match[4])
        elif match := lines.TREES.match(text):
            comm = self._spoken_of(line)
            for channel, _, rank, parent in lines.TREE.findall(match[1]) if comm else ():
                if comm and len(comm.parents) < MAX_ROWS:
                    comm.parents.setdefault(int(channel), {})[int(rank)] = int(parent)
        else:
            return False
        return True

    def _take_graph(self, line: lines.Line) -> bool:
        text = line.text
        if match := lines.SETTING.match(text):
            if len(self.settings) < MAX_TEXTS:
                self.settings[match[1], match[2].strip()] = None
        elif match := lines.CHANNELS.match(text):
            if comm := self._spoken_of(line):
                comm.channels = (int(match[1]), int(match[2]) if match[2] else None, int(match[3]))
        elif match := lines.NETWORK.match(text):
            if comm := self._spoken_of(line):
                comm.network = match[1].strip()
        elif match := lines.PATTERN.match(text):
            if (comm := self._spoken_of(line)) and len(comm.patterns) < 100:
                comm.patterns[match.groups()] = None
        elif match := lines.TIMINGS.match(text):
            if comm := self._spoken_of(line):
                comm.rank(int(match[1])).init_s = _number(match[2])
        elif text.startswith(("NET/", "TOPO/NET", "Bootstrap", "ncclNet", "NVLS ", "NVLS multicast")):
            if len(self.networks) < MAX_TEXTS:
                self.networks[text[:300]] = None
        else:
            return self._take_topology(line)
        return True

    def _take_topology(self, line: lines.Line) -> bool:
        """Lines between "=== System" and "====": those of the first process that prints any; the others print the same node."""
        if lines.SYSTEM.match(line.text):
            if not self.topology:
                self._drawer = line.place
                self.topology.append(line.text)
            return True
        if line.text.startswith("=========="):
            self._drawer = None if self._drawer == line.place else self._drawer
            return True
        if self._drawer != line.place or len(self.topology) >= MAX_TEXTS:
            return False
        self.topology.append(line.text[:400])
        return True


def _add(connections: dict[tuple[int, int, str, str], set[int]], key: tuple[int, int, str, str], integrity: Integrity) -> set[int]:
    if key not in connections and len(connections) >= MAX_ROWS:
        integrity.remark(f"connections beyond the first {MAX_ROWS:,}")
        return set()
    return connections.setdefault(key, set())


def _number(text: str | None) -> float | None:
    try:
        return float(text) if text else None
    except ValueError:
        return None
