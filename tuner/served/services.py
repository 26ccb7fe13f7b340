"""What clients ask and tell: a snapshot of the cache, what was served of it, and what Triton's autotuner found elsewhere."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

from django.db import connection, transaction
from django.utils import timezone

from tuner.cache import Key, Rule
from tuner.configs import selectors as configs
from tuner.configs import services as config_services
from tuner.models import ConfigSnapshot, SnapshotView
from tuner.operators import limits
from tuner.served import resolve, selectors
from tuner.trial import storable

LOOK_EVERY_S = 3.0              # so often at most the cache is read for a new snapshot: a thousand clients cost what one does
KEEP = timedelta(days=90)       # snapshots that nobody asked for
MAX_ROWS, MAX_LAUNCHES = 2000, 10**15
MAX_VIEWS = 200                 # GPUs and toolkits that a snapshot is kept for
_TEXTS = {"operator": 60, "dtype": 16, "bucket": 200}
_lock = threading.Lock()
_newest: tuple[float, str] = (0.0, "")


class ServedError(Exception):
    """What a client sent cannot be taken; field -> why."""

    def __init__(self, fields: Mapping[str, str]) -> None:
        super().__init__("; ".join(f"{name}: {why}" for name, why in fields.items()))
        self.fields = dict(fields)


def snapshot_now() -> str:
    """The id of the cache as it is, stored when it is new."""
    global _newest
    with _lock:
        looked, name = _newest
        if time.monotonic() - looked < LOOK_EVERY_S and ConfigSnapshot.objects.filter(pk=name).exists():
            return name
        content = selectors.cache_now()
        name = resolve.identity(content)
        _, made = ConfigSnapshot.objects.get_or_create(
            name=name, defaults={"content": content, "entries": len(content["entries"])})
        if made:
            ConfigSnapshot.objects.filter(used__lt=timezone.now() - KEEP).delete()
        _newest = (time.monotonic(), name)
        return name


def snapshot_view(name: str, gpu: str, compute_capability: str, toolkit: str) -> dict[str, Any] | None:
    """A snapshot as this GPU and toolkit are served it; None when there is no such snapshot (any more)."""
    capability = compute_capability or limits(gpu).compute_capability
    key = {"snapshot_id": name, "gpu": gpu, "compute_capability": capability, "toolkit": toolkit}
    view = SnapshotView.objects.filter(**key).first()
    if view is None:
        snapshot = ConfigSnapshot.objects.filter(pk=name).first()
        if snapshot is None:
            return None
        document = resolve.resolve(name, snapshot.content, Key("", "", "", gpu, capability, toolkit), configs.loss())
        if snapshot.views.count() >= MAX_VIEWS:        # whoever may read may ask for any name: no row for each
            return document
        view, _ = SnapshotView.objects.get_or_create(**key, defaults={"document": document})
    day_ago = timezone.now() - timedelta(days=1)
    ConfigSnapshot.objects.filter(pk=name, used__lt=day_ago).update(used=timezone.now())
    return dict(view.document)


def served_report(*, reporter: Any, snapshot: str, gpu: str, toolkit: str, host: str, rows: Sequence[Mapping[str, Any]]) -> int:
    """Add up what a client served since it last told. Returns the launches. ServedError names the row that is wrong."""
    if len(rows) > MAX_ROWS:
        raise ServedError({"served": f"{len(rows):,} rows; at most {MAX_ROWS:,} at once"})
    counted: dict[tuple[Any, ...], int] = {}
    for number, row in enumerate(rows):
        key, launches = _checked(number, row)
        counted[key] = counted.get(key, 0) + launches
    if toolkit and gpu and counted:            # launches ran there, not only somebody who says so
        config_services.environment_seen(gpu, toolkit, "")
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


def _checked(number: int, row: Mapping[str, Any]) -> tuple[tuple[Any, ...], int]:
    where = f"served[{number}]"
    texts = []
    for name, longest in _TEXTS.items():
        text = row.get(name)
        if not isinstance(text, str) or len(text) > longest or not storable(text):
            raise ServedError({where: f"{name} must be a text of at most {longest} characters"})
        texts.append(text)
    rule, entry, launches = row.get("rule"), row.get("entry"), row.get("launches")
    if rule not in [str(each) for each in Rule]:
        raise ServedError({where: f"rule must be one of {', '.join(Rule)}"})
    if entry is not None and (isinstance(entry, bool) or not isinstance(entry, int) or not 0 <= entry < 2**63):
        raise ServedError({where: "entry must be the id of an entry, or null"})
    if isinstance(launches, bool) or not isinstance(launches, int) or not 0 < launches <= MAX_LAUNCHES:
        raise ServedError({where: "launches must be a positive whole number"})
    return (*texts, rule, entry or 0), launches
