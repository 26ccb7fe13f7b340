"""A batch of minutes as it travels: msgpack of columns, compressed with zstd; bounded when it is read.

{"v": 1, "agent", "sequence", "sent_ns", "contexts": [[…]], "gpus": [[uuid, model, host]], "signatures": [[kernel, 3 × grid,
3 × block, shared_bytes]], "kernels" | "on_gpus" | "gpu_kernels" | "telemetry": {column: little-endian bytes}, "state": {…}}

A sketch's columns lie one behind the other: `buckets` of each row says how many (bucket, count) pairs are its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

import msgspec
import numpy as np
import numpy.typing as npt
import zstandard

from workers.agent.aggregate import Numbered, Rows, Summed, parts_of_key, places_of_key
from workers.agent.launches import MOST, MOST_NAME, MOST_WORD, Context, Gpu, Signature

VERSION = 1
MOST_BYTES = 8 << 20                # of a batch as it is sent
MOST_PLAIN_BYTES = 128 << 20        # unpacked
MOST_ROWS = 1_000_000               # of one table
MOST_NAMES = 200_000                # signatures, contexts, GPUs
KERNELS_OF_GPU = 32                 # with most time, per minute, context and GPU
LATEST_NS = 2**62

T = TypeVar("T")
Column = npt.NDArray[Any]
Table = dict[str, Column]
_SUMS = {"launches": "<i8", "total_ns": "<i8", "min_ns": "<i8", "max_ns": "<i8", "estimate_launches": "<f8", "estimate_ns": "<f8",
         "square": "<f8", "buckets": "<i4"}
# columns of "gpu_kernels" that agents send since they scale them; of those before, the server makes them (`_scale`)
ESTIMATES = {"estimate_launches": "<f8", "estimate_ns": "<f8", "square": "<f8"}
TABLES: dict[str, dict[str, str]] = {
    "kernels": {"minute": "<i8", "context": "<i4", "signature": "<i4", **_SUMS},
    "on_gpus": {"minute": "<i8", "context": "<i4", "gpu": "<i4", "rank": "<i4", "windows": "<i8", "observed_ns": "<i8",
                "wall_ns": "<i8", **_SUMS},
    "gpu_kernels": {"minute": "<i8", "context": "<i4", "gpu": "<i4", "signature": "<i4", "launches": "<i8", "total_ns": "<i8",
                    "log_sum": "<f8", **ESTIMATES},
    # means over the minute; NaN is unknown
    "telemetry": {"minute": "<i8", "gpu": "<i4", "samples": "<i4", "sm_pct": "<f4", "tensor_pct": "<f4", "dram_pct": "<f4",
                  "busy_pct": "<f4", "power_w": "<f4", "sm_mhz": "<f4", "memory_mhz": "<f4", "temperature_c": "<f4",
                  "memory_used_bytes": "<f8", "memory_bytes": "<f8", "throttle_s": "<f4", "thermal_s": "<f4", "xid_errors": "<f4",
                  "ecc_errors": "<f4"},
}
SKETCHES = {"kernels": "kernels", "on_gpus": "on_gpus"}      # tables with pairs of bucket and count
_INDEX = {"context": "contexts", "gpu": "gpus", "signature": "signatures"}


class BatchRefused(ValueError):
    """The bytes are no batch: what is wrong with them."""


@dataclass(frozen=True)
class Batch:
    agent: str
    sequence: int
    sent_ns: int
    contexts: list[Context]
    gpus: list[Gpu]
    signatures: list[Signature]
    tables: dict[str, Table]
    pairs: dict[str, tuple[Column, Column]]         # table -> (bucket, count) of all its rows
    state: dict[str, Any] = field(default_factory=dict)

    @property
    def rows(self) -> int:
        return sum(table["minute"].size for table in self.tables.values())


def make_batch(agent: str, sequence: int, sent_ns: int, summed: Sequence[Summed], telemetry: Sequence[Mapping[str, Any]] = (),
               state: Mapping[str, Any] | None = None, days: tuple[int, int] | None = None) -> Batch:
    """Return the batch of some minutes. `telemetry`: one mapping a minute and GPU, with a `gpu` and any of its columns.

    `days`: only minutes of those days since 1970, the second excluded.
    """
    names = _Names()
    parts: dict[str, list[Table]] = {name: [] for name in TABLES}
    pairs: dict[str, list[tuple[Column, Column]]] = {name: [] for name in SKETCHES}
    for sums in summed:
        for name, (table, own) in _tables(sums, names, days).items():
            parts[name].append(table)
            if own is not None:
                pairs[name].append(own)
    rows = [{**row, "gpu": names.gpus.of(row["gpu"])} for row in telemetry]
    parts["telemetry"].append({column: np.array([row.get(column, np.nan if "f" in kind else 0) for row in rows], kind)
                               for column, kind in TABLES["telemetry"].items()})
    tables = {name: {column: np.concatenate([part[column] for part in parts[name]] or [np.zeros(0)]).astype(kind)
                     for column, kind in TABLES[name].items()} for name in TABLES}
    joined = {name: (np.concatenate([bucket for bucket, _ in own] or [np.zeros(0)]).astype("<i2"),
                     np.concatenate([count for _, count in own] or [np.zeros(0)]).astype("<i8")) for name, own in pairs.items()}
    return Batch(agent, sequence, sent_ns, names.contexts.every, names.gpus.every, names.signatures.every, tables, joined,
                 dict(state or {}))


def _tables(one: Summed, names: _Names, days: tuple[int, int] | None) -> dict[str, tuple[Table, tuple[Column, Column] | None]]:
    """Return rows and pairs of each table, of the minutes that are wanted."""
    minutes = np.array(one.numbered.minutes, np.int64)
    mask = np.ones(minutes.size, np.bool_) if days is None else (minutes >= days[0] * 1440) & (minutes < days[1] * 1440)

    minute, series = parts_of_key(one.kernels.key)
    kept = mask[minute]
    kernels = {**_kept(one.kernels, kept), "minute": minutes[minute[kept]], **names.of_series(one.numbered, series[kept])}

    watched = sorted(key for key, watch in one.watched.items() if mask[watch.minute])
    minute, place = parts_of_key(np.array(watched, np.int64))
    told = {name: np.array([getattr(one.watched[key], name) for key in watched], np.int64)
            for name in ("windows", "observed_ns", "wall_ns", "rank")}
    seen = np.searchsorted(np.array(watched, np.int64), one.on_gpus.key[mask[parts_of_key(one.on_gpus.key)[0]]])
    gpus = _kept(one.on_gpus, mask[parts_of_key(one.on_gpus.key)[0]])
    on_gpus = {**{name: _spread(values, seen, len(watched)) for name, values in gpus.items()}, **told, "minute": minutes[minute],
               **names.of_places(one.numbered, place)}                      # a place whose windows held no launch has none

    above, series = parts_of_key(one.gpu_kernels.key)
    minute, place = places_of_key(above)
    near = np.flatnonzero(mask[minute])
    most = near[_largest(above[near], one.gpu_kernels.columns["total_ns"][near], KERNELS_OF_GPU)]
    gpu_kernels = {**{name: values[most] for name, values in one.gpu_kernels.columns.items()}, "minute": minutes[minute[most]],
                   **names.of_series(one.numbered, series[most]), **names.of_places(one.numbered, place[most])}
    return {"kernels": (kernels, _pairs_of(one.kernels, mask)), "on_gpus": (on_gpus, _pairs_of(one.on_gpus, mask)),
            "gpu_kernels": (gpu_kernels, None)}


def _kept(rows: Rows, kept: Column) -> Table:
    return {**{name: values[kept] for name, values in rows.columns.items()}, "buckets": rows.buckets[kept]}


def _pairs_of(rows: Rows, wanted: Column) -> tuple[Column, Column]:
    mask = np.repeat(wanted[parts_of_key(rows.key)[0]], rows.buckets)
    return rows.bucket[mask], rows.count[mask]


def _spread(values: Column, at: Column, size: int) -> Column:
    out = np.zeros(size, values.dtype)
    out[at] = values
    return out


def _largest(group: Column, values: Column, most: int) -> Column:
    """Return where the `most` largest values of each group are; groups ascend."""
    order = np.lexsort((-values, group))
    rank = np.arange(group.size) - np.searchsorted(group, group)
    indexes: Column = order[rank < most]
    return indexes


class _Numbers(Generic[T]):
    def __init__(self) -> None:
        self.every: list[T] = []
        self.number: dict[T, int] = {}

    def of(self, one: T) -> int:
        number = self.number.setdefault(one, len(self.every))
        if number == len(self.every):
            self.every.append(one)
        return number


class _Names:
    """Contexts, GPUs and signatures of a batch: those that its rows name."""

    def __init__(self) -> None:
        self.contexts, self.gpus, self.signatures = _Numbers[Context](), _Numbers[Gpu](), _Numbers[Signature]()

    def of_series(self, numbered: Numbered, series: Column) -> Table:
        used, inverse = np.unique(series, return_inverse=True)
        named = [numbered.series[number] for number in used.tolist()]
        return {"context": np.array([self.contexts.of(context) for context, _ in named], np.int64)[inverse],
                "signature": np.array([self.signatures.of(signature) for _, signature in named], np.int64)[inverse]}

    def of_places(self, numbered: Numbered, place: Column) -> Table:
        used, inverse = np.unique(place, return_inverse=True)
        named = [numbered.places[number] for number in used.tolist()]
        return {"context": np.array([self.contexts.of(context) for context, _ in named], np.int64)[inverse],
                "gpu": np.array([self.gpus.of(gpu) for _, gpu in named], np.int64)[inverse]}


def pack(batch: Batch) -> bytes:
    """Return a batch as bytes."""
    document: dict[str, Any] = {
        "v": VERSION, "agent": batch.agent, "sequence": batch.sequence, "sent_ns": batch.sent_ns,
        "contexts": [list(context) for context in batch.contexts], "gpus": [list(gpu) for gpu in batch.gpus],
        "signatures": [[each.kernel, *each.grid, *each.block, each.shared_bytes] for each in batch.signatures],
        "state": batch.state}
    for name, table in batch.tables.items():
        document[name] = {column: _seen(values) for column, values in table.items()}
    for name, (bucket, count) in batch.pairs.items():
        document[name] |= {"bucket": _seen(bucket), "count": _seen(count)}
    return zstandard.ZstdCompressor(level=3).compress(msgspec.msgpack.encode(document))


def _seen(values: Column) -> memoryview:
    """The bytes of a column, not copied: a batch is made in little memory."""
    return np.ascontiguousarray(values).view(np.uint8).data


class _Document(msgspec.Struct):
    """The shape of what may come; anything else is refused."""

    v: int
    agent: str
    sequence: int
    sent_ns: int
    contexts: list[tuple[str, str, str, str, str, str, bool]]
    gpus: list[tuple[str, str, str]]
    signatures: list[tuple[str, int, int, int, int, int, int, int]]
    kernels: dict[str, bytes]
    on_gpus: dict[str, bytes]
    gpu_kernels: dict[str, bytes]
    telemetry: dict[str, bytes]
    state: dict[str, Any] = {}


def unpack(data: bytes) -> Batch:
    """Return the batch that bytes hold.

    Raises:
        BatchRefused: too large, not a batch of this version, or numbers outside their limits.
    """
    if len(data) > MOST_BYTES:
        raise BatchRefused(f"{len(data):,} bytes: a batch has at most {MOST_BYTES:,}")
    try:
        size = zstandard.frame_content_size(data)
        if not 0 <= size <= MOST_PLAIN_BYTES:
            raise BatchRefused(f"its unpacked size is unknown or above {MOST_PLAIN_BYTES:,} bytes")
        document = msgspec.msgpack.decode(zstandard.ZstdDecompressor().decompress(data, max_output_size=MOST_PLAIN_BYTES),
                                          type=_Document)
    except (zstandard.ZstdError, msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BatchRefused(f"not a batch: {str(error)[:200]}") from error
    if document.v != VERSION:
        raise BatchRefused(f"version {document.v} of the format; this server reads {VERSION}")
    _check_names(document)
    lengths = {"contexts": len(document.contexts), "gpus": len(document.gpus), "signatures": len(document.signatures)}
    tables, pairs = {}, {}
    for name, columns in TABLES.items():
        payload: dict[str, bytes] = getattr(document, name)
        if name == "gpu_kernels" and not any(column in payload for column in ESTIMATES):
            columns = {column: kind for column, kind in columns.items() if column not in ESTIMATES}
        tables[name] = table = _columns(name, columns, payload)
        _check_rows(name, table, lengths)
        if name in SKETCHES:
            pairs[name] = _pairs(name, table, payload)
    if "square" not in tables["gpu_kernels"]:
        tables["gpu_kernels"] |= _scale(tables["gpu_kernels"], tables["on_gpus"])
    return Batch(document.agent[:MOST_WORD], document.sequence, document.sent_ns, [Context(*each) for each in document.contexts],
                 [Gpu(*gpu) for gpu in document.gpus],
                 [Signature(each[0], each[1:4], each[4:7], each[7]) for each in document.signatures], tables, pairs,
                 document.state)


def _scale(kernels: Table, on_gpus: Table) -> Table:
    """Return estimates of a GPU's kernels by how its minute was watched.

    How windows differ is not known then: the square is that of one window, the largest that it can be, and so is the interval.
    """
    places = [np.stack([table[name].astype(np.int64) for name in ("minute", "context", "gpu")], axis=1)
              for table in (kernels, on_gpus)]
    _, number = np.unique(np.concatenate(places), axis=0, return_inverse=True)
    of_kernel, of_gpu = np.split(number.reshape(-1), [len(places[0])])
    observed, wall = (np.bincount(of_gpu, on_gpus[name].astype(np.float64), number.size) for name in ("observed_ns", "wall_ns"))
    weight = np.divide(wall, observed, out=np.ones_like(wall), where=observed > 0)[of_kernel]
    estimate_ns = weight * kernels["total_ns"]
    return {"estimate_launches": weight * kernels["launches"], "estimate_ns": estimate_ns, "square": estimate_ns ** 2}


def _check_names(document: _Document) -> None:
    for name in ("contexts", "gpus", "signatures"):
        if len(getattr(document, name)) > MOST_NAMES:
            raise BatchRefused(f"more than {MOST_NAMES:,} {name}")
    words = [word for entry in (*document.contexts, *document.gpus) for word in entry if isinstance(word, str)]
    if any(len(word) > MOST_WORD or "\0" in word for word in words) or "\0" in document.agent or not document.agent:
        raise BatchRefused(f"a word is longer than {MOST_WORD} characters, holds NUL, or the agent has no name")
    for kernel, *numbers in document.signatures:
        if len(kernel) > MOST_NAME or "\0" in kernel or any(not 0 <= number < 2**31 for number in numbers):
            raise BatchRefused(f"a signature is outside its limits: {kernel[:80]!r} {numbers}")
    if not 0 <= document.sequence < 2**62 or not 0 <= document.sent_ns < LATEST_NS:
        raise BatchRefused("sequence or time outside their limits")


def _columns(name: str, columns: Mapping[str, str], given: Mapping[str, bytes]) -> Table:
    out: Table = {}
    for column, kind in columns.items():
        data = given.get(column, b"")
        if len(data) % np.dtype(kind).itemsize:
            raise BatchRefused(f"{name}.{column}: {len(data)} bytes are no whole number of {kind}")
        out[column] = np.frombuffer(data, kind)
    rows = {values.size for values in out.values()}
    if len(rows) > 1 or max(rows) > MOST_ROWS:
        raise BatchRefused(f"{name}: columns of different lengths, or more than {MOST_ROWS:,} rows")
    return out


def _check_rows(name: str, table: Table, lengths: Mapping[str, int]) -> None:
    for column, of in _INDEX.items():
        if column in table and table[column].size and (table[column].min() < 0 or table[column].max() >= lengths[of]):
            raise BatchRefused(f"{name}.{column} points outside {of}")
    for column, values in table.items():
        if not values.size:
            continue
        if values.dtype.kind == "i" and column != "rank" and (values.min() < 0 or values.max() >= LATEST_NS):
            raise BatchRefused(f"{name}.{column} is negative or too large")
        if values.dtype.kind == "f" and name != "telemetry" and not np.isfinite(values).all():
            raise BatchRefused(f"{name}.{column} is not finite")
    if "minute" in table and table["minute"].size and table["minute"].max() > LATEST_NS // 60_000_000_000:
        raise BatchRefused(f"{name}.minute is too large")


def _pairs(name: str, table: Table, given: Mapping[str, bytes]) -> tuple[Column, Column]:
    bucket, count = _column(name, given, "bucket", "<i2"), _column(name, given, "count", "<i8")
    if bucket.size != count.size or bucket.size != int(table["buckets"].sum()):
        stated = int(table["buckets"].sum())
        raise BatchRefused(f"{name}: {bucket.size} buckets and {count.size} counts for rows that state {stated}")
    if bucket.size and (bucket.min() < 0 or bucket.max() > MOST or count.min() < 0):
        raise BatchRefused(f"{name}: a bucket is outside its limits")
    own = np.add.reduceat(np.append(count, 0), np.append(0, np.cumsum(table["buckets"])[:-1]))[:table["buckets"].size] if \
        table["buckets"].size else count[:0]
    own = np.where(table["buckets"] > 0, own, 0)
    if not np.array_equal(own, table["launches"]):
        raise BatchRefused(f"{name}: a row's buckets do not add up to its launches")
    return bucket, count


def _column(name: str, given: Mapping[str, bytes], column: str, kind: str) -> Column:
    data = given.get(column, b"")
    if len(data) % np.dtype(kind).itemsize:
        raise BatchRefused(f"{name}.{column}: {len(data)} bytes are no whole number of {kind}")
    return np.frombuffer(data, kind)
