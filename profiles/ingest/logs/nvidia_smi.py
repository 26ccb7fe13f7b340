"""CSV of `nvidia-smi --query-gpu=… --format=csv -l …` → `Trace` of counters.

The header names every column and its unit, `nounits` or not; it comes once per run, so a log that was appended to has several.
Rows of several GPUs are told apart by `index`, else by `uuid`, `serial` or `pci.bus_id`.
"""

from __future__ import annotations

import re
from dataclasses import replace

from profiles.ingest.core.source import Source
from profiles.ingest.core.text_lines import complete_lines, head_lines, parse_moment
from profiles.ingest.logs.counters import MAX_COLUMNS, Counter, CounterLog, Gpu
from profiles.ingest.trace import Device, Integrity, Trace, TraceError

FORMAT = "nvidia-smi"
_COMMAND = "nvidia-smi --query-gpu=timestamp,index,name,utilization.gpu,memory.used,power.draw --format=csv -lms 200 > gpus.csv"
_HINT = f"Record it again: {_COMMAND}"
_COLUMN = re.compile(r"(?P<name>[a-z][a-z0-9_.]{0,80})(?: \[(?P<unit>[^\[\],]{1,16})\])?", re.ASCII)
_OURS = re.compile(r"(?:utilization|memory|power|clocks|temperature|fan|ecc|pcie|encoder|retired_pages|remapped_rows|enforced|"
                   r"clocks_throttle_reasons|clocks_event_reasons|clocks_event_reasons_counters)\.[a-z]|pstate$", re.ASCII)
_PROCESSES = frozenset({"pid", "process_name", "used_gpu_memory", "used_memory"})          # --query-compute-apps
_IDENTITIES = ("index", "uuid", "gpu_uuid", "serial", "gpu_serial", "pci.bus_id", "gpu_bus_id")
_NO_COUNTERS = re.compile(      # texts, masks and numbers that name something
    r"timestamp|index|name|gpu_name|(gpu_)?uuid|(gpu_)?serial|(gpu_)?bus_id|pci\..*|driver_version|vbios_version|inforom\..*|"
    r"count|compute_cap|compute_mode|driver_model\..*|.*_reasons\.(active|supported)|platform\..*|fabric\..*", re.ASCII)
_ROW = re.compile(r"\d{4}/\d\d/\d\d \d\d:\d\d:\d\d\.\d{3},", re.ASCII)
_CELL = re.compile(r"\d+(\.\d+)? (%|MiB|W|MHz)|P\d{1,2}|GPU-[0-9a-f]{8}-[0-9a-f-]+|(NVIDIA|Tesla|Quadro|GeForce)\b.*", re.ASCII)


class _Header:
    """Where everything is in a row."""

    def __init__(self, columns: list[Counter]) -> None:
        self.size = len(columns)
        self.place = {column.name: place for place, column in reversed(list(enumerate(columns)))}
        self.identity = next((name for name in _IDENTITIES if name in self.place), None)
        chosen = [place for name, place in sorted(self.place.items(), key=lambda item: item[1]) if not _NO_COUNTERS.fullmatch(name)]
        self.chosen = chosen[:MAX_COLUMNS]
        self.counters = [_with_unit(columns[place]) for place in self.chosen]

    def gpu(self, cells: list[str]) -> Gpu | None:
        """Return whose row this is; None where its cell does not say."""
        if self.identity is None:
            return Gpu("GPU")
        text = cells[self.place[self.identity]]
        if self.identity != "index":
            return Gpu(f"GPU {text[:80]}") if text and not text.startswith("[") else None
        return Gpu(f"GPU {int(text)}", int(text)) if re.fullmatch(r"\d{1,4}", text, re.ASCII) else None


def _with_unit(column: Counter) -> Counter:
    """Temperatures have no unit in the header; the manual of nvidia-smi says degrees C."""
    return column._replace(unit="C") if column.name.startswith("temperature.") and not column.unit else column


def _columns(line: str) -> list[Counter] | None:
    """Return the columns of a header; None where the line is none."""
    matches = [_COLUMN.fullmatch(cell.strip()) for cell in line.split(",")] if len(line) < 1 << 15 else []
    columns = [Counter(match["name"], match["unit"] or "") for match in matches if match]
    if not columns or len(columns) != len(matches) or any(column.name in _PROCESSES for column in columns):
        return None
    ours = [column for column in columns if _OURS.match(column.name)]
    timed = any(column.name == "timestamp" for column in columns)
    return columns if ours and (timed or any(column.unit for column in ours)) else None


def _lacks_header(lines: list[str]) -> bool:
    """Tell whether rows without a header are surely nvidia-smi's: its form of time, and its cells."""
    rows = [[cell.strip() for cell in line.split(",")] for line in lines]
    return bool(rows) and all(_ROW.match(line) for line in lines) and len({len(row) for row in rows}) == 1 and all(
        any(_CELL.fullmatch(cell) for cell in row) for row in rows)


def sniff(head: bytes) -> bool:
    lines = head_lines(head, 20)
    return any(map(_columns, lines)) or _lacks_header(lines[:3])


def read(source: Source) -> Trace:
    """Raises TraceError where the columns are not named, have no time, or no row can be read."""
    integrity = Integrity()
    log = CounterLog(source, FORMAT, integrity)
    header: _Header | None = None
    start = ""
    for line in complete_lines(source, integrity):
        columns = _columns(line) if line[:1].isalpha() else None
        if columns:
            header = _header(columns)
        elif header is None:
            if _ROW.match(line):
                raise TraceError("line 1", "the log has no header, so its columns are not known",
                                 f"Record it without `noheader` (`nounits` is fine): {_COMMAND}")
            log.lose("a line before the header")
        else:
            cells = [cell.strip() for cell in line.split(",")]
            if _take(log, header, cells):
                start = start or cells[header.place["timestamp"]]
    _say_whose(header, integrity)
    return log.finish(_HINT, {"clock": f"first row {start}, time zone not stated"})


def _header(columns: list[Counter]) -> _Header:
    header = _Header(columns)
    if "timestamp" not in header.place:
        raise TraceError("header", "the log has no times: `timestamp` is not among its columns", _HINT)
    if not header.counters:
        raise TraceError("header", "none of the columns is a counter", _HINT)
    return header


def _take(log: CounterLog, header: _Header, cells: list[str]) -> bool:
    if len(cells) != header.size:
        log.lose("a row with too few or too many cells")
        return False
    gpu = header.gpu(cells)
    if gpu is None:
        log.lose("a row that does not say which GPU it is of")
        return False
    is_kept = log.add(gpu, parse_moment(cells[header.place["timestamp"]][:40]), header.counters, [cells[i] for i in header.chosen])
    if is_kept and gpu.device is not None and not log.devices[gpu.device].name:
        log.devices[gpu.device] = _describe(log.devices[gpu.device], header, cells)
    return is_kept


def _describe(device: Device, header: _Header, cells: list[str]) -> Device:
    name = next((cells[header.place[key]] for key in ("name", "gpu_name") if key in header.place), "")
    capability = cells[header.place["compute_cap"]] if "compute_cap" in header.place else ""
    return replace(device, name="" if name.startswith("[") else name[:200],
                   compute_capability=capability if re.fullmatch(r"\d{1,2}\.\d{1,2}", capability, re.ASCII) else None)


def _say_whose(header: _Header | None, integrity: Integrity) -> None:
    if header is not None and header.identity is None:
        integrity.notes.append("The log does not say which GPU a row is of (no `index` among its columns): if it was recorded on "
                               "several, their rows are mixed on each track.")
