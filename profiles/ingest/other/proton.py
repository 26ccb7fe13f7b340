"""Triton Proton's tree (`.hatchet`, JSON or MessagePack): kernels under the scopes that launched them → `Summary`.

Facts: third_party/proton of triton-lang/triton. The file is `[root, devices]`; a node is {frame, metrics, children}. Times
are exclusive and stand on kernels; `flops*` and `bytes` stand on the kernel (launch metadata) or on a scope above it and are
totals over `count`, so rates are formed only after sums went up the tree. Metric names were capitalised until 2024.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

import msgspec

from profiles.ingest.core.source import Source
from profiles.ingest.naming.names import clip_name, readable
from profiles.ingest.trace import (
    CellRows,
    Device,
    Integrity,
    KernelSum,
    Summary,
    SummaryTable,
    TraceError,
    summary_columns,
    with_rows,
)

FORMAT = "proton"
MAX_NODES = 2_000_000
_HINT = "Write it again with proton.finalize(), and do not edit it."
_SCALE_NS = {"time (ns)": 1.0, "time (us)": 1e3, "time (ms)": 1e6, "time (s)": 1e9}
_FLOPS = re.compile(r"flops(\d*)$")
_TREE = re.compile(rb'"frame"\s*:|"metrics"\s*:|"children"\s*:')
_BYTE = re.compile(r"byte (\d+)")
_NO_NUMBER = re.compile(rb'("(?:[^"\\]++|\\.)*+")|[-+]?\b(?:nan|inf(?:inity)?)\b', re.IGNORECASE | re.DOTALL)
# scopes of the profiler itself: its launch hook's work, and the kernels that fetch metrics from the GPU (triton/profiler)
_OWN = re.compile(r"__proton_launch_metadata|<metric>$")
_NOT_SUMMED = frozenset({"device_id", "device_type", "deviceid", "devicetype"})


class Frame(msgspec.Struct, gc=False):
    name: Any = ""


class Node(msgspec.Struct):
    frame: Frame = msgspec.field(default_factory=Frame)
    metrics: dict[str, Any] = msgspec.field(default_factory=dict)
    children: list[Node] = msgspec.field(default_factory=list)


@dataclass
class Scope:
    """One node with the sums of everything below it."""

    depth: int
    name: str
    path: str
    own_ns: float
    own_count: float
    kernel: bool
    metrics: dict[str, float] = field(default_factory=dict)       # further numbers of its own
    device: str = ""
    untimed: bool = False                                         # a time is there and is no number: unknown
    own: bool = False                                             # the profiler's own
    total_ns: float = 0.0
    count: float = 0.0
    sums: dict[str, float] = field(default_factory=dict)
    covered: dict[str, float] = field(default_factory=dict)       # "flops", "bytes" -> ns of `total_ns` that they are about


def sniff(head: bytes) -> bool:
    """An array of trees: the words of a node, none of a Chrome trace."""
    if head[:1] in (b"\x91", b"\x92", b"\x93"):                    # MessagePack
        return b"\xa5frame" in head and b"\xa7metrics" in head
    text = head.removeprefix(b"\xef\xbb\xbf").lstrip()
    return text[:1] == b"[" and text[1:].lstrip()[:1] == b"{" and b'"ph"' not in head and len(set(_TREE.findall(head))) >= 2 \
        and b'"frame"' in head


def read(source: Source) -> Summary:
    """Raises TraceError where the file is not a whole tree or holds no metric."""
    data = _content(source)
    root, devices = _decode(data, source)
    integrity = Integrity()
    scopes = _scopes(root, integrity)
    peaks = _peaks(devices)
    kernels = [scope for scope in scopes if scope.kernel and not scope.own]
    if not kernels and not any(scope.metrics for scope in scopes):
        raise TraceError("the tree", "none of its nodes has a metric", "Check that kernels ran between proton.start and finalize.")
    integrity.settle()
    if kernels and not any(kernel.own_ns for kernel in kernels):
        integrity.notes.append("The file states no times: it was recorded without them (instruction samples or cycles).")
    unknown = [kernel for kernel in kernels if kernel.untimed]
    if unknown:
        integrity.remark("kernels whose time is no number: unknown, in no sum", len(unknown))
    tables = [_scope_table([scope for scope in scopes if not scope.own], peaks), _untimed_table(unknown), _own_table(scopes),
              _other_table(scopes)]
    return Summary(FORMAT, _sums(kernels), with_rows(tables), integrity, _devices(devices), {})


def _content(source: Source) -> bytes:
    parts, size = [], 0
    while block := source.read(1 << 20):
        parts.append(block)
        size += len(block)
        if size > source.limits.record_bytes:
            raise TraceError(f"byte {size}", f"a tree of more than {source.limits.record_bytes >> 20} MB", "Use fewer scopes.")
    if source.damage:
        raise TraceError(source.damage.split(":")[0],
                         f"the compressed file ends early ({source.damage}), and half a tree has no sums", "Copy the file again.")
    return b"".join(parts)


def _decode(data: bytes, source: Source) -> tuple[Node, dict[str, Any]]:
    """The tree and the devices."""
    packed = data[:1] in (b"\x91", b"\x92", b"\x93")
    try:
        parts = msgspec.msgpack.decode(data, type=list[msgspec.Raw]) if packed else _parts(data.removeprefix(b"\xef\xbb\xbf"))
        decode: Any = msgspec.msgpack.decode if packed else msgspec.json.decode
        root = decode(parts[0], type=Node)
        devices = decode(parts[1]) if len(parts) > 1 else {}
    except RecursionError:
        raise TraceError("the tree", "scopes nest more than a thousand levels deep", _HINT) from None
    except (msgspec.DecodeError, UnicodeDecodeError, IndexError) as error:
        raise _invalid(data, str(error)) from None
    return root, devices if isinstance(devices, dict) else {}


def _parts(data: bytes) -> list[msgspec.Raw]:
    """The values of the file's array; NaN and Infinity, which Python writes and JSON has not, are null."""
    try:
        return msgspec.json.decode(data, type=list[msgspec.Raw])
    except msgspec.DecodeError as error:
        if "invalid character" not in str(error):
            raise
        mended = _NO_NUMBER.sub(lambda match: match[1] or b"null", data)
        if mended == data:
            raise
        return msgspec.json.decode(mended, type=list[msgspec.Raw])


def _invalid(data: bytes, message: str) -> TraceError:
    """Where the JSON breaks, in lines as people count them."""
    byte = _BYTE.search(message)
    if "truncated" in message:
        where = f"line {data.count(10) + 1}, byte {len(data)}"
        return TraceError(where, "not valid JSON (it ends in the middle of the tree)", _HINT)
    what = re.sub(r"\s*\(byte \d+\)", "", message)
    if byte is None:
        return TraceError("the tree", f"not a tree of Proton ({what})", _HINT)
    offset = int(byte[1])
    line = data.count(b"\n", 0, offset) + 1
    return TraceError(f"line {line}, byte {offset}", f"not valid JSON ({what.removeprefix('JSON is malformed: ')})", _HINT)


def _scopes(root: Node, integrity: Integrity) -> list[Scope]:
    """All nodes but the root, parents first, with sums of what is below."""
    out: list[Scope] = []
    parents: list[int] = []
    waiting: list[tuple[Node, int, int]] = [(child, 0, -1) for child in reversed(root.children)] or [(root, 0, -1)]
    while waiting:
        node, depth, parent = waiting.pop()
        integrity.records_read += 1
        integrity.count("node")
        if len(out) >= MAX_NODES:
            integrity.drop(f"nodes beyond the first {MAX_NODES:,}")
            continue
        path = out[parent].path if parent >= 0 else ""
        scope = _scope(node, depth, path, integrity)
        scope.own = bool(_OWN.match(scope.name)) or (parent >= 0 and out[parent].own)
        out.append(scope)
        parents.append(parent)
        waiting += [(child, depth + 1, len(out) - 1) for child in reversed(node.children)]
    for number in range(len(out) - 1, -1, -1):
        scope = out[number]
        scope.total_ns += scope.own_ns
        scope.count += scope.own_count
        for name, value in scope.metrics.items():
            scope.sums[name] = value
            scope.covered["flops" if _FLOPS.match(name) else name] = scope.total_ns
        if parents[number] >= 0 and (not scope.own or out[parents[number]].own):
            _add_child(out[parents[number]], scope)
    return out


def _add_child(parent: Scope, child: Scope) -> None:
    """Add a child's sums to its parent's. What a scope states itself is about its children too and not added twice."""
    parent.total_ns += child.total_ns
    parent.count += child.count
    for name, value in child.sums.items():
        if name not in parent.metrics:
            parent.sums[name] = parent.sums.get(name, 0.0) + value
    for name, ns in child.covered.items():
        parent.covered[name] = parent.covered.get(name, 0.0) + ns


def _scope(node: Node, depth: int, above: str, integrity: Integrity) -> Scope:
    name = clip_name(str(node.frame.name), 8192) or "(no name)"
    metrics: dict[str, float] = {}
    own_ns = count = 0.0
    device, untimed = "", False
    for key, value in node.metrics.items():
        key = key.lower().replace("time(", "time (")
        if key in ("device_id", "deviceid"):
            device = str(value)[:20]
        elif key in _NOT_SUMMED:
            continue
        elif isinstance(value, bool) or not isinstance(value, (int, float)) or value != value or abs(value) > 2**62:
            integrity.repair("metrics without a number were left out")
            untimed |= key in _SCALE_NS
        elif key in _SCALE_NS:
            own_ns = value * _SCALE_NS[key]
        elif key == "count":
            count = float(value)
        else:
            metrics[key[:100]] = float(value)
    if own_ns < 0 or count < 0:
        integrity.repair("negative times or counts were taken as none")
    kernel = not node.children and count > 0
    path = f"{above} / {name[:300]}"[-4000:] if above else name
    return Scope(depth, name, path, max(own_ns, 0.0), max(count, 0.0), kernel, metrics, device, untimed)


def _sums(kernels: list[Scope]) -> list[KernelSum]:
    return [KernelSum(kernel.name, int(kernel.own_count), round(kernel.own_ns)) for kernel in kernels if not kernel.untimed]


def _untimed_table(kernels: list[Scope]) -> SummaryTable:
    rows: CellRows = [[_readable(kernel.name), kernel.path, int(kernel.own_count), None] for kernel in kernels]
    return SummaryTable("Kernels without a time",
        summary_columns("Kernel: text | Path: text | Launches: count | Time: ns"), rows,
                        "The file states a time that is no number: it is unknown, and in no sum of the scopes above.")


def _own_table(scopes: list[Scope]) -> SummaryTable:
    rows: CellRows = [[scope.path, int(scope.own_count), None if scope.untimed else round(scope.own_ns)]
                              for scope in scopes if scope.own and scope.kernel]
    return SummaryTable("Proton's own kernels",
        summary_columns("Path: text | Launches: count | Time: ns"), rows,
                        "What the profiler ran itself, for metrics of launches: in no sum of the program.")


def _peaks(devices: dict[str, Any]) -> dict[str, float]:
    """Bytes per second that a device's memory moves at most: bus bits / 8 × memory clock × 2 (double data rate)."""
    out = {}
    for kind in devices.values():
        for index, facts in (kind.items() if isinstance(kind, dict) else ()):
            if isinstance(facts, dict) and isinstance(facts.get("bus_width"), (int, float)) and isinstance(
                    facts.get("memory_clock_rate"), (int, float)):
                out[str(index)] = facts["bus_width"] / 8 * facts["memory_clock_rate"] * 1e3 * 2
    return out


def _devices(devices: dict[str, Any]) -> list[Device]:
    out: dict[int, Device] = {}
    for kind, listed in devices.items():
        for index, facts in (listed.items() if isinstance(listed, dict) else ()):
            if not str(index).isdecimal() or len(str(index)) > 6 or not isinstance(facts, dict):
                continue
            arch = str(facts.get("arch", ""))[:40]
            capability = f"{arch[:-1]}.{arch[-1]}" if arch.isdecimal() and len(arch) in (2, 3) else None
            sms = facts.get("num_sms")
            out[int(index)] = Device(int(index), f"{str(kind)[:20]} {arch}".strip(), capability,
                                     sms if isinstance(sms, int) else None)
    return [out[index] for index in sorted(out)]


def _flops(sums: dict[str, float]) -> float | None:
    """All floating-point operations, of any width."""
    counts = [value for name, value in sums.items() if _FLOPS.match(name)]
    return sum(counts) if counts else None


def _readable(name: str) -> str:
    """Scopes as they are; mangled kernel names as people read them (the path keeps the whole)."""
    return readable(name) if name.startswith("_Z") else name


def _rate(scope: Scope, name: str, work: float | None) -> float | None:
    """Work per second, where all of the scope's time is that of the work: kernels that state none would dilute it."""
    whole = scope.total_ns > 0 and scope.covered.get(name, 0.0) >= scope.total_ns * (1 - 1e-9)
    return work / scope.total_ns * 1e9 if work is not None and whole else None


def _scope_table(scopes: list[Scope], peaks: dict[str, float]) -> SummaryTable:
    rows: CellRows = []
    everything = sum(scope.total_ns for scope in scopes if scope.depth == 0)
    peak = next(iter(peaks.values()), None)
    for scope in scopes:
        flops, moved = _flops(scope.sums), scope.sums.get("bytes")
        rate, best = _rate(scope, "bytes", moved), peaks.get(scope.device, peak)
        rows.append([
            scope.depth, "\u2003" * min(scope.depth, 40) + _readable(scope.name), scope.path,
            None if scope.untimed else round(scope.total_ns), None if scope.untimed else round(scope.own_ns),
            100.0 * scope.total_ns / everything if everything and not scope.untimed else None, int(scope.count), flops, moved,
            _rate(scope, "flops", flops), rate, 100.0 * rate / best if rate and best else None])
    columns = summary_columns("Depth: count | Scope or kernel: text | Path: text | Time: ns | Own time: ns | Share: pct | "
                              "Launches: count | Operations: FLOP | Bytes: bytes | Operations per second: FLOP/s | "
                              "Bandwidth: B/s | Of peak bandwidth: pct")
    return SummaryTable("Scopes", columns, rows, "Parents come before their children; time, launches, operations and bytes of a "
                        "scope include everything below it. A rate is given where all kernels below state their work. The peak is "
                        "that of the memory bus as the file states it; what fits in a cache can be faster.")


def _other_table(scopes: list[Scope]) -> SummaryTable:
    """Metrics of other names: a user's own, cycles, instruction samples."""
    rows: CellRows = [
        [scope.path, name, value] for scope in scopes for name, value in scope.metrics.items()
        if name != "bytes" and not _FLOPS.match(name)]
    columns = summary_columns("Path: text | Metric: text | Value")
    return SummaryTable("Other metrics", columns, rows, "As the file states them, per node.")
