"""Entries of the cache as files that other projects read: path -> text. What cannot be written is counted and said."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tuner import cache
from tuner.configs.selectors import config_filter, entry_of, quarantined
from tuner.formats import FORMATS, FormatError, fused_moe, helion, t4, triton_text
from tuner.formats.document import plain
from tuner.jobs.selectors import history
from tuner.models import CachedConfig, TuneJob
from tuner.texts import config_in_order, in_order

EXPORTS = tuple(name for name, one in FORMATS.items() if one.writes)
SERVING = (cache.State.VERIFIED, cache.State.UNVERIFIED)
MAX_ENTRIES = 5_000


@dataclass(frozen=True)
class Export:
    """Files by path, and why entries are in none of them (why -> how many)."""

    files: Mapping[str, str]
    left_out: Mapping[str, int] = field(default_factory=dict)


def export(format: str, query: Mapping[str, str]) -> Export:
    """The entries that ?operator=, ?gpu=, ?dtype= … choose, in one format. FormatError when it comes to nothing."""
    if format not in EXPORTS or FORMATS[format].trials:
        raise FormatError("format", "is none that entries are written in",
                          f"Choose one of {', '.join(name for name in EXPORTS if not FORMATS[name].trials)}.")
    rows, left_out = _served(config_filter(query)[:MAX_ENTRIES])
    writer = {"triton": _triton, "vllm": _vllm, "sglang": _sglang, "helion": _helion}[format]
    files = writer(rows, left_out, query)
    if not files:
        why = "; ".join(f"{count} × {what}" for what, count in left_out.items()) or "no entry matches"
        raise FormatError(format, f"nothing can be written: {why}", "Choose other entries or another format.")
    return Export(files, left_out)


def _served(rows: Any) -> tuple[list[CachedConfig], dict[str, int]]:
    """Of the entries of one key the one that serves: a tune job's before others, measured here before recorded."""
    best: dict[tuple[str, ...], tuple[Any, CachedConfig]] = {}
    left_out: dict[str, int] = {}
    banned = quarantined()
    for row in rows:
        entry = entry_of(row, banned)
        if entry.state not in SERVING:
            left_out[f"it is {entry.state}"] = left_out.get(f"it is {entry.state}", 0) + 1
            continue
        key = (row.operator, row.dtype, row.shape_key, row.gpu)
        rank = (list(cache.Origin).index(entry.origin), entry.state, entry.recorded, -row.pk)
        if key not in best or rank < best[key][0]:
            best[key] = (rank, row)
    return [row for _, row in best.values()], left_out


def _triton(rows: Sequence[CachedConfig], left_out: dict[str, int], query: Mapping[str, str]) -> dict[str, str]:
    """One Python list per operator, type and GPU, each configuration once, with the shapes that it serves."""
    groups: dict[str, dict[str, list[str]]] = {}
    for row in rows:
        call = triton_text.call(config_in_order(row.config))
        shape = " ".join(f"{name}={value}" for name, value in in_order(row.operator, row.shape).items())
        time = f", {row.median_ms:.6g} ms" if row.median_ms else ""
        time += f" {plain(row.recorded)}" if row.recorded else ""
        groups.setdefault(f"{_file(row.operator, row.dtype, row.gpu)}.py", {}).setdefault(call, []).append(shape + time)
    return {path: "[\n" + "".join(f"    {call},  # {'; '.join(shapes)}\n" for call, shapes in calls.items()) + "]\n"
            for path, calls in groups.items()}


def _helion(rows: Sequence[CachedConfig], left_out: dict[str, int], query: Mapping[str, str]) -> dict[str, str]:
    """One file per entry: helion.Config.load reads it."""
    return {f"{_file(row.operator, row.dtype, row.gpu, row.shape_key)}.json":
            helion.write(row.operator, config_in_order(row.config)) for row in rows}


def _vllm(rows: Sequence[CachedConfig], left_out: dict[str, int], query: Mapping[str, str]) -> dict[str, str]:
    return {fused_moe.vllm_name(name): fused_moe.write(by_batch, _triton_version(toolkit))
            for (name, toolkit), by_batch in _by_layer(rows, left_out, True, query).items()}


def _sglang(rows: Sequence[CachedConfig], left_out: dict[str, int], query: Mapping[str, str]) -> dict[str, str]:
    files = {}
    for (name, toolkit), by_batch in _by_layer(rows, left_out, False, query).items():
        version = _triton_version(toolkit)
        if not version:
            left_out["its Triton version is not known: SGLang's folder is named by it"] = len(by_batch)
            continue
        files[f"{fused_moe.sglang_folder(version)}/{fused_moe.sglang_name(name)}"] = fused_moe.write(by_batch)
    return files


def _by_layer(rows: Sequence[CachedConfig], left_out: dict[str, int], vllm: bool,
              query: Mapping[str, str]) -> dict[tuple[fused_moe.Name, str], dict[int, dict[str, Any]]]:
    """One file per layer: experts, width, GPU, type; in it the batch sizes. Their names hold no hidden size."""
    found: dict[tuple[fused_moe.Name, str], dict[int, dict[str, Any]]] = {}
    sizes: dict[tuple[fused_moe.Name, str], set[int]] = {}
    word = {ours: theirs for theirs, ours in fused_moe.DTYPES.items() if theirs} | {"bf16": "", "fp16": ""}
    only = {name: int(query[name][:20]) for name in "EMNK" if query.get(name, "").isdecimal()}
    topk = int(query["topk"][:20]) or None if query.get("topk", "").isdecimal() else None
    for row in rows:
        shape = row.shape
        if any(shape.get(name) != value for name, value in only.items()):
            continue
        why = "" if {"M", "N", "K"} <= set(shape) and row.operator in (fused_moe.MOE, fused_moe.LINEAR) else (
            f"{row.operator} is no matrix product with batch sizes")
        if not why and row.operator == fused_moe.LINEAR and row.dtype != "fp8":
            why = "their files for linear layers are for fp8 only"
        experts = shape.get("E") if row.operator == fused_moe.MOE else None
        if not why and row.dtype not in word:
            why = f"they have no word for {row.dtype}"
        if not why and experts is not None and topk is None:
            why = "say how many experts a token goes to (topk=…): their batch sizes are tokens"
        if not why and experts is not None and (shape["M"] % (topk or 1) or shape["N"] % 2):
            why = f"its rows are no whole number of tokens to {topk} experts, or its columns no two halves"
        why = why or fused_moe.why_not(row.config)
        if why:
            left_out[why] = left_out.get(why, 0) + 1
            continue
        width, depth = (shape["N"], shape["K"]) if experts is None else (shape["N"] // 2, None)
        name = fused_moe.Name(width, fused_moe.device_of(row.gpu, vllm), experts, depth, word[row.dtype],
                              (128, 128) if experts is None else None)
        batch = shape["M"] if experts is None else shape["M"] // (topk or 1)
        found.setdefault((name, row.toolkit), {})[batch] = config_in_order(row.config)
        sizes.setdefault((name, row.toolkit), set()).add(shape["K"])
    for (name, _), several in sizes.items():
        if len(several) > 1:
            many = ", ".join(map(str, sorted(several)))
            raise FormatError(fused_moe.vllm_name(name), f"entries for hidden sizes {many} share this name",
                              "Their files hold no hidden size: export one of them (K=…).")
    newest: dict[fused_moe.Name, str] = {}
    for name, toolkit in found:                   # one file per name: of several toolkits the newest
        if name not in newest or cache.newer(toolkit, newest[name]):
            newest[name] = toolkit
    return {(name, toolkit): configs for (name, toolkit), configs in found.items() if newest[name] == toolkit}


def _triton_version(toolkit: str) -> str:
    found = re.search(r"triton (\d+(?:\.\d+)*)", toolkit)
    return found[1] if found else ""


def _file(*parts: str) -> str:
    return re.sub(r"[^A-Za-z0-9.=+-]+", "_", "_".join(part for part in parts if part))[:150]


# ---- trials of a job ----

def export_trials(format: str, job: TuneJob) -> Export:
    """Every trial of a job, losers and failures too."""
    records = [(trial.config, trial.outcome, job.created) for trial in history(job)]
    if not records:
        raise FormatError(f"job {job.pk}", "has no trial yet", "Wait for its first trials.")
    stem = _file(job.operator, job.dtype, job.gpu, f"job{job.pk}", "recorded" if job.recorded else "")
    if format == "t4":
        return Export({f"{stem}_T4.json": t4.write_t4(records, {"device": job.gpu, "recorded": job.recorded})})
    if format == "kernel-tuner":
        shape = in_order(job.operator, job.shape)
        return Export({f"{stem}.json": t4.write_kernel_tuner(records, kernel=job.operator, gpu=job.gpu, shape=shape)})
    raise FormatError("format", "is none that trials are written in", "Choose t4 or kernel-tuner.")
