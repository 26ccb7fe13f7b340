"""What may be done to a measurement of ceilings: ask for one, stop it, load a recorded one; and what its worker writes."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from django.db import transaction
from django.utils import timezone

from profiles.base.refused import Refused
from profiles.ceilings import selectors
from profiles.models import CeilingRun
from workers import jobs

MAX_FILE_BYTES, MAX_RESULTS, MAX_TEXT = 1_000_000, 64, 600
LIVE = (CeilingRun.Status.QUEUED, CeilingRun.Status.RUNNING)
NUMBERS = ("rate", "best", "best_clock_hz", "sm_clock_hz", "per_cycle", "spread", "n", "launches", "seconds")
TEXTS = ("name", "kind", "label", "precision", "how")


def ceilings_measure(*, owner: Any) -> CeilingRun:
    """Queue a measurement; a gpu worker is woken on commit. Raises Refused where nobody could run it."""
    able = selectors.ability()
    if not able["able"]:
        raise Refused(able["why"])
    with transaction.atomic():
        run = CeilingRun.objects.create(owner=owner)
        jobs.enqueue_on_commit("gpu", "ceilings", run.pk)
    ceilings_publish(run)
    return run


def ceilings_stop(run: CeilingRun) -> bool:
    """Stop a queued or running measurement; what was measured stays. False when it had ended already."""
    stopped = CeilingRun.leases.stop(run.pk, CeilingRun.Status.CANCELLED)
    if stopped:
        ceilings_publish(CeilingRun.objects.get(pk=run.pk))
    return stopped


def ceilings_claim(run_id: int, worker: str) -> CeilingRun | None:
    """Return the row for `worker`, or None where it is not free.

    What an earlier attempt measured is measured again.
    """
    claimed = CeilingRun.leases.claim(run_id, worker, started=timezone.now(), error=None, results={})
    return CeilingRun.objects.get(pk=run_id) if claimed else None


def ceilings_write(run: CeilingRun, worker: str, **fields: Any) -> bool:
    """Change the row while `worker` holds it; False when it no longer does."""
    mine = CeilingRun.leases.write(run.pk, worker, **fields)
    if mine:
        ceilings_publish(CeilingRun.objects.get(pk=run.pk))
    return mine


def ceilings_end(run: CeilingRun, worker: str, status: str, **fields: Any) -> bool:
    """End a measurement that `worker` holds; False when it no longer does."""
    return ceilings_write(run, worker, **CeilingRun.leases.ended(), status=status, **fields)


def ceilings_load(document: Mapping[str, Any], *, owner: Any = None) -> CeilingRun:
    """Store a measurement that was recorded elsewhere (`tests.gpu.measure_ceilings`).

    Raises Refused; safe twice.
    """
    facts, results = document.get("facts"), document.get("results")
    if not isinstance(facts, dict) or not isinstance(results, dict) or not isinstance(facts.get("gpu"), str):
        raise Refused("not a file of measured ceilings: it needs \"facts\" with \"gpu\", and \"results\"")
    try:
        when = datetime.fromisoformat(str(document["measured"]))
    except (KeyError, ValueError) as error:
        raise Refused("\"measured\" must be the date and time, as 2026-11-21T18:30:00+00:00") from error
    if len(results) > MAX_RESULTS:
        raise Refused(f"{len(results):,} results; at most {MAX_RESULTS}")
    gpu = facts["gpu"][:120]
    label = f"recorded on {gpu}, {when.date().isoformat()}"
    clean_results = {str(name)[:40]: result_clean(result) for name, result in results.items()}
    run, _ = CeilingRun.objects.update_or_create(
        recorded=label, finished=when, defaults={
            "status": CeilingRun.Status.DONE, "gpu": gpu, "results": clean_results, "owner": owner,
            "environment": {str(key)[:40]: value for key, value in list(facts.items())[:40]
                            if isinstance(value, str | int | float) and key != "gpu"}})
    return run


def ceilings_read(data: bytes) -> dict[str, Any]:
    """The document of a file. Raises Refused."""
    if len(data) > MAX_FILE_BYTES:
        raise Refused(f"{len(data):,} bytes; at most {MAX_FILE_BYTES:,}")
    try:
        document = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise Refused(f"no JSON: {error}"[:200]) from error
    if not isinstance(document, dict):
        raise Refused("not a JSON object")
    return document


def result_clean(result: Any) -> dict[str, Any]:
    """Return what pages read of one result, bounded.

    Numbers are finite and positive.
    """
    if not isinstance(result, dict):
        raise Refused("a result is not an object")
    if "rejected" in result:
        return {"rejected": str(result["rejected"])[:MAX_TEXT]}
    clean: dict[str, Any] = {name: str(result.get(name) or "")[:MAX_TEXT] for name in TEXTS}
    for name in NUMBERS:
        value = result.get(name)
        good = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value) and value >= 0
        clean[name] = value if good else None
    if not clean["rate"]:
        raise Refused(f"{clean['name'] or 'a result'} has no rate")
    during = result.get("during")
    clean["during"] = {str(key)[:40]: value for key, value in list(during.items())[:12]
                       if isinstance(value, int | float | str | list)} if isinstance(during, dict) else {}
    return clean


def ceilings_publish(run: CeilingRun) -> None:
    """Tell the pages that watch it."""
    jobs.publish(f"ceilings.{run.pk}", "status", {"id": run.pk, "status": run.status, "measured": len(run.results)})
    jobs.publish("home", "ceilings", {"id": run.pk, "status": run.status})
