"""Export: entries of the cache as files of other projects, path -> text."""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from profiles.base.words import pairs_text
from tuner.cache import rules
from tuner.cache.entries.bans import read_bans
from tuner.cache.entries.selectors import as_entry, config_filter
from tuner.cache.formats import FORMATS, fused_moe, helion, t4, triton_text
from tuner.cache.formats.document import FormatError, one_line
from tuner.jobs.selectors import stored_trials
from tuner.models import CachedConfig, TuneJob
from tuner.texts import config_in_order, in_order

EXPORTS = tuple(name for name, file_format in FORMATS.items() if file_format.writes)
UNVERIFIED = "unverified"            # folder of what was never measured here, beside what was
SERVING = (rules.State.VERIFIED, rules.State.UNVERIFIED)
MAX_ENTRIES = 5_000
RECORDED = "it is a recording: ask for recordings (recorded=1)"


@dataclass(frozen=True)
class Export:
    """Files by path, why entries were left out (why -> how many), and the files of entries that nobody measured here."""

    files: Mapping[str, str]
    left_out: Mapping[str, int] = field(default_factory=dict)
    unverified: Sequence[str] = ()


def export_entries(format: str, query: Mapping[str, str], recorded: bool = False) -> Export:
    """Return the entries that the query chooses in one format. Raises FormatError when there are none.

    recorded  recordings too: a file's reader cannot tell them from what was measured

    What came from a file or a listener shares no file with what a tune job measured here: where there is both, it lies in its own
    folder.
    """
    if format not in EXPORTS or FORMATS[format].trials:
        raise FormatError("format", "is none that entries are written in",
                          f"Choose one of {', '.join(name for name in EXPORTS if not FORMATS[name].trials)}.")
    rows, left_out = _serving_entries(config_filter(query)[:MAX_ENTRIES], recorded)
    writer = {"triton": _write_triton, "vllm": _write_vllm, "sglang": _write_sglang, "helion": _write_helion}[format]
    files = writer([row for row in rows if row.origin == rules.Origin.TUNE], left_out, query)
    others = writer([row for row in rows if row.origin != rules.Origin.TUNE], left_out, query)
    unverified = {f"{UNVERIFIED}/{path}" if files else path: text for path, text in others.items()}
    files |= unverified
    if not files:
        why = "; ".join(f"{count} × {what}" for what, count in left_out.items()) or "no entry matches"
        raise FormatError(format, f"nothing can be written: {why}", "Choose other entries or another format.")
    return Export(files, left_out, tuple(unverified))


def _serving_entries(rows: Any, recorded: bool) -> tuple[list[CachedConfig], dict[str, int]]:
    """Return, per key, the entry that serves: a tune job's first, measured before recorded."""
    best: dict[tuple[str, ...], tuple[Any, CachedConfig]] = {}
    left_out: dict[str, int] = {}
    bans = read_bans()
    for row in rows:
        entry = as_entry(row, bans)
        why = f"it is {entry.state}" if entry.state not in SERVING else RECORDED if entry.recorded and not recorded else ""
        if why:
            left_out[why] = left_out.get(why, 0) + 1
            continue
        key = (row.operator, row.dtype, row.shape_key, row.gpu)
        rank = (list(rules.Origin).index(entry.origin), entry.state != rules.State.VERIFIED, entry.recorded, -row.pk)
        if key not in best or rank < best[key][0]:
            best[key] = (rank, row)
    return [row for _, row in best.values()], left_out


def _write_triton(rows: Sequence[CachedConfig], left_out: dict[str, int], query: Mapping[str, str]) -> dict[str, str]:
    """Write a Python list per operator, type, GPU and names of parameters; each configuration once, with its shapes.

    A kernel takes its own parameters alone, so a list with another one's, or with those of before, is no list of either.
    """
    groups: dict[tuple[str, ...], dict[str, list[str]]] = {}
    for row in rows:
        call = triton_text.config_call(config_in_order(row.config))
        shape = pairs_text(in_order(row.operator, row.shape))
        time = f", {row.median_ms:.6g} ms" if row.median_ms else ""
        time += f" {one_line(row.recorded)}" if row.recorded else ""
        time += f", {row.state}: {one_line(row.state_why)}" if row.state != rules.State.VERIFIED else ""
        key = (row.operator, row.dtype, row.gpu, ", ".join(triton_text.own_names(row.config)))
        groups.setdefault(key, {}).setdefault(call, []).append(shape + time)
    paths = _distinct_paths({key: _file_stem(*key[:3]) for key in groups}, ".py")
    return {paths[key]: f"# {one_line(' '.join(key[:3]))}: {one_line(key[3])}\n[\n" + "".join(
        f"    {call},  # {'; '.join(shapes)}\n" for call, shapes in calls.items()) + "]\n" for key, calls in groups.items()}


def _write_helion(rows: Sequence[CachedConfig], left_out: dict[str, int], query: Mapping[str, str]) -> dict[str, str]:
    """Write a file per entry that helion.Config.load reads."""
    texts = {(row.operator, row.dtype, row.gpu, row.shape_key): helion.write(row.operator, config_in_order(row.config))
             for row in rows}
    paths = _distinct_paths({key: _file_stem(*key) for key in texts}, ".json")
    return {paths[key]: text for key, text in texts.items()}


def _write_vllm(rows: Sequence[CachedConfig], left_out: dict[str, int], query: Mapping[str, str]) -> dict[str, str]:
    return {fused_moe.vllm_name(name): fused_moe.write(by_batch, _triton_version(toolkit) if name.experts is not None else "")
            for (name, toolkit), by_batch in _group_by_layer(rows, left_out, True, query).items()}


def _write_sglang(rows: Sequence[CachedConfig], left_out: dict[str, int], query: Mapping[str, str]) -> dict[str, str]:
    files = {}
    for (name, toolkit), by_batch in _group_by_layer(rows, left_out, False, query).items():
        version, linear = _triton_version(toolkit), name.experts is None
        if not version and not linear:
            why = "its Triton version is not known: SGLang's folder is named by it"
            left_out[why] = left_out.get(why, 0) + len(by_batch)
            continue
        files[f"{fused_moe.sglang_folder(version, linear=linear)}/{fused_moe.sglang_name(name)}"] = fused_moe.write(by_batch)
    return files


def _group_by_layer(rows: Sequence[CachedConfig], left_out: dict[str, int], vllm: bool,
                    query: Mapping[str, str]) -> dict[tuple[fused_moe.Name, str], dict[int, dict[str, Any]]]:
    """Return a file per layer (experts, width, GPU, type): batch size -> configuration."""
    layers: dict[tuple[fused_moe.Name, str], dict[int, dict[str, Any]]] = {}
    sizes: dict[tuple[fused_moe.Name, str], set[int]] = {}
    word = {ours: theirs for theirs, ours in fused_moe.DTYPES.items() if theirs} | {"bf16": "", "fp16": ""}
    only = {name: int(query[name][:20]) for name in "EMNK" if query.get(name, "").isdecimal()}
    topk = int(query["topk"][:20]) or None if query.get("topk", "").isdecimal() else None
    linear = (fused_moe.UNSCALED, fused_moe.LINEAR)
    for row in sorted(rows, key=lambda row: row.operator == fused_moe.LINEAR):     # theirs last: it is what the file is for
        shape = row.shape
        if any(shape.get(name) != value for name, value in only.items()):
            continue
        why = "" if {"M", "N", "K"} <= set(shape) and row.operator in (fused_moe.MOE, *linear) else (
            f"{row.operator} is no matrix product with batch sizes")
        if not why and row.operator in linear and row.dtype != "fp8":
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
        name = fused_moe.Name(width, fused_moe.device_name(row.gpu, vllm, linear=experts is None), experts, depth, word[row.dtype],
                              (128, 128) if experts is None else None)
        batch = shape["M"] if experts is None else shape["M"] // (topk or 1)
        layers.setdefault((name, row.toolkit), {})[batch] = config_in_order(row.config)
        sizes.setdefault((name, row.toolkit), set()).add(shape["K"])
    for (name, _), several in sizes.items():
        if len(several) > 1:
            many = ", ".join(map(str, sorted(several)))
            raise FormatError(fused_moe.vllm_name(name), f"entries for hidden sizes {many} share this name",
                              "Their files hold no hidden size: export one of them (K=…).")
    newest: dict[fused_moe.Name, str] = {}
    for name, toolkit in layers:                   # one file per name: of several toolkits the newest
        if name not in newest or rules.is_newer(toolkit, newest[name]):
            newest[name] = toolkit
    return {(name, toolkit): configs for (name, toolkit), configs in layers.items() if newest[name] == toolkit}


def _triton_version(toolkit: str) -> str:
    match = re.search(r"triton (\d+(?:\.\d+)*)", toolkit)
    return match[1] if match else ""


def _distinct_paths(stems: Mapping[tuple[str, ...], str], suffix: str) -> dict[tuple[str, ...], str]:
    """Return a path of its own for each key: a stem holds neither every character nor every length, so that two may have one."""
    shared = Counter(stems.values())
    marks = {key: f"-{hashlib.sha256(json.dumps(key).encode()).hexdigest()[:8]}" if shared[stem] > 1 else ""
             for key, stem in stems.items()}
    return {key: f"{stem}{marks[key]}{suffix}" for key, stem in stems.items()}


def _file_stem(*parts: str) -> str:
    return re.sub(r"[^A-Za-z0-9.=+-]+", "_", "_".join(part for part in parts if part))[:150]


# ---- trials of a job ----

def export_trials(format: str, job: TuneJob) -> Export:
    """Return every trial of a job, losers and failures included."""
    records = [(trial.config, trial.outcome, job.created) for trial in stored_trials(job)]
    if not records:
        raise FormatError(f"job {job.pk}", "has no trial yet", "Wait for its first trials.")
    stem = _file_stem(job.operator, job.dtype, job.gpu, f"job{job.pk}", "recorded" if job.recorded else "")
    if format == "t4":
        return Export({f"{stem}_T4.json": t4.write_t4(records, {"device": job.gpu, "recorded": job.recorded})})
    if format == "kernel-tuner":
        shape = in_order(job.operator, job.shape)
        return Export({f"{stem}.json": t4.write_kernel_tuner(records, kernel=job.operator, gpu=job.gpu, shape=shape)})
    raise FormatError("format", "is none that trials are written in", "Choose t4 or kernel-tuner.")
