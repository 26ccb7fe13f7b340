"""What a report says inside a launch: counters per instruction, the source they stand for, series over time.

Part of the program `ncu_child.py` (which loads this file by its path): imports nothing of this project. An instanced
metric of the report is keyed by the address of a SASS instruction or by GPU time; NVIDIA's reader disassembles the
embedded cubin, and knows file and line of an address where the kernel was built with line information.
Everything is bounded: a report says how long it is, and may lie.
"""

import math
from typing import Any

MAX_INSTRUCTIONS = 100_000         # of one launch; the longest kernels of libraries have some 30,000
MAX_METRICS = 120                  # per instruction; a full report has about 70
MAX_TEXT = 400                     # characters of an instruction
MAX_FILES, MAX_FILE_CHARS, MAX_FILES_CHARS = 200, 2_000_000, 20_000_000
MAX_NAME = 1_000
MAX_SERIES, MAX_SAMPLES = 150, 20_000
MAX_MARKS = 500
STEP, SILENT = 16, 8                # bytes of an instruction; at most so many in a row of which nothing is known
MAX_KEY = 2**62                     # of an address or a time: what comes after must hold it as a signed number

# Metrics that have one instance per instruction executed, the best known first: they say which addresses there are.
ADDRESSED = ("inst_executed", "thread_inst_executed", "smsp__pcsamp_sample_count", "smsp__pcsamp_warps_issue_stalled_selected")
# Instances that add up to nothing: averages (recomputed from their parts), codes of types, n-way marks.
LEFT_OUT = ("derived__avg_", "derived__derivative_", "memory_type", "memory_access_", "derived__memory_l1_conflicts_",
            "smsp__sass_inst_executed_memdesc_")
UINT64 = 6                          # ncu_report.IMetric.ValueKind_UINT64
KINDS_OF_MARKS = {0: "sass", 1: "source"}      # ncu_report.MarkerKind


class SentFiles:
    """Files whose text is on its way already: a report embeds each once, however many launches it has."""

    def __init__(self) -> None:
        self.numbers: dict[str, int] = {}
        self.sent: set[str] = set()
        self.chars = 0

    def number(self, name: str) -> int | None:
        """Return a file's number, given out in order of appearance; None beyond the bound."""
        if name not in self.numbers and len(self.numbers) >= MAX_FILES:
            return None
        return self.numbers.setdefault(name, len(self.numbers))


def inside(action: Any, said: SentFiles) -> dict[str, Any]:
    """Return everything inside one launch: {"instructions", "files", "sampling", "marks"}.

    What is not there is left out.
    """
    document: dict[str, Any] = {}
    instructions = _instructions(action, said)
    if instructions:
        document["instructions"] = instructions
        document["files"] = _files(action, said)
        document["marks"] = _marks(action)
    sampling = _sampling(action)
    if sampling:
        document["sampling"] = sampling
    return document


def _metric_keys(action: Any, name: str) -> tuple[Any, list[int]] | None:
    """The metric and the keys of its instances where these are whole numbers; None for all others."""
    metric = action.metric_by_name(name)
    count = metric.num_instances() if metric is not None else 0
    if count < 1 or not metric.has_correlation_ids():
        return None
    keys = metric.correlation_ids()
    if keys.kind() != UINT64 or keys.num_instances() < count:
        return None
    return metric, [keys.as_uint64(i) for i in range(min(count, max(MAX_INSTRUCTIONS, MAX_SAMPLES)))]


def _instructions(action: Any, said: SentFiles) -> dict[str, Any] | None:
    """Columns over the addresses of a kernel in their order; a metric's values are given for the rows that have one."""
    addresses: set[int] = set()
    for name in ADDRESSED:
        keyed = _metric_keys(action, name)
        if keyed:
            addresses.update(key for key in keyed[1] if key < MAX_KEY)
    if not addresses:
        return None
    ordered = _with_silent(action, sorted(addresses)[:MAX_INSTRUCTIONS])[:MAX_INSTRUCTIONS]
    row_of = {address: row for row, address in enumerate(ordered)}
    metrics: dict[str, Any] = {}
    for name in action.metric_names():
        if name.startswith(LEFT_OUT) or len(metrics) >= MAX_METRICS:
            continue
        keyed = _metric_keys(action, name)
        if keyed is None or not keyed[1] or any(key not in row_of for key in keyed[1][:4]):
            continue
        metrics[name[:MAX_NAME]] = _values(keyed[0], keyed[1], row_of)
    sass, ptx = [action.sass_by_pc(address) for address in ordered], [action.ptx_by_pc(address) for address in ordered]
    return {"address": ordered, "sass": [_text(line) for line in sass], "ptx": [_text(line) for line in ptx],
            **_places(action, ordered, said), "metrics": metrics, "cut": max(0, len(addresses) - len(ordered))}


def _with_silent(action: Any, addresses: list[int]) -> list[int]:
    """With the instructions between and right behind them of which no metric speaks: the jump to itself after an exit, and
    the like. Instructions have 16 bytes since Volta, the oldest that ncu profiles; NOPs behind a kernel are padding."""
    whole = []
    for address, after in zip(addresses, [*addresses[1:], addresses[-1] + STEP * (SILENT + 1)], strict=True):
        whole.append(address)
        if after - address <= STEP or after - address > STEP * (SILENT + 1):
            continue
        for silent in range(address + STEP, after, STEP):
            sass = action.sass_by_pc(silent).strip()
            if not sass or (sass.startswith("NOP") and address == addresses[-1]):
                break
            whole.append(silent)
    return whole


def _values(metric: Any, keys: list[int], row_of: dict[int, int]) -> dict[str, Any]:
    rows, values = [], []
    for i, key in enumerate(keys):
        value = metric.as_double(i)
        if key in row_of and math.isfinite(value):
            rows.append(row_of[key])
            values.append(value)
    total = metric.as_double() if metric.has_value() else None
    return {"rows": rows, "values": values, "total": total if total is not None and math.isfinite(total) else None}


def _text(instruction: str) -> str:
    return " ".join(instruction.split())[:MAX_TEXT]


def _places(action: Any, addresses: list[int], said: SentFiles) -> dict[str, Any]:
    """File (number) and line of each address; None where the cubin has no line information."""
    files: list[int | None] = []
    lines: list[int | None] = []
    for address in addresses:
        info = action.source_info(address)
        name, line = (info.file_name(), info.line()) if info is not None else ("", 0)
        number = said.number(name[:MAX_NAME]) if name else None
        files.append(number)
        lines.append(int(line) if number is not None and 0 < line < 2**31 else None)
    return {"file": files, "line": lines}


def _files(action: Any, said: SentFiles) -> list[dict[str, Any]]:
    """Files that no launch before had: {"number", "name", "text"}; the text is None where the report does not embed it."""
    new = []
    texts = dict(action.source_files() or {})
    for name in texts:
        said.number(name[:MAX_NAME])
    for name, number in said.numbers.items():
        if name in said.sent:
            continue
        said.sent.add(name)
        text = texts.get(name) or None
        if text is not None and (len(text) > MAX_FILE_CHARS or said.chars + len(text) > MAX_FILES_CHARS):
            text = None
        said.chars += len(text or "")
        new.append({"number": number, "name": name, "text": text})
    return new


def _marks(action: Any) -> list[dict[str, Any]]:
    """Marks that NVIDIA's rules set at instructions and lines."""
    marks = []
    for marker in list(action.source_markers() or ())[:MAX_MARKS]:
        place = marker.get("source_location") or {}
        marks.append({
            "kind": KINDS_OF_MARKS.get(marker.get("kind"), ""), "rule": str(marker.get("rule_identifier", ""))[:200],
            "text": str(marker.get("message", ""))[:2_000], "address": marker.get("source_address"),
            "file": str(place.get("file_name", ""))[:MAX_NAME] or None, "line": place.get("line"),
        })
    return marks


def _sampling(action: Any) -> list[dict[str, Any]]:
    """Series of periodic samples (PM sampling), on the launch's own time where the reader can align them."""
    timelines = action.timelines()
    series: list[dict[str, Any]] = []
    for name in action.metric_names():
        if not (name.startswith("pmsampling:") or ".Triage" in name) or len(series) >= MAX_SERIES:
            continue
        metric = action.metric_by_name(name)
        if metric is None or metric.num_instances() < 2 or not metric.has_correlation_ids():
            continue
        aligned = timelines.aligned_metric(metric) if timelines is not None else None
        shown = aligned if aligned is not None and aligned.num_instances() > 1 else metric
        keys = shown.correlation_ids()
        count = min(shown.num_instances(), MAX_SAMPLES)
        times = [min(keys.as_uint64(i), MAX_KEY) for i in range(count)]
        values = [shown.as_double(i) for i in range(count)]
        series.append({"metric": name[:MAX_NAME], "unit": metric.unit()[:80], "label": metric.description().split("\n")[0][:300],
                       "times": times, "values": [value if math.isfinite(value) else None for value in values]})
    return series
