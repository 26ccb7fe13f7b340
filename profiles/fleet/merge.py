"""Batches of many hosts added up to hours before they are written. Pure: numpy in, numpy out."""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from profiles.fleet.tables import BY_NAME, EVENTS, TELEMETRY, FactTable
from profiles.ingest.naming.demangle import demangle
from workers.agent.launches import Context, Gpu, Signature
from workers.agent.wire import Batch

MINUTES = 60
Column = npt.NDArray[np.generic]


def key_of(*parts: object) -> int:
    """Return a number for words and numbers: 63 bits of BLAKE2b, the same on every machine and day."""
    digest = hashlib.blake2b("\x1f".join(map(str, parts)).encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int(struct.unpack("<q", digest)[0]) & (2**63 - 1)


@dataclass
class Hours:
    """Rows of one table: equal lengths. `starts`: where the (bucket, count) pairs of each row begin, and the end of the last."""

    columns: dict[str, Column]
    starts: npt.NDArray[np.int64] | None = None
    bucket: npt.NDArray[np.int64] | None = None
    count: npt.NDArray[np.int64] | None = None

    @property
    def rows(self) -> int:
        return int(self.columns["at"].size)


@dataclass
class Merged:
    """What a merge writes: rows by table, and the names that they point to."""

    tables: dict[str, Hours]
    kernels: dict[int, str] = field(default_factory=dict)
    signatures: dict[int, tuple[int, Signature]] = field(default_factory=dict)       # id -> (kernel, signature)
    contexts: dict[int, Context] = field(default_factory=dict)
    gpus: dict[int, Gpu] = field(default_factory=dict)


def merge(batches: Sequence[Batch]) -> Merged:
    """Return the sums of several batches by hour; `at` is the hour's number since 1970."""
    merged = Merged({})
    parts: dict[str, list[Hours]] = {name: [] for name in BY_NAME}
    for batch in batches:
        ids = _ids(batch, merged)
        for name in ("kernels", "on_gpus"):
            table, (bucket, count) = batch.tables[name], batch.pairs[name]
            columns: dict[str, Column] = {"at": table["minute"] // MINUTES}
            columns |= {column: ids[column][table[column]] for column in ("context", "signature", "gpu") if column in table}
            columns |= {column: table[column] for column in ("launches", "total_ns", "estimate_launches", "estimate_ns", "square",
                                                             "min_ns", "max_ns", "rank", "windows", "observed_ns", "wall_ns")
                        if column in table}
            starts = np.append(0, np.cumsum(table["buckets"].astype(np.int64)))
            rows = Hours(columns, starts, bucket.astype(np.int64), count.astype(np.int64))
            parts["gpus" if name == "on_gpus" else name].append(rows)
            if name == "on_gpus":
                parts["contexts"].append(rows)
            if name == "kernels":
                parts["totals"].append(Hours({**columns, "kernel": ids["kernel"][table["signature"]],
                                              "gpu_model": ids["gpu_model"][table["context"]]}, starts, rows.bucket, rows.count))
        table = batch.tables["gpu_kernels"]
        parts["gpu_kernels"].append(Hours({
            "at": table["minute"] // MINUTES, **{column: ids[column][table[column]] for column in ("gpu", "signature", "context")},
            **{column: table[column] for column in BY_NAME["gpu_kernels"].sums}}))
        parts["telemetry"].append(_telemetry(batch, ids["gpu"]))
    merged.tables = {name: add_up(BY_NAME[name], every) for name, every in parts.items() if any(part.rows for part in every)}
    return merged


def _ids(batch: Batch, merged: Merged) -> dict[str, npt.NDArray[np.int64]]:
    """The keys of a batch's own numbers; what they are called goes into `merged`."""
    contexts, gpus, signatures, kernels, models = [], [], [], [], []
    for context in batch.contexts:
        contexts.append(key_of("context", *context))
        models.append(key_of("gpu_model", context.gpu_model, context.simulated))
        merged.contexts.setdefault(contexts[-1], context)
    for gpu in batch.gpus:
        gpus.append(key_of("gpu", gpu.uuid, gpu.host))
        merged.gpus.setdefault(gpus[-1], gpu)
    for entry in batch.signatures:
        signature = entry._replace(kernel=demangle(entry.kernel) or entry.kernel)       # as traces write it: one kernel, one name
        kernels.append(key_of("kernel", signature.kernel))
        signatures.append(key_of("signature", *signature))
        merged.kernels.setdefault(kernels[-1], signature.kernel)
        merged.signatures.setdefault(signatures[-1], (kernels[-1], signature))
    named = {"context": contexts, "gpu": gpus, "signature": signatures, "kernel": kernels, "gpu_model": models}
    return {name: np.array(values or [0], np.int64) for name, values in named.items()}


def _telemetry(batch: Batch, gpu: npt.NDArray[np.int64]) -> Hours:
    table = batch.tables["telemetry"]
    columns: dict[str, Column] = {"at": table["minute"] // MINUTES, "gpu": gpu[table["gpu"]],
                                  "minutes": np.ones(table["minute"].size, np.int64)}
    for name in (*EVENTS, *TELEMETRY):
        is_measured = np.isfinite(table[name])
        columns[name if name in EVENTS else f"sum_{name}"] = np.where(is_measured, table[name], 0.0).astype(np.float64)
        columns[f"n_{name}"] = is_measured.astype(np.int64)
    return Hours(columns)


def add_up(table: FactTable, parts: Sequence[Hours]) -> Hours:
    """Return one row per key of several parts: sums, least and greatest values, and sketches by bucket."""
    columns = {name: np.concatenate([part.columns[name] for part in parts]) for name in (
        "at", *table.keys, *table.sums, *table.least, *table.most)}
    keys = [columns[name] for name in ("at", *table.keys)]
    order = np.lexsort(keys[::-1])
    keys = [column[order] for column in keys]
    new = np.ones(order.size, np.bool_)
    if order.size:
        new[1:] = np.any([column[1:] != column[:-1] for column in keys], axis=0)
    edges = np.flatnonzero(new)
    out: dict[str, Column] = {name: column[edges] for name, column in zip(("at", *table.keys), keys, strict=True)}
    counts = columns["launches"][order] if "launches" in columns else None
    for name in table.sums:
        out[name] = np.add.reduceat(columns[name][order], edges) if edges.size else columns[name][:0]
    for name in table.least:
        values = columns[name][order]
        values = values if counts is None else np.where(counts > 0, values, np.iinfo(np.int64).max)
        out[name] = np.minimum.reduceat(values, edges) if edges.size else values
    for name in table.most:
        out[name] = np.maximum.reduceat(columns[name][order], edges) if edges.size else columns[name][:0]
    if not table.has_sketch:
        return Hours(out)
    group = np.empty(order.size, np.int64)
    group[order] = np.cumsum(new) - 1
    return Hours(out, *_add_sketches(parts, group, edges.size))


def _add_sketches(parts: Sequence[Hours], group: npt.NDArray[np.int64],
                  groups: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    sizes = np.concatenate([np.diff(part.starts) for part in parts if part.starts is not None])
    bucket = np.concatenate([part.bucket for part in parts if part.bucket is not None])
    count = np.concatenate([part.count for part in parts if part.count is not None])
    key = np.repeat(group, sizes) * 4096 + bucket
    unique, inverse = np.unique(key, return_inverse=True)
    order = np.argsort(inverse, kind="stable")
    edges = np.flatnonzero(np.diff(inverse[order], prepend=-1))
    summed = np.add.reduceat(count[order], edges) if edges.size else count[:0]
    starts = np.searchsorted(unique, np.arange(groups + 1) * 4096)
    return starts.astype(np.int64), unique % 4096, summed
