"""Log of NCCL (`NCCL_DEBUG=INFO`) of one rank or of several → `Summary`: communicators, rings, connections, collectives."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from profiles.ingest.core.source import Source
from profiles.ingest.core.text_lines import complete_lines, head_lines
from profiles.ingest.nccl.job import Call, Choice, Communicator, Job
from profiles.ingest.nccl.lines import DATATYPES, PATTERNS, parse_line, parse_version
from profiles.ingest.trace import Cell, CellRows, Integrity, Summary, SummaryTable, TraceError, summary_columns, with_rows

# Tables of what an NCCL log says.

_SHOWN_RANKS = 64                # of a ring or a tree in one cell
_GATHERED = ("AllGather", "ReduceScatter")


def tables(job: Job) -> list[SummaryTable]:
    """Return the tables that have rows; what people look for first stands first."""
    comms = list(job.communicators.values())
    all_tables = [
        _collectives(comms),
        SummaryTable("Communicators", summary_columns("Communicator: text | Ranks: count | Nodes: count | In this log: count | "
                                                      "GPUs per node: text | Channels: count | NVLS channels: count | "
                                                      "P2P channels: count | Network: text | Transports: text | Calls: count | "
                                                      "Bytes: bytes"),
                     [_communicator(comm) for comm in comms],
                     "Bytes: per rank, count × size of the type. In this log: ranks that wrote a line of it."),
        SummaryTable("Connections", summary_columns("Communicator: text | From rank: count | To rank: count | "
                                                    "Transport: text | End: text | Channels: count | Which: text"),
                     [row for comm in comms for row in _connections(comm)],
                     "Each line once however many channels use it. NET is printed by both ends, P2P and SHM by the sender."),
        SummaryTable("Rings", summary_columns("Communicator: text | Channel: count | Ranks in order: text | Ranks: count"),
                     [row for comm in comms for row in _rings(comm)],
                     "From rank 0's line, else joined from what each rank says of its neighbours."),
        SummaryTable("Trees", summary_columns("Communicator: text | Channel: count | Root: text | Child → parent: text | "
                                              "Ranks: count"),
                     [row for comm in comms for row in _trees(comm)], "Of the ranks whose lines are in this log."),
        SummaryTable("Graphs", summary_columns("Communicator: text | Pattern: text | Channels: count | Within a node: B/s | "
                                               "Between nodes: B/s | Paths: text | Crosses NICs: text"),
                     [_pattern(comm, pattern) for comm in comms for pattern in comm.patterns],
                     "What NCCL's search found per pattern; bandwidth per channel as its model has it."),
        SummaryTable("Ranks", summary_columns("Communicator: text | Rank: count | Host: text | Process: text | "
                                              "CUDA device: text | NVML device: text | Bus: text | Local rank: count | "
                                              "Initialisation: ns"),
                     [row for comm in comms for row in _ranks(comm)]),
        SummaryTable("Warnings", summary_columns("Process: text | Place: text | Text: text | Times: count"),
                     [[process, place or None, text, times] for (process, place, text), times in job.warnings.most_common()]),
        SummaryTable("Settings", summary_columns("Variable: text | Value: text"),
                     [[name, value] for name, value in sorted(job.settings)],
                     "Environment variables that NCCL says it followed."),
        SummaryTable("Networks", summary_columns("What NCCL says of network and NVLS: text"), [[text] for text in job.networks]),
        SummaryTable("Other lines", summary_columns("Level: text | Text: text | Times: count"),
                     [[level, text, times] for (level, text), times in job.other.most_common()],
                     "What else NCCL printed; # stands for numbers."),
        SummaryTable("Topology", summary_columns("As NCCL drew it: text"), [[text.replace(" ", "\u00a0")] for text in job.topology],
                     "CPUs, PCI switches, GPUs and NICs of the first node, bandwidth of each link in GB/s in brackets."),
    ]
    return with_rows(all_tables)


def _communicator(comm: Communicator) -> list[Cell]:
    kinds: Counter[str] = Counter()
    for (_, _, _, transport), channels in comm.connections.items():
        kinds[transport] += len(channels)
    calls = sum(max(by_rank.values()) for by_rank in comm.calls.values())
    call_sizes = [(call.bytes, max(by_rank.values())) for call, by_rank in comm.calls.items()]
    moved = sum(size * times for size, times in call_sizes if size is not None)
    planned = comm.channels or (None, None, None)
    log_ranks = sum(rank.place is not None for rank in comm.ranks.values())
    return [comm.name, comm.size, comm.nodes, log_ranks, ", ".join(map(str, sorted(comm.local_ranks))) or None, *planned,
            comm.network or None, ", ".join(name for name, _ in kinds.most_common(6)) or None, calls or None, moved or None]


def _connections(comm: Communicator) -> Iterable[list[Cell]]:
    for (source, target, end, transport), channels in sorted(comm.connections.items()):
        yield [comm.name, source, target, transport, end or None, len(channels), _ranges(sorted(channels))]


def _ranges(numbers: list[int]) -> str:
    """[0, 1, 2, 5] -> "0–2, 5"."""
    parts: list[list[int]] = []
    for number in numbers:
        if parts and number == parts[-1][1] + 1:
            parts[-1][1] = number
        else:
            parts.append([number, number])
    return ", ".join(str(low) if low == high else f"{low}–{high}" for low, high in parts[:_SHOWN_RANKS])


def _rings(comm: Communicator) -> Iterable[list[Cell]]:
    for channel in sorted({*comm.order, *comm.following}):
        order, whole = comm.order.get(channel, ([], False))
        joined = _joined(comm.following.get(channel, {}))
        ranks = order if whole or len(order) >= len(joined) else joined
        text = " → ".join(map(str, ranks[:_SHOWN_RANKS])) + (" → …" if len(ranks) > _SHOWN_RANKS or len(ranks) < comm.size else "")
        yield [comm.name, channel, text, comm.size if len(ranks) == comm.size else len(ranks)]


def _joined(following: dict[int, int]) -> list[int]:
    """Return the ranks from the least on, as far as each one's next is known."""
    if not following:
        return []
    ranks, rank, rank_set = [], min(following), set()
    while rank not in rank_set:
        rank_set.add(rank)
        ranks.append(rank)
        if rank not in following:
            break
        rank = following[rank]
    return ranks


def _trees(comm: Communicator) -> Iterable[list[Cell]]:
    for channel, parents in sorted(comm.parents.items()):
        roots = ", ".join(str(rank) for rank, parent in sorted(parents.items()) if parent < 0)
        edges = [f"{rank} → {parent}" for rank, parent in sorted(parents.items()) if parent >= 0]
        yield [comm.name, channel, roots or None, ", ".join(edges[:_SHOWN_RANKS]) + (", …" if len(edges) > _SHOWN_RANKS else ""),
               len(parents)]


def _pattern(comm: Communicator, pattern: tuple[str, ...]) -> list[Cell]:
    number, cross, channels, inside, between, near, far, _ = pattern
    return [comm.name, PATTERNS.get(int(number), f"pattern {number}"), int(channels), _gb(inside), _gb(between), f"{near}/{far}",
            {"0": "no", "1": "yes", "2": "where it helps"}.get(cross, cross)]


def _gb(text: str) -> float | None:
    try:
        return float(text) * 1e9
    except ValueError:
        return None


def _ranks(comm: Communicator) -> Iterable[list[Cell]]:
    for number, rank in sorted(comm.ranks.items()):
        if rank.place is not None:
            yield [comm.name, number if number >= 0 else None, rank.place.host, str(rank.place.pid),
                   None if rank.place.device is None else str(rank.place.device), None if rank.nvml is None else str(rank.nvml),
                   _bus(rank.bus), rank.local, None if rank.init_s is None else round(rank.init_s * 1e9)]


def _bus(text: str) -> str | None:
    """"1b000" → "0000:1b:00.0": NCCL prints domain, bus, device and function as one hexadecimal number (src/misc/utils.cc)."""
    if not text:
        return None
    number = int(text, 16)
    return f"{number >> 20:04x}:{number >> 12 & 0xFF:02x}:{number >> 4 & 0xFF:02x}.{number & 0xF:x}"


def _collectives(comms: list[Communicator]) -> SummaryTable:
    columns = summary_columns("Collective: text | Size: bytes | Count: count | Type: text | Operation: text | Calls: count | "
                              "Bytes: bytes | Algorithm: text | Protocol: text | Channels: count | Model: ns | Ranks: count | "
                              "Ranks calling: count | Communicator: text")
    rows: CellRows = []
    for comm in comms:
        used: set[tuple[str, int]] = set()
        for call, by_rank in comm.calls.items():
            times = max(by_rank.values())
            operation = call.operation + (f" to rank {call.root}" if call.root is not None else "")
            rows.append([call.name, call.bytes, call.elements, DATATYPES.get(call.datatype, (f"type {call.datatype}", 0))[0],
                         operation or None, times, None if call.bytes is None else call.bytes * times,
                         *_choice(_choices(comm, call, used)), comm.size, len(by_rank), comm.name])
        for key, choices in comm.choices.items():
            if key not in used:
                rows.append([key[0] or None, key[1], None, None, None, None, None, *_choice(choices), comm.size, None, comm.name])
    rows.sort(key=lambda row: (-(row[6] if isinstance(row[6], int) else -1), -(row[1] if isinstance(row[1], int) else -1)))
    return SummaryTable("Collectives", columns, rows,
                        "Size: count × size of the type, as the call states it (of AllGather and ReduceScatter one rank's part). "
                        "Calls: of the rank that called most. Model: the time that NCCL's own model expects, no measurement.")


def _choices(comm: Communicator, call: Call, used: set[tuple[str, int]]) -> Counter[Choice]:
    """Return what was chosen for calls of this size.

    Older versions name no collective, and count what all ranks together gather.
    """
    choices: Counter[Choice] = Counter()
    if call.bytes is None:
        return choices
    sizes = (call.bytes, call.bytes * comm.size) if call.name in _GATHERED else (call.bytes,)
    for key in [(name, size) for name in (call.name, "") for size in sizes]:
        if key in comm.choices:
            used.add(key)
            choices += comm.choices[key]
            break
    return choices


def _choice(choices: Counter[Choice]) -> list[Cell]:
    """Algorithm, protocol, channels, time of the model; several of them joined."""
    if not choices:
        return [None, None, None, None]
    listed = [choice for choice, _ in choices.most_common(4)]
    only = listed[0] if len({(pick.algorithm, pick.protocol) for pick in listed}) == 1 else None
    return [", ".join(dict.fromkeys(pick.algorithm for pick in listed)), ", ".join(dict.fromkeys(pick.protocol for pick in listed)),
            listed[0].channels if only else None,
            round(listed[0].time_us * 1e3) if only and listed[0].time_us is not None else None]


def headline(job: Job) -> str:
    """"NCCL 2.21.5, CUDA 12.4: 2 ranks on 1 node over P2P/CUMEM; 12 calls move 48.0 MB per rank, most of it AllReduce."."""
    comms = [communicator for communicator in job.communicators.values() if communicator.ranks]
    first = f"NCCL {job.version[0]}{', ' + job.version[1] if job.version[1] else ''}" if job.version else "NCCL"
    if not comms:
        return f"{first}: no communicator in this log."
    largest = max(comms, key=lambda each: each.size)
    where = f" on {largest.nodes} node{'s' if largest.nodes != 1 else ''}" if largest.nodes else ""
    kinds: Counter[str] = Counter()
    bytes_by_name: dict[str, int] = defaultdict(int)
    calls = 0
    for comm in comms:
        for (_, _, _, transport), channels in comm.connections.items():
            kinds["/".join(transport.split("/")[:2])] += len(channels)
        for call, by_rank in comm.calls.items():
            calls += max(by_rank.values())
            bytes_by_name[call.name] += (call.bytes or 0) * max(by_rank.values())
    over = f" over {' and '.join(name for name, _ in kinds.most_common(2))}" if kinds else ""
    most = max(bytes_by_name, key=lambda name: bytes_by_name[name], default="")
    traffic = f"; {calls:,} calls, most bytes in {most}" if most else "; no collectives (NCCL_DEBUG_SUBSYS=COLL prints them)"
    warnings = sum(job.warnings.values())
    warned = f"; {warnings:,} warning{'s' if warnings != 1 else ''}" if warnings else ""
    plural = "s" if largest.size != 1 else ""
    groups = f" in {len(comms)} communicators" if len(comms) > 1 else ""
    return f"{first}: {largest.size} rank{plural}{where}{groups}{over}{traffic}{warned}."


FORMAT = "nccl-log"
_HINT = "Record with NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,GRAPH,ENV,TUNING,COLL NCCL_DEBUG_FILE=nccl.%h.%p.log ./program"
_UNREAD = "a line of NCCL of a further kind: there are too many"


@dataclass
class NcclLog(Summary):
    """The tables, and what they were made of: the logs of several ranks are put together before tables are made."""

    job: Job = field(default_factory=lambda: Job(Integrity()))


def sniff(head: bytes) -> bool:
    return any(parse_line(line) is not None or line.startswith("NCCL version ") for line in head_lines(head, 2_000))


def read(source: Source) -> NcclLog:
    """Raises TraceError where no line says anything of a communicator or a collective."""
    integrity = Integrity()
    job, other = Job(integrity), 0
    for line in complete_lines(source, integrity):
        version, parsed = parse_version(line), parse_line(line)
        if version is None and parsed is None:
            other += 1
            continue
        integrity.records_read += 1
        integrity.count("line of NCCL")
        if version:
            job.version = job.version or version
        if version or (parsed is not None and job.take(parsed)):
            integrity.records_kept += 1
        else:
            integrity.drop(_UNREAD)
    job.finish()
    integrity.repair("lines of other output skipped", other)
    summary = _summary(job)
    if not summary.tables:
        raise TraceError("the log", "no line of it says anything of a communicator, a collective or a warning", _HINT)
    return summary


def join(logs: Sequence[NcclLog]) -> NcclLog:
    """Return the logs of one job's ranks as one: NCCL writes a file per process where NCCL_DEBUG_FILE holds %p."""
    job = Job(Integrity())
    for log in logs:
        job.absorb(log.job)
    return _summary(job)


def _summary(job: Job) -> NcclLog:
    metadata = {"headline": headline(job)}
    if job.version:
        metadata |= {"NCCL": job.version[0], "runtime": job.version[1]}
    return NcclLog(FORMAT, [], tables(job), job.integrity, metadata={name: value for name, value in metadata.items() if value},
                   job=job)
