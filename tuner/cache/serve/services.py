"""Snapshots of the cache, counts of what clients served, and findings of Triton's autotuner."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

from django.db import connection, transaction
from django.utils import timezone

from tuner.cache.entries import selectors as configs
from tuner.cache.entries import services as config_services
from tuner.cache.entries.bans import capability_of, served_as, spell_as
from tuner.cache.rules import Key, Rule
from tuner.cache.serve import resolve, selectors
from tuner.models import CachedConfig, ConfigSnapshot, SnapshotView
from tuner.tuning.operators import Operator, all_operators, limits
from tuner.tuning.trial import Config
from workers.scope import FIRST_PROJECT, current

LOOK_EVERY_S = 3.0              # so often at most the cache is read for a new snapshot: a thousand clients cost what one does
KEEP = timedelta(days=90)       # snapshots that nobody asked for
MAX_VIEWS = 200                 # GPUs and toolkits that a snapshot is kept for
_lock = threading.Lock()
_newest: dict[tuple[int, bool], tuple[float, str]] = {}      # project, verified only -> when it was looked at, the snapshot
_revoked: dict[tuple[int, str, str | None], tuple[float, list[int]]] = {}      # project, snapshot, toolkit -> when, entries


def take_snapshot(verified: bool = False) -> str:
    """Return the id of the cache as it is, or of its verified entries, stored when it is new."""
    project = current().project
    with _lock:
        looked, name = _newest.get((project, verified), (0.0, ""))
        if time.monotonic() - looked < LOOK_EVERY_S and ConfigSnapshot.objects.filter(pk=name).exists():
            return name
        content = selectors.cache_content(verified)
        name = resolve.content_id(content if project == FIRST_PROJECT else {**content, "project": project})
        _, is_new = ConfigSnapshot.objects.get_or_create(
            name=name, defaults={"content": content, "entries": len(content["entries"])})
        if is_new:
            ConfigSnapshot.objects.filter(used__lt=timezone.now() - KEEP).delete()
        _newest[project, verified] = (time.monotonic(), name)
        return name


def list_revoked(snapshot: str, toolkit: str | None) -> list[int]:
    """Return `selectors.revoked_entries`, read as often as the cache at most: every rank of a job asks once a minute."""
    key, now = (current().project, snapshot, toolkit), time.monotonic()
    with _lock:
        looked, ids = _revoked.get(key, (0.0, []))
    if key in _revoked and now - looked < LOOK_EVERY_S:
        return ids
    ids = selectors.revoked_entries(snapshot, toolkit)
    with _lock:
        if len(_revoked) >= MAX_VIEWS:
            _revoked.clear()
        _revoked[key] = (now, ids)
    return ids


def snapshot_view(name: str, gpu: str, compute_capability: str, toolkit: str, sms: int = 0, *,
                  recorded: bool = True) -> dict[str, Any] | None:
    """Return a snapshot for this GPU and toolkit; None when it does not exist.

    sms       as the driver counts, 0 not asked
    recorded  with recordings, which the client serves to who asks for them: a client from before would serve them to all
    """
    capability = compute_capability or capability_of(gpu)
    served = spell_as(served_as(gpu, sms)[:120], configs.known_gpus())
    key = {"snapshot_id": name, "gpu": served, "compute_capability": capability, "toolkit": toolkit}
    view = SnapshotView.objects.filter(**key).first()
    if view is None:
        snapshot = ConfigSnapshot.objects.filter(pk=name).first()
        if snapshot is None:
            return None
        document = resolve.resolve(name, snapshot.content, Key("", "", "", served, capability, toolkit), configs.expected_losses())
        if snapshot.views.count() >= MAX_VIEWS:        # whoever may read may ask for any name: no row for each
            return _told(document, gpu, recorded)
        view, _ = SnapshotView.objects.get_or_create(**key, defaults={"document": document})
    day_ago = timezone.now() - timedelta(days=1)
    ConfigSnapshot.objects.filter(pk=name, used__lt=day_ago).update(used=timezone.now())
    if not resolve.tells_recordings(view.document):            # stored by a server from before
        view.document = _tell_recordings(view)
        view.save(update_fields=["document"])
    return _told(view.document, gpu, recorded)


def _tell_recordings(view: SnapshotView) -> dict[str, Any]:
    """Return a stored document whose rows say which are recordings; where there are, resolved anew: they hid what was measured."""
    content = view.snapshot.content
    if any(entry["recorded"] for entry in content["entries"]):
        key = Key("", "", "", view.gpu, view.compute_capability, view.toolkit)
        return resolve.resolve(view.snapshot_id, content, key, configs.expected_losses())
    return {**view.document, "entries": [{**entry, "recorded": False} for entry in view.document["entries"]]}


def _told(document: Mapping[str, Any], gpu: str, recorded: bool) -> dict[str, Any]:
    """Return what a client is sent, its GPU called as it asked: it keeps the file under that name."""
    named = resolve.name_bucket_hits(document)
    return {**named, "gpu": gpu, "entries": [entry for entry in named["entries"] if recorded or not entry["recorded"]]}


def record_launches(*, reporter: Any, snapshot: str, gpu: str, toolkit: str, host: str, form: int,
                    rows: Sequence[Mapping[str, Any]]) -> dict[str, int]:
    """Add up what a client served since its last report (`api.ServedReport`); return {"launches", "asked"}.

    A client of form 1 calls every hit of a bucket exact.
    """
    counted: dict[tuple[Any, ...], tuple[int, int]] = {}
    for row in rows:
        rule = Rule.BUCKET if form < 2 and row["rule"] == Rule.EXACT else row["rule"]
        key = (row["operator"], row["dtype"], row["bucket"], str(rule), row["entry"] or 0)
        launches, looks = counted.get(key, (0, 0))
        counted[key] = launches + row["launches"], looks + row["asked"]
    totals = {"launches": sum(launches for launches, _ in counted.values()), "asked": sum(looks for _, looks in counted.values())}
    # what a client says of its toolkit is counted and shown; it makes no entry doubtful: that takes a worker's own run
    now = timezone.now()
    values = [(current().project, now.date(), *key[:3], gpu, toolkit, *key[3:], *counts, snapshot, host,
               reporter.pk if reporter else None, now)
              for key, counts in sorted(counted.items())]        # in one order, so that two reports cannot wait for each other
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.executemany("""
            INSERT INTO tuner_servedcount (project_id, day, operator, dtype, shape_bucket, gpu, toolkit, rule, entry, launches,
                                           asked, snapshot, host, reporter_id, updated)
            VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s)
            ON CONFLICT ON CONSTRAINT servedcount_once DO UPDATE SET
                launches = LEAST(tuner_servedcount.launches::numeric + EXCLUDED.launches, 9223372036854775807),
                asked = LEAST(tuner_servedcount.asked::numeric + EXCLUDED.asked, 9223372036854775807),
                snapshot = EXCLUDED.snapshot, host = EXCLUDED.host, reporter_id = EXCLUDED.reporter_id,
                updated = EXCLUDED.updated""", values)
    return totals


PREFIX = "triton:"               # of kernels that no operator here is


def record_findings(*, gpu: str, toolkit: str, host: str, found: Sequence[Mapping[str, Any]], compute_capability: str = "",
                    sms: int = 0) -> list[CachedConfig]:
    """Write an entry per kernel, shape, dtype, GPU and toolkit (`api.ListenedReport`)."""
    return [_put_finding(finding, served_as(gpu, sms)[:120], compute_capability, toolkit, host) for finding in found]


def _put_finding(told: Mapping[str, Any], gpu: str, capability: str, toolkit: str, host: str) -> CachedConfig:
    dtypes, shape = told["dtypes"], told["shape"]
    dtype = dtypes[0] if dtypes else ""
    operator = matching_operator(told["name"], shape, dtype, told["config"], gpu)
    return config_services.evidence_put(
        origin="listener", gpu=gpu, compute_capability=capability, toolkit=toolkit, dtype=dtype, config=told["config"],
        median_ms=told["median_ms"],
        operator=operator.name if operator else _kernel_label(told["kernel"], told["name"], told["variant"]),
        shape={dim.name: shape[dim.name] for dim in operator.dims} if operator else shape, source_hash=told["source_hash"],
        evidence={"kernel": told["kernel"], "dtypes": dtypes, "variant": told["variant"], "trials": told["tried"],
                  "failed": told["failed"], "timings": told["timings"], "how": "Triton's do_bench in the job itself", "host": host})


def matching_operator(name: str, shape: Mapping[str, int], dtype: str, config: Config, gpu: str) -> Operator | None:
    """Return the operator with this kernel's name, dimensions and parameters; None without one. Which version of an own kernel a
    launch was of, its name does not tell."""
    for operator in all_operators().values():
        dims = {dim.name for dim in operator.dims}
        if operator.version or name not in operator.kernel_names or not dims <= shape.keys() or dtype not in operator.dtypes:
            continue
        own = {dim: shape[dim] for dim in dims}
        if not operator.problems(own, dtype) and operator.default_config(own, dtype, limits(gpu)).keys() == config.keys():
            return operator
    return None


def _kernel_label(kernel: str, name: str, variant: Mapping[str, str]) -> str:
    """Return a label that fits the column; the module's path is cut before the name."""
    marks = "".join(f"[{key}={value}]" for key, value in sorted(variant.items()))
    return f"{PREFIX}{kernel}{marks}" if len(kernel + marks) <= 53 else f"{PREFIX}{(name + marks)[:53]}"
