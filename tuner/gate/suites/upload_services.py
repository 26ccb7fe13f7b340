"""Runs that CI measured itself: each line finds its kernel; a new one becomes a row, one that is there already counts once.

Of an uploaded suite kernels are seen: (operator, shape, type), and told apart by configuration too where an upload holds several
configurations of one problem. A suite that declares its kernels takes runs of those alone.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import sha256
from typing import Any

from django.db import transaction
from django.db.models import Q

from profiles.base.refused import Refused
from profiles.base.words import pairs_text
from tuner.cache import rules
from tuner.cache.entries.bans import spell_as
from tuner.gate.builds.services import ensure_build
from tuner.gate.suites.definition import kernel_key
from tuner.gate.suites.records import UPLOAD, Record, Upload, read_records, read_upload
from tuner.gate.suites.run_services import copy_runs, plain_facts, run_percentiles, runs_publish
from tuner.models import Build, KernelRun, Suite, SuiteKernel
from tuner.texts import config_in_order
from tuner.tuning.trial import config_key

# One spelling of an environment: names that differ in case, blanks or the order of their parts are one.

# between two versions: a comma, or only a blank or a stroke before the next name that toolkits have
_BETWEEN = re.compile(r"\s*[,;]\s*|(?<=\d)\s+(?:[/|+&]\s*|and\s+)?(?=(?:cuda|triton|torch|python|rocm|hip|cudnn|nvcc|jax)\b)",
                      re.IGNORECASE)


def toolkit_spelling(text: str) -> str:
    """Return "cuda 13.0, triton 3.6.0" of "Triton 3.6.0,  CUDA 13.0", "cuda-13.0 triton v3.6.0" and "CUDA version 13.0"…"""
    parts = {" ".join(part.split()).lower() for part in _BETWEEN.split(text)}
    return ", ".join(sorted(re.sub(r"^([a-z]+)(?:[\s:=_-]*(?:\1|version|v)(?![a-z]))*[\s:=_-]*(?=\d)", r"\1 ", part)
                            for part in parts - {""}))


def driver_spelling(text: str) -> str:
    """Return a driver's version without blanks around it, "driver", "version" or "v" before it."""
    return re.sub(r"^(?:nvidia\s+)?(?:driver)?\s*(?:version)?[\s:=]*v?(?=\d)", "", " ".join(text.split()), flags=re.IGNORECASE)


def gpu_spelling(text: str, known: Iterable[str] = ()) -> str:
    """Return a GPU's name with single blanks, spelled as one of `known` where only case, strokes or its maker's name differ."""
    return spell_as(" ".join(text.split()), known)


MAX_KERNELS = 5_000             # of one suite
MAX_KEY = 300
TELLING_SAMPLES = 5             # timers count in 32 ns: five samples that are equal one by one are one run sent twice
WHERE = ("gpu", "toolkit", "driver", "recorded")
Same = tuple[int, tuple[float, ...], str]
Process = tuple[Any, ...]


@dataclass(frozen=True)
class StoredRuns:
    stored: int                              # new rows
    known: int                               # runs that were there already, sample for sample
    repeated: int                            # of processes that are there already, with other samples: the first ones count
    rejected: int                            # of the new ones: kept with the reason, never judged
    kernels: list[str] = field(default_factory=list)             # keys
    runs: list[int] = field(default_factory=list)                # ids of the rows, new and known, in the order in which they came
    why: list[str] = field(default_factory=list)                 # of rejected ones, each reason once


def runs_store(suite: Suite, build: str | Build, records: bytes | Iterable[Any], *, gpu: str = "", toolkit: str = "",
               driver: str = "", recorded: str = "", environment: Mapping[str, Any] | None = None, shard: str = "",
               attempt: str = "", owner: Any = None) -> StoredRuns:
    """Store uploaded runs of one build, all or none. Refused: "line 7: us: …". What a line says of its GPU goes before `gpu`.

    Safe twice: a run whose samples stand already for this kernel and build is not stored again, nor is another measurement under
    the name of a process that is there, unless `shard` ("2/4") or `attempt` (of the pipeline) says that it is another process.
    """
    upload = read_upload(shard, attempt)
    lines = [replace(line, run=upload.label(line.run)) for line in read_records(records)]
    environment = {name: value for name, value in plain_facts(environment or {}).items() if name != UPLOAD}
    defaults = {"gpu": gpu[:120], "toolkit": (toolkit or cache_toolkit(environment))[:80],
                "driver": (driver or str(environment.get("driver") or ""))[:40], "recorded": recorded[:120]}
    if not defaults["gpu"] and not all(line.words.get("gpu") for line in lines):
        raise Refused({"gpu": "say on which GPU these runs were measured, for example NVIDIA H200"})
    with transaction.atomic():
        Suite.objects.select_for_update().get(pk=suite.pk)           # two uploads of one suite, one after the other
        row_build = build if isinstance(build, Build) else ensure_build(build)
        lines, kernels = _join_lines(lines, _match_kernels(suite, lines))
        lines, defaults = _spell_alike(lines, defaults, kernels)
        stored = _store_rows(lines, kernels, row_build, defaults, environment, upload)
        transaction.on_commit(lambda: runs_publish(suite), robust=True)
    return stored


def cache_toolkit(environment: Mapping[str, Any]) -> str:
    toolkit = rules.toolkit_text(environment)
    return "" if toolkit == "unknown" else toolkit


MOST_ASKED = 50                 # kernels whose earlier runs say how a GPU is spelled


def _spell_alike(lines: Sequence[Record], said: Mapping[str, str],
                 kernels: Sequence[SuiteKernel]) -> tuple[list[Record], dict[str, str]]:
    """Return lines and what is said of all of them with one spelling of GPU, toolkit and driver: that of earlier runs."""
    gpus = {said["gpu"], *(line.words.get("gpu", "") for line in lines)} - {""}
    query = Q()
    for name in list(gpus)[:MOST_ASKED]:
        short = re.sub("^nvidia[ -]+", "", gpu_spelling(name), flags=re.IGNORECASE)
        query |= Q(gpu__iexact=gpu_spelling(name)) | Q(gpu__iexact=short) | Q(gpu__iexact=f"NVIDIA {short}")
    ids = list(dict.fromkeys(kernel.pk for kernel in kernels))[:MOST_ASKED]
    runs = KernelRun.objects.filter(query, kernel__in=ids).order_by() if gpus else KernelRun.objects.none()
    known_gpus = list(runs.values_list("gpu", flat=True).distinct())

    def spelled(words: Mapping[str, str]) -> dict[str, str]:
        ways = {"gpu": lambda text: gpu_spelling(text, known_gpus), "toolkit": toolkit_spelling, "driver": driver_spelling}
        return {name: ways[name](text) if name in ways and text else text for name, text in words.items()}

    return [replace(line, words=spelled(line.words)) for line in lines], spelled(said)


# ---- which kernel a line is of ----

def _match_kernels(suite: Suite, lines: Sequence[Record]) -> list[SuiteKernel]:
    """For each line its kernel; those of an uploaded suite are made."""
    kernels_by_key = {kernel.key: kernel for kernel in suite.kernels.all()}
    before = sorted(kernels_by_key)
    configs: dict[str, set[str]] = defaultdict(set)
    bases = []
    for line in lines:
        base = _key(kernel_key(line.op, line.shape, line.words.get("dtype", ""), line.words.get("tag", "")))
        bases.append(base)
        configs[base].add(config_key(line.config or {}))
    kernels = []
    for line, base in zip(lines, bases, strict=True):
        told_apart = _key(f"{base} {pairs_text(config_in_order(line.config))}") if line.config else base
        if suite.kind != Suite.Kind.UPLOADED:
            kernel = _declared_kernel(line, base, kernels_by_key)
        elif len(configs[base]) > 1 or (base not in kernels_by_key and _has_prefix(base + " ", before)):
            kernel = _ensure_kernel(suite, line, told_apart, kernels_by_key)
        else:
            kernel = kernels_by_key.get(told_apart) or _ensure_kernel(suite, line, base, kernels_by_key)
        kernels.append(kernel)
    SuiteKernel.objects.bulk_create([kernel for kernel in kernels_by_key.values() if kernel.pk is None], batch_size=500)
    return kernels


def _key(text: str) -> str:
    """As rows hold it; of a longer one the end is a digest, so that two of them are never one kernel."""
    return text if len(text) <= MAX_KEY else f"{text[:MAX_KEY - 17]} {sha256(text.encode()).hexdigest()[:16]}"


def _has_prefix(start: str, ordered: Sequence[str]) -> bool:
    """Whether one of these texts, which are in order, begins with `start`."""
    index = bisect_left(ordered, start)
    return index < len(ordered) and ordered[index].startswith(start)


def _declared_kernel(line: Record, base: str, known: Mapping[str, SuiteKernel]) -> SuiteKernel:
    """Of a suite that declares its kernels: by key, else the one kernel of this problem, else the one of this configuration."""
    if base in known:
        return known[base]
    tag, dtype = line.words.get("tag"), line.words.get("dtype")
    fits = [kernel for kernel in known.values() if (kernel.op, kernel.shape) == (line.op, dict(line.shape))
            and dtype in (None, kernel.dtype) and (not tag or kernel.key.endswith(f" {tag}"))]
    matches = [kernel for kernel in fits if line.config and kernel.config == dict(line.config)]
    chosen = fits if len(fits) == 1 else matches
    if len(chosen) != 1:
        raise Refused({"runs": f"line {line.line}: {base}: " + (
            "the suite declares no such kernel" if not fits else "several kernels of the suite fit; say dtype and tag")})
    return chosen[0]


def _ensure_kernel(suite: Suite, line: Record, key: str, known: dict[str, SuiteKernel]) -> SuiteKernel:
    if key not in known:
        if len(known) >= MAX_KERNELS:
            raise Refused({"runs": f"line {line.line}: a suite holds at most {MAX_KERNELS:,} kernels"})
        known[key] = SuiteKernel(
            suite=suite, key=key, op=line.op, shape=dict(line.shape), dtype=line.words.get("dtype", ""), family=line.op,
            config_from="given" if line.config else "default", config=dict(line.config) if line.config else None,
            declared=False, place=len(known))
    return known[key]


# ---- rows ----

def _join_lines(lines: Sequence[Record], kernels: Sequence[SuiteKernel]) -> tuple[list[Record], list[SuiteKernel]]:
    """A process is one run: what several lines say of a kernel in one process are samples of one run, as in files that are judged
    without rows. Lines that were sent twice stay as they are: they are told by their samples."""
    kept: list[Record] = []
    of: list[SuiteKernel] = []
    first: dict[tuple[Any, ...], int] = {}
    parts: dict[int, set[tuple[float, ...]]] = defaultdict(set)
    for line, kernel in zip(lines, kernels, strict=True):
        at = first.setdefault((kernel.pk, line.run, repr(line.config), *line.words.values()), len(kept)) if line.us else len(kept)
        if at < len(kept) and line.us not in parts[at]:
            kept[at] = replace(kept[at], us=kept[at].us + line.us)
        else:
            kept.append(line)
            of.append(kernel)
        parts[at].add(line.us)
    return kept, of


def _store_rows(lines: Sequence[Record], kernels: Sequence[SuiteKernel], build: Build, said: Mapping[str, str],
                environment: Mapping[str, Any], upload: Upload) -> StoredRuns:
    standing = KernelRun.objects.filter(build=build, kernel__in={kernel.pk for kernel in kernels})
    samples: dict[Same, int] = {}
    labels: dict[tuple[int, str], int] = {}
    processes: dict[Process, int] = {}
    for row in standing.only("kernel_id", "run", "us", "job_id", "environment", "config", "gpu_uuid", *WHERE):
        labels[row.kernel_id, row.run] = row.pk
        if row.us:
            samples[_run_identity(row.kernel_id, row.run, row.us)] = row.pk
            if row.job_id is None:
                processes.setdefault(_process_of(row), row.pk)
    others = _runs_of_other_builds(lines, kernels, build) if not said["recorded"] else {}
    numbers: dict[str, int] = {}
    fresh: list[tuple[int, KernelRun]] = []
    ids: list[int | None] = []
    known_count = repeated = 0
    pending: set[Same] = set()
    for line, kernel in zip(lines, kernels, strict=True):
        same = _run_identity(kernel.pk, line.run, line.us)
        run_pk = samples.get(same) if line.us else labels.get((kernel.pk, line.run))
        if run_pk is not None or same in pending:
            known_count += 1
            ids.append(run_pk)
            continue
        pending.add(same)
        label = _free_label(line.run, kernel.pk, labels)
        row = _make_row(line, kernel, build, label, 0, said, environment, upload)
        if line.us and (run_pk := processes.get(_process_of(row))) is not None:
            repeated += 1
            ids.append(run_pk)
            continue
        if (owner := others.get((kernel.pk, line.us))) is not None:
            if (run_pk := labels.get((kernel.pk, line.run))) is not None:
                known_count += 1
                ids.append(run_pk)
                continue
            row.us, row.n, row.rejected = [], 0, f"these are the samples of a run of {owner}: a run counts for one build"
        labels[kernel.pk, label] = 0
        row.number = numbers.setdefault(line.run, len(numbers))
        fresh.append((len(ids), row))
        ids.append(None)
    rows = [row for _, row in fresh]
    for row, percentiles in zip(rows, run_percentiles(row.us for row in rows), strict=True):
        row.p50_us, row.p95_us = percentiles["p50_us"], percentiles["p95_us"]
    for (place, _), pk in zip(fresh, copy_runs(rows), strict=True):
        ids[place] = pk
    return StoredRuns(len(rows), known_count, repeated, sum(bool(row.rejected) for row in rows),
                      list(dict.fromkeys(kernel.key for kernel in kernels)),
                      [pk for pk in ids if pk], list(dict.fromkeys(row.rejected for row in rows if row.rejected))[:10])


def _runs_of_other_builds(lines: Sequence[Record], kernels: Sequence[SuiteKernel],
                          build: Build) -> dict[tuple[int, tuple[float, ...]], str]:
    """(kernel, samples) -> the other build that these very samples stand for already. Recorded runs repeat by their nature."""
    telling = [(kernel.pk, line.us) for line, kernel in zip(lines, kernels, strict=True)
               if len(line.us) >= TELLING_SAMPLES and len(set(line.us)) > 1]
    if not telling:
        return {}
    medians = {percentiles["p50_us"] for percentiles in run_percentiles(us for _, us in telling)}
    rows = KernelRun.objects.filter(kernel__in={kernel for kernel, _ in telling}, p50_us__in=medians, rejected="")
    rows = rows.exclude(build=build)
    pairs, names_by_pair = set(telling), {}
    for kernel, us, name in rows.order_by("-id").values_list("kernel_id", "us", "build__name").iterator(chunk_size=500):
        if (kernel, tuple(us)) in pairs:
            names_by_pair[kernel, tuple(us)] = name
    return names_by_pair


def _run_identity(kernel: int, run: str, us: Sequence[float]) -> Same:
    """What only one and the same run has: its samples, one by one; few, or all of one value, may be so by chance: its name too."""
    return kernel, tuple(us), run if len(us) < TELLING_SAMPLES or len(set(us)) == 1 else ""


def _process_of(row: KernelRun) -> Process:
    """What two runs of one process share: its name, in one attempt of the pipeline, of one kernel in one place."""
    told = row.environment.get(UPLOAD) or {}
    return (row.kernel_id, told.get("process") or row.run, told.get("attempt") or "", row.gpu_uuid, config_key(row.config or {}),
            *(getattr(row, name) for name in WHERE))


def _free_label(run: str, kernel: int, labels: Mapping[tuple[int, str], int]) -> str:
    """The run's own name, or the next free one: another upload of this build may count from 1 too."""
    label, again = run, 1
    while (kernel, label) in labels:
        again += 1
        label = f"{run}#{again}"
    return label


def _make_row(line: Record, kernel: SuiteKernel, build: Build, label: str, number: int, said: Mapping[str, str],
              environment: Mapping[str, Any], upload: Upload) -> KernelRun:
    words, facts = line.words, upload.facts(line.run, label)
    return KernelRun(
        kernel=kernel, build=build, run=label[:80], number=number, us=list(line.us), n=len(line.us), rejected=line.rejected,
        sm_clock_mhz=line.sm_clock_mhz, facts=dict(line.facts),
        config=dict(line.config) if line.config else None, source_hash=words.get("source_hash", ""),
        gpu=words.get("gpu") or said["gpu"], gpu_uuid=words.get("gpu_uuid", ""),
        toolkit=(words.get("toolkit") or cache_toolkit(words) or said["toolkit"])[:80],
        driver=words.get("driver") or said["driver"],
        environment={**environment, **({UPLOAD: facts} if facts else {})}, recorded=said["recorded"])
