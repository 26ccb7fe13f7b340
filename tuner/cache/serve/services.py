"""Snapshots of the cache, counts of what clients served, and findings of Triton's autotuner."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

from django.db import connection, transaction
from django.utils import timezone

from tuner.cache.entries import selectors as configs
from tuner.cache.entries import services as config_services
from tuner.cache.rules import Key, Rule
from tuner.cache.serve import resolve, selectors
from tuner.models import CachedConfig, ConfigSnapshot, SnapshotView
from tuner.operators import Operator, all_operators, limits
from tuner.trial import Config, storable

LOOK_EVERY_S = 3.0              # so often at most the cache is read for a new snapshot: a thousand clients cost what one does
KEEP = timedelta(days=90)       # snapshots that nobody asked for
MAX_ROWS, MAX_LAUNCHES = 2000, 10**15
MAX_VIEWS = 200                 # GPUs and toolkits that a snapshot is kept for
_TEXTS = {"operator": 60, "dtype": 16, "bucket": 200}
_lock = threading.Lock()
_newest: tuple[float, str] = (0.0, "")


class ReportError(Exception):
    """A client's report that cannot be taken; field -> why."""

    def __init__(self, fields: Mapping[str, str]) -> None:
        super().__init__("; ".join(f"{name}: {why}" for name, why in fields.items()))
        self.fields = dict(fields)


def take_snapshot() -> str:
    """Return the id of the cache as it is, stored when it is new."""
    global _newest
    with _lock:
        looked, name = _newest
        if time.monotonic() - looked < LOOK_EVERY_S and ConfigSnapshot.objects.filter(pk=name).exists():
            return name
        content = selectors.cache_content()
        name = resolve.content_id(content)
        _, made = ConfigSnapshot.objects.get_or_create(
            name=name, defaults={"content": content, "entries": len(content["entries"])})
        if made:
            ConfigSnapshot.objects.filter(used__lt=timezone.now() - KEEP).delete()
        _newest = (time.monotonic(), name)
        return name


def snapshot_view(name: str, gpu: str, compute_capability: str, toolkit: str) -> dict[str, Any] | None:
    """Return a snapshot for this GPU and toolkit; None when it does not exist."""
    capability = compute_capability or limits(gpu).compute_capability
    key = {"snapshot_id": name, "gpu": gpu, "compute_capability": capability, "toolkit": toolkit}
    view = SnapshotView.objects.filter(**key).first()
    if view is None:
        snapshot = ConfigSnapshot.objects.filter(pk=name).first()
        if snapshot is None:
            return None
        document = resolve.resolve(name, snapshot.content, Key("", "", "", gpu, capability, toolkit), configs.expected_losses())
        if snapshot.views.count() >= MAX_VIEWS:        # whoever may read may ask for any name: no row for each
            return document
        view, _ = SnapshotView.objects.get_or_create(**key, defaults={"document": document})
    day_ago = timezone.now() - timedelta(days=1)
    ConfigSnapshot.objects.filter(pk=name, used__lt=day_ago).update(used=timezone.now())
    return dict(view.document)


def record_launches(*, reporter: Any, snapshot: str, gpu: str, toolkit: str, host: str, rows: Sequence[Mapping[str, Any]]) -> int:
    """Add up what a client served since its last report; return launches. Raises ReportError."""
    if len(rows) > MAX_ROWS:
        raise ReportError({"served": f"{len(rows):,} rows; at most {MAX_ROWS:,} at once"})
    counted: dict[tuple[Any, ...], int] = {}
    for number, row in enumerate(rows):
        key, launches = _check_row(number, row)
        counted[key] = counted.get(key, 0) + launches
    if toolkit and gpu and counted:            # launches ran there, not only somebody who says so
        config_services.record_environment(gpu, toolkit, "")
    now = timezone.now()
    values = [(now.date(), *key[:3], gpu, toolkit, *key[3:], launches, snapshot, host, reporter.pk if reporter else None, now)
              for key, launches in sorted(counted.items())]        # in one order, so that two reports cannot wait for each other
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.executemany("""
            INSERT INTO tuner_servedcount (day, operator, dtype, shape_bucket, gpu, toolkit, rule, entry, launches, snapshot, host,
                                           reporter_id, updated)
            VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s)
            ON CONFLICT ON CONSTRAINT servedcount_once DO UPDATE SET
                launches = LEAST(tuner_servedcount.launches::numeric + EXCLUDED.launches, 9223372036854775807),
                snapshot = EXCLUDED.snapshot, host = EXCLUDED.host, reporter_id = EXCLUDED.reporter_id,
                updated = EXCLUDED.updated""", values)
    return sum(counted.values())


def _check_row(number: int, row: Mapping[str, Any]) -> tuple[tuple[Any, ...], int]:
    where = f"served[{number}]"
    texts = []
    for name, longest in _TEXTS.items():
        text = row.get(name)
        if not isinstance(text, str) or len(text) > longest or not storable(text):
            raise ReportError({where: f"{name} must be a text of at most {longest} characters"})
        texts.append(text)
    rule, entry, launches = row.get("rule"), row.get("entry"), row.get("launches")
    if rule not in [str(each) for each in Rule]:
        raise ReportError({where: f"rule must be one of {', '.join(Rule)}"})
    if entry is not None and (isinstance(entry, bool) or not isinstance(entry, int) or not 0 <= entry < 2**63):
        raise ReportError({where: "entry must be the id of an entry, or null"})
    if isinstance(launches, bool) or not isinstance(launches, int) or not 0 < launches <= MAX_LAUNCHES:
        raise ReportError({where: "launches must be a positive whole number"})
    return (*texts, rule, entry or 0), launches


MAX_FOUND, MAX_TIMINGS, MAX_PARAMETERS, MAX_DIMS = 500, 64, 24, 12
MAX_SHAPE_TEXT = 160             # characters; the column of the bucket that it is rounded to has 200
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,59}\Z")
PREFIX = "triton:"               # of kernels that no operator here is


def record_findings(*, gpu: str, toolkit: str, host: str, found: Sequence[Mapping[str, Any]]) -> list[CachedConfig]:
    """Write an entry per kernel, shape, dtype, GPU and toolkit. Raises ReportError; then none."""
    if len(found) > MAX_FOUND:
        raise ReportError({"found": f"{len(found):,} findings; at most {MAX_FOUND} at once"})
    if not gpu:
        raise ReportError({"gpu": "name the GPU as its driver does: a configuration means nothing without it"})
    checked = [_check_finding(number, each, gpu) for number, each in enumerate(found)]
    return [config_services.evidence_put(origin="listener", gpu=gpu, toolkit=toolkit,
                                         **{**each, "evidence": {**each["evidence"], "host": host}}) for each in checked]


def _check_finding(number: int, told: Mapping[str, Any], gpu: str) -> dict[str, Any]:
    where = f"found[{number}]"
    try:
        kernel, name = _parse_text(told["kernel"], 200), _parse_text(told["name"], 60)
        shape = _parse_shape(told["shape"])
        config, median_ms = _parse_config(told["config"]), _parse_ms(told["median_ms"])
        dtypes = [_parse_text(each, 16) for each in told["dtypes"]][:16]
        variant = {_parse_name(key): _parse_text(value, 40) for key, value in list(told["variant"].items())[:MAX_DIMS]}
        timings = [[_parse_config(config), _parse_ms(ms)] for config, ms in told["timings"][:MAX_TIMINGS]]
        source_hash = _parse_text(told["source_hash"], 64)
        tried, failed = _parse_count(told["tried"]), _parse_count(told["failed"])
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise ReportError({where: f"{type(error).__name__}: {error}"[:200]}) from error
    dtype = dtypes[0] if dtypes else ""
    operator = matching_operator(name, shape, dtype, config, gpu)
    return {
        "operator": operator.name if operator else _kernel_label(kernel, name, variant), "dtype": dtype,
        "shape": {dim.name: shape[dim.name] for dim in operator.dims} if operator else shape, "config": config,
        "median_ms": median_ms, "source_hash": source_hash,
        "evidence": {"kernel": kernel, "dtypes": dtypes, "variant": variant, "trials": tried, "failed": failed,
                     "timings": timings, "how": "Triton's do_bench in the job itself"}}


def matching_operator(name: str, shape: Mapping[str, int], dtype: str, config: Config, gpu: str) -> Operator | None:
    """Return the operator with this kernel's name, dimensions and parameters; None without one."""
    for operator in all_operators().values():
        dims = {dim.name for dim in operator.dims}
        if name not in operator.kernel_names or not dims <= shape.keys() or dtype not in operator.dtypes:
            continue
        own = {dim: shape[dim] for dim in dims}
        if not operator.problems(own, dtype) and operator.default_config(own, dtype, limits(gpu)).keys() == config.keys():
            return operator
    return None


def _kernel_label(kernel: str, name: str, variant: Mapping[str, str]) -> str:
    """Return a label that fits the column; the module's path is cut before the name."""
    marks = "".join(f"[{key}={value}]" for key, value in sorted(variant.items()))
    return f"{PREFIX}{kernel}{marks}" if len(kernel + marks) <= 53 else f"{PREFIX}{(name + marks)[:53]}"


def _parse_text(value: Any, longest: int) -> str:
    if not isinstance(value, str) or len(value) > longest or not storable(value):
        raise ValueError(f"expected a text of at most {longest} characters, not {str(value)[:40]!r}")
    return value


def _parse_name(value: Any) -> str:
    if not isinstance(value, str) or not _NAME.match(value):
        raise ValueError(f"{str(value)[:40]!r} is no name")
    return value


def _parse_shape(value: Any) -> dict[str, int]:
    if not isinstance(value, dict) or len(value) > MAX_DIMS:
        raise ValueError(f"shape: at most {MAX_DIMS} dimensions")
    for name, size in value.items():
        _parse_name(name)
        if isinstance(size, bool) or not isinstance(size, int) or not 0 <= size < 2**40:
            raise ValueError(f"shape: {name} must be a whole number")
    if len(config_services.shape_key(value)) > MAX_SHAPE_TEXT:
        raise ValueError(f"shape: at most {MAX_SHAPE_TEXT} characters in all")
    return dict(value)


def _parse_config(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict) or not 1 <= len(value) <= MAX_PARAMETERS:
        raise ValueError(f"a configuration names 1 to {MAX_PARAMETERS} parameters")
    for name, each in value.items():
        _parse_name(name)
        fine = isinstance(each, bool) or (isinstance(each, str) and len(each) <= 60 and storable(each)) or (
            isinstance(each, int | float) and abs(each) < 2**40)                   # NaN and Infinity are not
        if not fine:
            raise ValueError(f"{name}={str(each)[:40]!r} is no parameter's value")
    return dict(value)


def _parse_count(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 2**31:
        raise ValueError(f"{str(value)[:40]!r} is no number of configurations")
    return value


def _parse_ms(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < 1e7:
        raise ValueError(f"{str(value)[:40]!r} is no time in ms")
    return float(value)
