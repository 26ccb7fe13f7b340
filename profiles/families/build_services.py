"""What the newest build changed: rows that the home page reads. Reading the launches of two builds takes longer than a page may."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

from django.db import transaction
from django.db.models import Min

from profiles.analysis.compare import Row
from profiles.models import BuildChange, BuildPair, KernelStat, Profile
from profiles.rows import text
from profiles.selectors.compare import Compared, comparison
from profiles.trace import TraceError
from workers import jobs

log = logging.getLogger(__name__)
VERSION = 1                     # rises with every change of what a comparison finds
KEPT_CHANGES = 200              # of one pair, those of most time
MOST_PROFILES = 50              # of one build, the newest
COMPARED = (Profile.Kind.TRACE, Profile.Kind.COUNTERS)


def pairs_refresh() -> int:
    """Compare the two newest builds of every model, GPU and kind whose profiles changed since; how many were compared.

    A build is as old as its first profile: adding a run to an old build does not make it the newest.
    """
    groups: dict[tuple[str, str, str], list[str]] = {}
    builds = (Profile.objects.filter(status=Profile.Status.READY, kind__in=COMPARED).exclude(build="").order_by()
              .values("model", "gpu", "kind", "build").annotate(first=Min("created")).order_by("-first"))
    for row in builds:
        groups.setdefault((row["model"], row["gpu"], row["kind"]), []).append(row["build"])
    pairs = {group: names[:2] for group, names in groups.items() if len(names) > 1}
    for pair in BuildPair.objects.all():
        if (pair.model, pair.gpu, pair.kind) not in pairs:
            pair.delete()
    return sum(_refresh(*group, new, old) for group, (new, old) in pairs.items())


def _refresh(model: str, gpu: str, kind: str, new: str, old: str) -> bool:
    ready = Profile.objects.filter(status=Profile.Status.READY, model=model, gpu=gpu, kind=kind)
    ids = {build: list(ready.filter(build=build).order_by("-created").values_list("pk", flat=True)[:MOST_PROFILES])
           for build in (old, new)}
    known = BuildPair.objects.filter(model=model, gpu=gpu, kind=kind).first()
    same = (known.version, known.old_build, known.new_build, known.old_profiles, known.new_profiles) if known else None
    if same == (VERSION, old, new, ids[old], ids[new]):
        return False
    fields: dict[str, Any] = {"old_build": old, "new_build": new, "old_profiles": ids[old], "new_profiles": ids[new],
                              "verdicts": {}, "error": "", "version": VERSION}
    changes: list[BuildChange] = []
    try:
        compared = comparison({"a": ",".join(map(str, ids[old])), "b": ",".join(map(str, ids[new])), "kind": kind})
        fields["verdicts"] = compared.result.verdicts()
        changes = _changes(compared, ids[new])
    except TraceError as error:
        fields["error"] = text(str(error))
    with transaction.atomic():
        pair, _ = BuildPair.objects.update_or_create(model=model, gpu=gpu, kind=kind, defaults=fields)
        pair.changes.all().delete()
        for change in changes:
            change.pair = pair
        BuildChange.objects.bulk_create(changes)
    jobs.publish("home", "builds", {"old": old, "new": new})
    return True


def _changes(compared: Compared, new: Sequence[int]) -> list[BuildChange]:
    """Slower and faster ones, most time first."""
    rows = [(at, row) for at, row in enumerate(compared.result.rows) if row.verdict in ("slower", "faster")][:KEPT_CHANGES]
    names = {text(row.new.name) for _, row in rows if row.new}
    kernels = dict(KernelStat.objects.filter(profile__in=new, name__in=names).order_by("profile_id").values_list("name", "pk"))
    return [_change(row, number, kernels, compared.whys[at].sentence if at in compared.whys else "")
            for number, (at, row) in enumerate(rows)]


def _change(row: Row, number: int, kernels: dict[str, int], why: str) -> BuildChange:
    assert row.old and row.new and row.change_pct is not None         # both verdicts need both sides
    return BuildChange(
        kernel_id=kernels.get(text(row.new.name)), name=text(row.kernel, 200), shape=row.shape[:24], verdict=row.verdict,
        old_mean_ns=row.old.mean_ns, new_mean_ns=row.new.mean_ns, old_launches=row.old.launches, new_launches=row.new.launches,
        delta_ns=row.delta_ns, change_pct=row.change_pct, noise_pct=row.noise_pct, why=text(why), order=number)
