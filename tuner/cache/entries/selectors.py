"""Read the cache: what was measured where, entries as the rules want them, the answer to a launch, and why."""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, NotRequired, TypedDict

from django.db.models import Count, Max, QuerySet

from profiles.base.answers import Facts, Scalar, make_answer
from tuner.cache import buckets, rules
from tuner.cache.buckets import BUCKETS, Buckets
from tuner.cache.default_check import check_library, library_gain
from tuner.cache.entries.bans import Bans, capability_of, read_bans, spell_as
from tuner.cache.formats import triton_text
from tuner.cache.portability import (
    Cell,
    MeasuredSpace,
    ShapeStep,
    between_gpus,
    between_toolkits,
    cells_by_distance,
    shape_steps,
    shared_bucket_cell,
)
from tuner.models import BucketPolicy, CachedConfig, ImportedFile, TrialRow, TuneJob
from tuner.texts import config_in_order
from tuner.tuning import operators
from tuner.tuning.operators import limits
from tuner.tuning.trial import config_key

MAX_JOBS = 2_000                 # newest; a fleet's portability does not rest on older ones
_JOB = "job "                    # how the source of a job's space begins; of a file's: "file 3"
MAX_UNPACKED = 32 * 2**20
_NO_BANS = Bans()


def measured_spaces(operator: str = "") -> tuple[MeasuredSpace, ...]:
    """Return every finished job and imported space, oldest first; they are read again only when one was added."""
    spaces = _read_spaces(*_spaces_version())
    return tuple(space for space in spaces if space.operator == operator) if operator else spaces


def _spaces_version() -> tuple[Any, ...]:
    """Return a key that changes whenever a job finished or a file came or went."""
    jobs = TuneJob.objects.filter(status=TuneJob.Status.DONE).aggregate(n=Count("pk"), last=Max("finished"), id=Max("pk"))
    files = ImportedFile.objects.filter(tested__isnull=False, best_ms__isnull=False).aggregate(n=Count("pk"), last=Max("pk"))
    return jobs["n"], jobs["last"], jobs["id"], files["n"], files["last"]


@lru_cache(maxsize=2)
def _read_spaces(*changed: Any) -> tuple[MeasuredSpace, ...]:
    jobs = list(TuneJob.objects.filter(status=TuneJob.Status.DONE).order_by("-finished", "-pk")[:MAX_JOBS])
    times: dict[int, dict[str, float | None]] = {job.pk: {} for job in jobs}
    by_name = {name: operators.find(name) for name in {job.operator for job in jobs}}
    complete = {job.pk: operator.complete if (operator := by_name[job.operator]) else dict for job in jobs}
    exact = {name: frozenset(exact_dims(name)) for name in by_name}
    rows = TrialRow.objects.filter(job__in=list(times)).values_list("job_id", "config", "median_ms", "facts__ended").iterator()
    for job_id, config, median_ms, ended in rows:
        if ended != "raced":                     # a raced one was given up early: its median is no measurement to compare with
            times[job_id][config_key(complete[job_id](config))] = median_ms
    ours = [MeasuredSpace(job.operator, job.dtype, job.shape, job.gpu, rules.toolkit_text(job.environment), times[job.pk],
                          job.recorded, f"{_JOB}{job.pk}", exact[job.operator]) for job in reversed(jobs)]
    files = ImportedFile.objects.filter(tested__isnull=False, best_ms__isnull=False).order_by("pk")
    return (*(_imported_space(file) for file in files), *ours)


def _imported_space(file: ImportedFile) -> MeasuredSpace:
    times = json.loads(zlib.decompressobj().decompress(bytes(file.tested or b""), MAX_UNPACKED))
    return MeasuredSpace(file.operator, file.dtype, file.shape, file.gpu, file.toolkit, times, f"imported from {file.name}",
                         f"file {file.pk}", frozenset(exact_dims(file.operator)))


def _own_spaces(*changed: Any) -> list[MeasuredSpace]:
    """Return the jobs' spaces: what a file says decides over no entry that was measured here."""
    return [space for space in _read_spaces(*changed) if space.source.startswith(_JOB)]


def expected_losses() -> rules.Loss:
    """Return the expected loss of each rule's step: the mean over what jobs here tried; None where nothing was."""
    return _compute_losses(*_spaces_version())


@lru_cache(maxsize=2)
def _compute_losses(*changed: Any) -> rules.Loss:
    spaces = _own_spaces(*changed)
    gpus, toolkits, near = {}, {}, {}
    for operator in {space.operator for space in spaces}:
        mine = [space for space in spaces if space.operator == operator]
        gpus[operator], toolkits[operator] = between_gpus(mine), between_toolkits(mine)
        near[operator] = cells_by_distance(_operator_steps(operator, *changed))

    def loss(rule: rules.Rule, key: rules.Key, wanted: rules.Key, distance: float) -> float | None:
        if rule in rules.OWN_BUCKET:            # of another shape of the bucket: bucket_loss
            return 0.0 if rule == rules.Rule.EXACT else None
        cell: Cell | None = None
        if rule == rules.Rule.SAME_ARCHITECTURE and key.operator in gpus:
            cell = gpus[key.operator].cells.get((key.gpu, wanted.gpu))
        elif rule == rules.Rule.OTHER_TOOLKIT and key.operator in toolkits:
            cell = toolkits[key.operator].cells.get((key.toolkit, wanted.toolkit))
        elif rule == rules.Rule.NEAREST_BUCKET:
            cell = next((near_cell for limit, near_cell in near.get(key.operator, ()) if distance <= limit), None)
        return cell.loss if cell else None
    return loss


def bucket_loss(operator: str, policy: Buckets) -> float | None:
    """Return the loss at another shape of an entry's own bucket; None where no two shapes of a bucket were tried."""
    return shared_bucket_cell(_operator_steps(operator, *_spaces_version()), policy).loss


@lru_cache(maxsize=32)
def _operator_steps(operator: str, *changed: Any) -> tuple[ShapeStep, ...]:
    return tuple(shape_steps([space for space in _own_spaces(*changed) if space.operator == operator]))


OPEN = "open"                      # of a state filter: worth a look


def config_list() -> QuerySet[CachedConfig]:
    """Return all entries."""
    return CachedConfig.objects.select_related("job", "imported")


def config_filter(query: Mapping[str, str]) -> QuerySet[CachedConfig]:
    """Return the entries that ?operator=, ?gpu=, ?dtype=, ?state=, ?origin= and ?toolkit= choose."""
    rows = config_list()
    for name in ("operator", "gpu", "dtype", "state", "origin", "toolkit"):
        if query.get(name):
            rows = rows.filter(**{name: query[name]})
    return rows


def known_gpus() -> list[str]:
    """Return the GPUs that entries are for."""
    return list(CachedConfig.objects.order_by("gpu").values_list("gpu", flat=True).distinct())


# ---- buckets ----

def bucket_policies() -> dict[str, Buckets]:
    """Return the bucket policies that somebody chose, by operator; every other operator has BUCKETS."""
    return {row.operator: Buckets(row.exact_up_to, row.steps_per_doubling, row.max_distance)
            for row in BucketPolicy.objects.all()}


def bucket_policy(operator: str) -> Buckets:
    """Return the bucket policy of an operator."""
    return bucket_policies().get(operator, BUCKETS)


def exact_dims(operator: str) -> tuple[str, ...]:
    """Return the dimensions that are never rounded: the kernel's code depends on them."""
    definition = operators.find(operator)
    return tuple(dim.name for dim in definition.dims if dim.exact) if definition else ()


def bucket(operator: str, shape: Mapping[str, int]) -> str:
    """Return the bucket of a shape under the operator's policy."""
    return buckets.bucket(shape, exact_dims(operator), bucket_policy(operator))


# ---- entries ----

def entries(**where: Any) -> list[rules.Entry]:
    """Return every row as the rules see it, with what quarantines say of its configuration."""
    bans = read_bans()
    return [as_entry(row, bans) for row in config_list().filter(**where)]


def as_entry(row: CachedConfig, bans: Bans = _NO_BANS) -> rules.Entry:
    """Return a row as the rules see it: in quarantine where its configuration is under its own toolkit and kernel source."""
    key = rules.Key(row.operator, row.dtype, row.shape_bucket, row.gpu, row.compute_capability, row.toolkit,
                    row.source_hash, row.driver, row.policy, row.flush)
    mine = bans.of(row.operator, row.dtype, row.config, row.compute_capability)
    hold = next((ban for ban in mine if rules.holds_under((ban.toolkit, ban.source_hash), row.toolkit, row.source_hash)), None)
    free = hold is None or row.state == rules.State.QUARANTINED               # then a person's reason goes first
    state, why = (rules.State(row.state), row.state_why) if free or hold is None else (rules.State.QUARANTINED, hold.why)
    guard = row.evidence.get("guard") or {}
    low = guard.get("low") if guard.get("verdict") == "faster" else None
    barred = sorted({(ban.toolkit, ban.source_hash) for ban in mine})
    return rules.Entry(row.pk, key, row.config, bool(row.recorded), state, rules.Origin(row.origin), row.shape,
                       None if low is None else low - 1, kept_library(row), why, barred)


def kept_library(row: CachedConfig) -> float | None:
    """Return how many times as fast the library is as what the search found; None where it is not surely faster.

    Of an entry that was written before this was kept, by its medians alone.
    """
    check = row.evidence.get("library")
    if check is None and (judged := check_library({"median_ms": row.median_ms}, row.library_ms)):
        check = judged.as_json()
    return library_gain(check)


# ---- what a launch gets ----

def wanted_key(operator: str, dtype: str, gpu: str, shape: Mapping[str, int], **environment: str) -> rules.Key:
    """Return the key of a launch; `environment` fields (toolkit, driver, …) may be "" for any."""
    gpu = spell_as(gpu, known_gpus())
    capability = environment.pop("compute_capability", "") or capability_of(gpu)
    return rules.Key(operator, dtype, bucket(operator, shape), gpu, capability, **environment)


class ConsideredJson(TypedDict):
    """An entry that was considered; `refused`: why it does not serve."""

    id: int
    bucket: str
    shape: dict[str, int]
    gpu: str
    toolkit: str
    origin: str
    state: str
    recorded: str
    config: dict[str, Scalar]
    median_ms: float | None
    serves: bool
    rule: str | None
    refused: str | None
    order: list[float | bool]
    differs: list[str]
    expected_loss: float | None


class RuleJson(TypedDict):
    """A rule, the entries it found, and whether it served."""

    rule: str
    why: str
    found: int
    served: bool


class BestJson(TypedDict):
    """The configuration that a launch gets: which rule served it, and what it may cost against one measured for it."""

    operator: str
    dtype: str
    gpu: str
    shape: dict[str, int]
    bucket: str
    compute_capability: str
    toolkit: str
    rule: str
    why: str
    config: dict[str, Scalar]
    entry: ConfigJson | None
    library: float | None               # the vendor library is so many times as fast: keep it
    expected_loss: float | None
    differs: list[str]
    distance: float | None
    measured_shape: dict[str, int] | None
    recording: int | None               # an entry that would serve who asks for recordings
    considered: NotRequired[list[ConsideredJson]]
    rules: NotRequired[list[RuleJson]]


def config_best(operator: str, dtype: str, gpu: str, shape: Mapping[str, int], toolkit: str = "", *, why: bool = False,
                verified: bool = False, recorded: bool = False, **environment: str) -> BestJson:
    """Return the configuration that a launch gets, which rule served it, and why.

    verified     serve nothing else than `rules.is_verified`
    recorded     serve recordings too
    why          add every entry that was considered, and why it does not serve
    environment  driver, policy, flush, source_hash, compute_capability
    """
    key = wanted_key(operator, dtype, gpu, shape, toolkit=toolkit, **environment)
    rows = {row.pk: row for row in config_list().filter(operator=operator, dtype=dtype)}
    bans, exact, policy, expected = read_bans(), exact_dims(operator), bucket_policy(operator), expected_losses()
    candidates = [as_entry(row, bans) for row in rows.values()]
    barred = {entry.id: _not_asked_for(entry, verified, recorded) for entry in candidates}
    served = rules.look_up([entry for entry in candidates if not barred[entry.id]], key, exact, policy, expected, shape)
    answer: Any = {
        "operator": operator, "dtype": dtype, "gpu": gpu, "shape": dict(shape), "bucket": key.bucket,
        "compute_capability": key.compute_capability, "toolkit": toolkit}
    if served is None:
        rule = rules.Rule.DEFAULT
        answer |= {"rule": rule, "why": rules.WHY[rule], "config": default_config(operator, dtype, gpu, shape), "entry": None,
                   "library": None, "expected_loss": None, "differs": [], "distance": None, "measured_shape": None}
    else:
        expected_loss = bucket_loss(operator, policy) if served.rule == rules.Rule.BUCKET else served.loss
        answer |= {"rule": served.rule, "why": rules.why_of(served.rule, toolkit, served.entry.recorded),
                   "config": config_in_order(served.entry.config),
                   "entry": config_json(rows[served.entry.id], bans), "expected_loss": expected_loss,
                   "differs": list(served.differs),
                   "distance": served.distance, "measured_shape": dict(served.entry.shape) or None,
                   "library": served.entry.library if served.rule in rules.OWN_BUCKET else None}
    aside = None if verified or recorded else rules.look_up(candidates, key, exact, policy, expected, shape)
    answer["recording"] = aside.entry.id if aside and aside.entry.recorded else None
    if aside and aside.entry.recorded:
        answer["why"] += f"; {rules.recording_fits(aside.entry.id, aside.rule)}"
    if why:
        answer["considered"] = [
            _considered_row(entry, rows[entry.id], served, barred[entry.id] or rules.match_entry(
                entry, key, exact, policy, expected, shape)) for entry in candidates]
        answer["considered"].sort(key=lambda one: (not one["serves"], one["refused"] is not None, one["order"], one["id"]))
        answer["rules"] = rule_table(answer["considered"], served.rule if served else rules.Rule.DEFAULT)
    reply: BestJson = answer
    return reply


def _not_asked_for(entry: rules.Entry, verified: bool, recorded: bool) -> str:
    """Return why an entry does not serve whatever it was measured for; "" where it may."""
    if verified:
        return "" if rules.is_verified(entry) else rules.NOT_VERIFIED
    return rules.NOT_RECORDED if entry.recorded and not recorded else ""


def default_config(operator: str, dtype: str, gpu: str, shape: Mapping[str, int]) -> dict[str, Any]:
    """Return the default configuration of a problem."""
    definition = operators.find(operator)
    return dict(config_in_order(definition.default_config(shape, dtype, limits(gpu)))) if definition else {}


def _considered_row(entry: rules.Entry, row: CachedConfig, served: rules.Match | None, way: rules.Match | str) -> ConsideredJson:
    """Return one line of "why this one": an entry, and how it could serve or why not."""
    base: ConsideredJson = {
        "id": entry.id, "bucket": entry.key.bucket, "shape": dict(entry.shape), "gpu": entry.key.gpu, "toolkit": entry.key.toolkit,
        "origin": str(entry.origin), "state": str(entry.state), "recorded": row.recorded,
        "config": config_in_order(entry.config), "median_ms": row.median_ms,
        "serves": served is not None and served.entry.id == entry.id,
        "rule": None, "refused": None, "order": [], "differs": [], "expected_loss": None}
    if isinstance(way, str):
        return {**base, "refused": way}
    return {**base, "rule": str(way.rule), "order": list(rules.serving_order(way)), "differs": list(way.differs),
            "expected_loss": way.loss}


def rule_table(considered: Sequence[Mapping[str, Any]], served: rules.Rule) -> list[RuleJson]:
    """Return each rule in order with the number of entries it found and whether it served."""
    return [{"rule": str(rule), "why": why, "found": sum(entry["rule"] == rule for entry in considered), "served": rule == served}
            for rule, why in rules.WHY.items()]


class GuardJson(TypedDict):
    """Whether the winner is faster than the default, or than a library: the ratio of times with its bounds."""

    verdict: str
    ratio: float | None
    low: float | None
    high: float | None
    how: str


class HistoryJson(TypedDict, total=False):
    """A finding of the key, or a change of its state; `kept`: it was written; `in_force_ms`: what stood took beside it."""

    at: str
    job: int | None
    suite_job: int
    config: dict[str, Scalar]
    shape: dict[str, int]
    median_ms: float | None
    in_force_ms: float
    kept: bool
    origin: str
    file: str
    says: str
    state: str
    why: str


class MeasuredAgainJson(TypedDict):
    """The job that measured the entry again, of so many runs; `was`: the configuration that it replaced."""

    job: int
    runs: int
    says: str
    why: str
    entry: int
    was: dict[str, Scalar]


class EvidenceJson(TypedDict, total=False):
    """How an entry was found: by a tune job, a measurement again, a job's own autotuner, or a file, each with its own parts."""

    shape: dict[str, int]
    n: int
    min_ms: float | None
    p90_ms: float | None
    facts: Facts
    space: Facts
    guard: GuardJson
    library: GuardJson
    trials: int
    valid_size: int | None
    strategy: str
    policy: Facts
    environment: Facts
    ties: list[dict[str, Scalar]]
    history: list[HistoryJson]
    revalidation: MeasuredAgainJson
    kernel: str
    dtypes: list[str]
    variant: str
    failed: int
    timings: list[tuple[dict[str, Scalar], float | None]]
    how: str
    host: str
    file: str
    format: str
    notes: list[str]


class ConfigJson(TypedDict):
    """An entry of the cache, its state as the quarantines make it; `evidence`: how it was measured."""

    id: int
    operator: str
    dtype: str
    shape: dict[str, int]
    shape_bucket: str
    gpu: str
    compute_capability: str
    toolkit: str
    driver: str
    policy: str
    flush: str
    source_hash: str
    config: dict[str, Scalar]
    median_ms: float | None
    default_ms: float | None
    library_ms: float | None
    evidence: EvidenceJson
    recorded: str
    state: str
    state_why: str
    origin: str
    job: int | None
    imported: int | None
    updated: str
    triton: str


def config_json(row: CachedConfig, bans: Bans = _NO_BANS) -> ConfigJson:
    """Return an entry as the API sends it, its state as the quarantines make it."""
    view = as_entry(row, bans)
    return make_answer(ConfigJson, row, state=str(view.state), state_why=view.state_why, job=row.job_id, imported=row.imported_id,
                       triton=triton_text.config_call(config_in_order(row.config)))


def key_jobs(row: CachedConfig) -> Sequence[TuneJob]:
    """Return the finished jobs for the entry's operator, dtype, GPU and shape, newest first."""
    return list(TuneJob.objects.filter(operator=row.operator, dtype=row.dtype, gpu=row.gpu, recorded=row.recorded,
                                       shape=row.shape, status=TuneJob.Status.DONE)[:200])
