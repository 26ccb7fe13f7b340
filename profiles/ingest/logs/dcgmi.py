"""Text of `dcgmi dmon -e …`, with a time in front of every line or without → `Trace` of counters.

dcgmi prints neither the time of its rows nor the interval between them; people pipe it through `ts` or awk. Where they do not, the
rows of an entity are put apart by dcgmi's default interval, and that is said. A second header line says "ID" and, where it knows
them, units below the names; `dcgm_fields` knows the others.
"""

from __future__ import annotations

import re
from itertools import pairwise
from typing import NamedTuple

from profiles.ingest.core.source import Source
from profiles.ingest.core.text_lines import Moment, complete_lines, head_lines, parse_moment
from profiles.ingest.logs.counters import MAX_COLUMNS, MAX_GPUS, Counter, CounterLog, Gpu
from profiles.ingest.naming.bands import BANDS
from profiles.ingest.trace import CellRows, Integrity, SummaryTable, Trace, summary_columns

# What the fields of `dcgmi dmon` are: their words, the unit that dcgmi does not print, and how a mean reads.
#
# Names and units: dcgm_fields.h and dcgm_fields.cpp of NVIDIA/DCGM. Bands with their sources: `ingest.naming.bands`.

NO_BAND = "no guide calls a value of it good or bad"


class Field(NamedTuple):
    """A field. `band`: of BANDS, that calls its mean, a share from 0 to 1 where it has no unit; "idle" calls what is left of it."""

    words: str
    unit: str = ""
    band: str = ""


FIELDS: dict[str, Field] = {
    "GRACT": Field("graphics or compute engine busy", band="idle"),
    "SMACT": Field("SM active: at least one warp resident", band="sm_active"),
    "SMOCC": Field("SM occupancy: warps resident of those possible"), "TENSO": Field("tensor pipes active", band="tensor"),
    "DRAMA": Field("device memory sending or receiving", band="dram"), "FP64A": Field("FP64 pipe active", band="unit"),
    "FP32A": Field("FP32 pipe active (FMA)", band="unit"), "FP16A": Field("FP16 pipe active", band="unit"),
    "INTAC": Field("integer pipe active", band="unit"), "TIMMA": Field("tensor pipes, integer products", band="tensor"),
    "THMMA": Field("tensor pipes, half-precision products", band="tensor"),
    "TDFMA": Field("tensor pipes, double-precision products", band="tensor"),
    "PCITX": Field("sent over PCIe", "B/s"), "PCIRX": Field("received over PCIe", "B/s"),
    "NVLTX": Field("sent over NVLink", "B/s"), "NVLRX": Field("received over NVLink", "B/s"),
    "TMPTR": Field("temperature of the GPU", "C"), "MMTMP": Field("temperature of the memory", "C"),
    "POWER": Field("power drawn", "W"), "TOTEC": Field("energy since the driver was loaded", "mJ"),
    "SMCLK": Field("SM clock", "MHz"), "MMCLK": Field("memory clock", "MHz"),
    "GPUTL": Field("a kernel ran (nvidia-smi's utilisation: says nothing of how many SMs)", "%", "idle"),
    "MCUTL": Field("memory was read or written", "%"), "FBUSD": Field("memory used", "MiB"), "FBFRE": Field("memory free", "MiB"),
    "FBTTL": Field("memory in all", "MiB"), "XIDER": Field("last XID error"),
}


def reading_of(name: str, mean: float | None) -> str:
    """Return how the mean of a field reads; NO_BAND where none calls it, "" where it is unknown or no such value."""
    field = FIELDS.get(name)
    if field is None or mean is None:
        return ""
    if name == "XIDER":
        return "no error" if mean == 0 else "the driver reported an error: look its number up in NVIDIA's list of XID errors"
    if not field.band:
        return NO_BAND
    pct = mean if field.unit == "%" else 100.0 * mean
    if not 0 <= pct <= 100.1:
        return ""
    return BANDS[field.band].reading(max(0.0, 100.0 - pct) if field.band == "idle" else pct)


FORMAT = "dcgmi-dmon"
_HINT = ("Put the time in front of each line while recording: "
         "stdbuf -oL dcgmi dmon -e 1002,1004,155 -d 100 | ts '%Y-%m-%d %H:%M:%.S' > gpus.txt")
DEFAULT_INTERVAL_NS = 10**9              # of `dcgmi dmon -d`, in its help
UNTIMED = ("dcgmi states no time of its rows: those of an entity are put 1 s apart, its default interval, from 0. Their order "
           "and values are the log's; the time between them is not. " + _HINT)
_HEADER = re.compile(r"(?P<when>[^#]{0,40})#\s*Entity(?P<names>(?:\s+[A-Za-z][\w/%.-]{0,40})+)\s*", re.ASCII)
_IDS = re.compile(r"(?P<when>.{0,40}?)(?<![^\s\]|,:])(?:ID|Id)(?P<units>(?:\s+[A-Za-z%][\w/%]{0,10})*)\s*", re.ASCII)
_ROW = re.compile(r"(?P<when>.{0,40}?)(?<![^\s\]|,:])(?P<kind>GPU(?:-C?I)?|NvSwitch|Switch|CPU|Core)\s+(?P<id>\d{1,4})"
                  r"(?P<cells>\s.*|)", re.ASCII)


class _Header(NamedTuple):
    counters: list[Counter]
    starts: list[int]            # of the names in the line


def _header(line: str) -> _Header | None:
    match = _HEADER.fullmatch(line) if len(line) < 1 << 15 else None
    if match is None:
        return None
    names = {word[0]: word.start() for word in reversed(list(re.finditer(r"\S+", match["names"])))}
    offset = match.start("names")
    places = sorted(names.items(), key=lambda item: item[1])
    if len(places) != len(match["names"].split()):       # a name twice: which value is whose, no row says
        return None
    return _Header([Counter(name, FIELDS.get(name, Field("")).unit) for name, _ in places], [start + offset for _, start in places])


def _with_units(header: _Header, line: str) -> _Header | None:
    """Return the header with the units that stand below its names; None where the line is no second line of a header."""
    match = _IDS.fullmatch(line) if len(line) < 1 << 15 else None
    if match is None:
        return None
    offset = match.start("units")
    units = {word.start() + offset: word[0] for word in re.finditer(r"\S+", match["units"])}
    pairs = zip(header.counters, header.starts, strict=True)
    counters = [counter._replace(unit=units.get(start, counter.unit)) for counter, start in pairs]
    return header._replace(counters=counters)


def sniff(head: bytes) -> bool:
    return any((header := _header(first)) is not None and (_with_units(header, second) is not None or _ROW.fullmatch(second))
               for first, second in pairwise(head_lines(head, 40)))


def read(source: Source) -> Trace:
    """Raises TraceError where the rows have no time, or none can be read."""
    integrity = Integrity()
    log = CounterLog(source, FORMAT, integrity)
    header: _Header | None = None
    start = ""
    rows: dict[Gpu, int] = {}                            # of a log without times: rows so far
    for line in complete_lines(source, integrity):
        new = _header(line) if "Entity" in line[:64] else None
        header = new or header
        if new:
            continue
        if header is None:
            log.lose("a line before the header")
            continue
        match = _ROW.fullmatch(line)
        with_units = None if match else _with_units(header, line)
        if with_units:
            header = with_units
        elif match is None:
            log.lose("a line that is no row of an entity")
        elif _take(log, header, match, rows):
            start = start or _when(match)
    clock_note = f"first row {start}" + ("" if log.form == "epoch" else ", time zone not stated") if start else "not stated"
    if not start and source.written:
        clock_note += f"; the file was last written {source.written}, no row is later"
    trace = log.finish(_HINT, {"clock": clock_note})
    if rows:
        integrity.notes.insert(0, UNTIMED)
    table = _fields(trace)
    if table.rows:
        trace.tables.insert(0, table)
    return trace


def _when(match: re.Match[str]) -> str:
    return match["when"].strip(" \t[](),:|")


def _fields(trace: Trace) -> SummaryTable:
    """What each field of the log is, and how its mean reads."""
    rows: CellRows = []
    for table in trace.tables:
        for group, name, _, mean, _ in table.rows:
            if field := FIELDS.get(str(name)):
                number = mean if isinstance(mean, float) else None
                rows.append([group, name, field.words, number, reading_of(str(name), number)])
    columns = summary_columns("GPU: text | Field: text | What it is: text | Mean over time | Reads as: text")
    used = dict.fromkeys(FIELDS[str(row[1])].band for row in rows)
    sources = "; ".join(f"{BANDS[key].what}: {BANDS[key].source}" for key in used if key)
    return SummaryTable("Fields of DCGM", columns, rows, "Shares are of 1." + (f" How a mean reads: {sources}." if sources else ""))


def _take(log: CounterLog, header: _Header, match: re.Match[str], rows: dict[Gpu, int]) -> bool:
    cells = match["cells"].split()
    if len(cells) != len(header.counters):
        log.lose("a row with too few or too many values")
        return False
    kind, number = match["kind"], int(match["id"])
    gpu = Gpu(f"{kind} {number}", number if kind == "GPU" else None)
    moment = parse_moment(_when(match))
    if not _when(match) and (rows or log.form is None):
        moment = Moment(rows.get(gpu, 0) * DEFAULT_INTERVAL_NS, "none")
        if gpu in rows or len(rows) < MAX_GPUS:
            rows[gpu] = rows.get(gpu, 0) + 1
    return log.add(gpu, moment, header.counters[:MAX_COLUMNS], cells[:MAX_COLUMNS])
