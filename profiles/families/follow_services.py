"""What follows an ingest: the shapes of its kernels, and what its build changed, as rows that pages read."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from django.db import transaction
from django.db.models import Min

from profiles.analysis.compare.comparison import Row, name_shape
from profiles.analysis.core.shapes import Shape, group_shapes, shapes_of, sized_text
from profiles.analysis.kernel import counters, rules
from profiles.analysis.kernel.bounds import reached_roof
from profiles.analysis.kernel.work import tensor_flop
from profiles.analysis.trace.layer.ceilings import floors_of
from profiles.compare.selectors import KernelComparison, comparison
from profiles.families.services import assign_missing
from profiles.ingest.naming.names import short_names
from profiles.ingest.trace import TraceError
from profiles.models import BuildChange, BuildPair, Finding, KernelShape, KernelStat, LaunchCounters, Profile, first_uploads
from profiles.rows import json_safe, text
from profiles.store.frame import frame_read
from workers import jobs
from workers.scope import each_project

# Labels of kernels that an earlier version stored, made anew: what tells a profile's kernels apart.

_BATCH = 1_000


def labels_make() -> int:
    """Give every kernel the label that an ingest would give it today; returns how many changed.

    Titles of findings begin with the label of their kernel, or quote it: they change with it.
    """
    profiles = Profile.objects.filter(kernels__isnull=False).distinct().order_by("pk").only("pk", "top_kernel")
    return sum(_relabel(profile) for profile in profiles)


def _relabel(profile: Profile) -> int:
    kernels = list(profile.kernels.only("pk", "name", "short_name", "total_ns"))
    labels = short_names(kernel.name for kernel in kernels)
    changed: dict[int, str] = {}
    for kernel in kernels:
        label = text(labels[kernel.name], 200)
        if label != kernel.short_name:
            changed[kernel.pk] = kernel.short_name
            kernel.short_name = label
    KernelStat.objects.bulk_update([kernel for kernel in kernels if kernel.pk in changed], ["short_name"], batch_size=_BATCH)
    _retitle(changed, {kernel.pk: kernel.short_name for kernel in kernels})
    first = max(kernels, key=lambda kernel: kernel.total_ns or 0)
    if changed.get(first.pk) == profile.top_kernel:
        Profile.objects.filter(pk=profile.pk).update(top_kernel=first.short_name)
    return len(changed)


def _retitle(old: Mapping[int, str], new: Mapping[int, str]) -> None:
    findings = list(Finding.objects.filter(kernel__in=list(old)))
    for finding in findings:
        before, after = old[finding.kernel_id or 0], new[finding.kernel_id or 0]
        if finding.title.startswith(f"{before}: "):
            finding.title = after + finding.title.removeprefix(before)
        finding.title = finding.title.replace(f"`{before}`", f"`{after}`")
    Finding.objects.bulk_update(findings, ["title"], batch_size=_BATCH)


log = logging.getLogger(__name__)
VERSION = 2                     # rises with every change of what a comparison finds
KEPT_CHANGES = 200              # of one pair, those of most time
MOST_PROFILES = 50              # of one build, the newest
COMPARED = (Profile.Kind.TRACE, Profile.Kind.COUNTERS)


def pairs_refresh() -> int:
    """Compare the two newest builds of every model, GPU and kind; returns how many.

    Only of those whose profiles changed since.

    A build is as old as its first profile: adding a run to an old build does not make it the newest.
    """
    return sum(_pairs_refresh() for _ in each_project())


def _pairs_refresh() -> int:
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
    ids = {build: list(first_uploads(ready.filter(build=build)).order_by("-created").values_list("pk", flat=True)[:MOST_PROFILES])
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


def _changes(compared: KernelComparison, new: Sequence[int]) -> list[BuildChange]:
    """Slower and faster ones, most time first."""
    rows = [(index, row) for index, row in enumerate(compared.result.rows) if row.verdict in ("slower", "faster")][:KEPT_CHANGES]
    names = {text(row.new.name) for _, row in rows if row.new}
    kernels = dict(KernelStat.objects.filter(profile__in=new, name__in=names).order_by("profile_id").values_list("name", "pk"))
    return [_change(row, number, kernels, compared.whys[index].sentence if index in compared.whys else "")
            for number, (index, row) in enumerate(rows)]


def _change(row: Row, number: int, kernels: dict[str, int], why: str) -> BuildChange:
    assert row.old and row.new and row.change_pct is not None         # both verdicts need both sides
    return BuildChange(
        kernel_id=kernels.get(text(row.new.name)), name=text(row.kernel, 200), shape=text(_shape(row), 160), verdict=row.verdict,
        old_mean_ns=row.old.mean_ns, new_mean_ns=row.new.mean_ns, old_launches=row.old.launches, new_launches=row.new.launches,
        delta_ns=row.delta_ns, change_pct=row.change_pct, noise_pct=row.noise_pct, why=text(why), order=number)


def _shape(row: Row) -> str:
    named = name_shape(row) if row.shape else ""
    return f"{row.shape}: {named}" if named else row.shape




def shapes_make(profile: Profile) -> int:
    """Write the shapes of a profile's kernels; returns how many rows.

    Those of an earlier time go. Sums have no launches, so they have no shapes. A profile that is deleted meanwhile gets none.
    """
    if profile.kind == Profile.Kind.TRACE:
        try:
            frame = frame_read(profile)
            least = floors_of(frame)
            rows = _rows(profile, shapes_of(frame, least.floor_ns, least.flop))
        except FileNotFoundError:           # a trace without a stored timeline
            return 0
    elif profile.kind == Profile.Kind.COUNTERS:
        rows = _of_counters(profile)
    else:
        return 0
    with transaction.atomic():
        # as a deletion does: else it would not see rows that are added after it looked, and fail over them
        if Profile.objects.select_for_update(no_key=True).filter(pk=profile.pk).first() is None:
            return 0
        KernelShape.objects.filter(kernel__profile=profile).delete()
        KernelShape.objects.bulk_create(rows, batch_size=_BATCH)
    return len(rows)


def _rows(profile: Profile, shapes: Iterable[Shape]) -> list[KernelShape]:
    kernels = dict(profile.kernels.values_list("name", "pk"))
    return [KernelShape(
        kernel_id=kernels[text(shape.kernel)], grid=shape.grid[:60], block=shape.block[:60], bucket=shape.bucket,
        shapes=shape.shapes, launches=shape.launches, total_ns=shape.total_ns, min_ns=shape.min_ns, max_ns=shape.max_ns,
        p50_ns=shape.p50_ns, p95_ns=shape.p95_ns, index=shape.index, slice_id=shape.slice_id, skip=shape.skip,
        operator=text(shape.operator, 120), dims=text(shape.dims, 300), dtype=text(shape.dtype, 60),
        tune=json_safe(dict(shape.tune)), floor_ns=shape.floor_ns, flop=shape.flop,
    ) for shape in shapes if text(shape.kernel) in kernels]


def _of_counters(profile: Profile) -> list[KernelShape]:
    """One row per kernel, grid, block and counted work of products of the complete launches, with its own roof and NVIDIA's largest
    estimate."""
    launches = list(profile.counter_launches.filter(incomplete="", duration_ns__gt=0).select_related("kernel").order_by("index"))
    if not launches:
        return []
    geometry = np.array([_six(launch) for launch in launches], np.int64)
    names = {launch.kernel.name: number for number, launch in enumerate(launches)}
    codes = np.array([names[launch.kernel.name] for launch in launches], np.int64)
    texts = {number: name for name, number in names.items()}
    flop = np.array([tensor_flop(counters.from_json(launch.facts).point.by_precision) for launch in launches], np.float64)
    problem = np.unique(np.nan_to_num(flop), return_inverse=True)[1].astype(np.int64)
    groups = group_shapes(codes, geometry, np.array([launch.duration_ns for launch in launches]), texts.__getitem__, problem,
                          flop=flop)
    members: dict[tuple[str, str, str, int], list[LaunchCounters]] = {}
    for launch, six, number in zip(launches, geometry.tolist(), problem.tolist(), strict=True):
        members.setdefault((launch.kernel.name, sized_text(six[:3]), sized_text(six[3:]), number), []).append(launch)
    rows = []
    for row, shape in zip(_rows(profile, groups), groups, strict=True):
        number = int(problem[shape.index]) if shape.index is not None else -1
        group = members.get((shape.kernel, shape.grid, shape.block, number), [])
        row.index = launches[shape.index].index if shape.index is not None else None
        _ceiling(row, group)
        rows.append(row)
    return rows


def _six(launch: LaunchCounters) -> list[int]:
    facts = launch.facts
    return [*(facts.get("grid") or (-1, -1, -1)), *(facts.get("block") or (-1, -1, -1))]


def _ceiling(row: KernelShape, group: list[LaunchCounters]) -> None:
    """Share of its own roof that these launches reach, and the rule that would win most of their run time."""
    whole = counters.combine_launches([counters.from_json(launch.facts) for launch in group])
    reached = reached_roof(whole.point, whole.sol, whole.bounded) if whole is not None else None
    if whole is not None and reached is not None:
        row.roof_pct, row.roof_side = reached[0], whole.point.side or (whole.bound if whole.point.flop else "memory")
    listed: list[dict[str, Any]] = rules.merge_launch_rules([(launch.duration_ns, launch.rules) for launch in group])
    total_ns = sum(launch.duration_ns or 0.0 for launch in group)
    best = max((rule for rule in listed if rule.get("worth_ns")), key=lambda rule: rule["worth_ns"], default=None)
    if best is not None and total_ns:
        row.gain_pct, row.gain_rule = min(100.0, 100.0 * best["worth_ns"] / total_ns), text(best["title"], 120)


def families_follow(profile_id: int) -> None:
    """Make shapes and families of a ready profile.

    The profile shows already: an error here is logged and the rows stay away until `manage.py families` makes them.

    Raises MemoryError: it is up to who bounds this process to say so.
    """
    profile = Profile.objects.filter(pk=profile_id, status=Profile.Status.READY).first()
    try:
        if profile is not None:
            shapes_make(profile)
        pairs_refresh()
    except MemoryError:
        raise
    except Exception:
        log.exception("profile %s: the shapes of its kernels failed", profile_id)


def families_catch_up(everything: bool = False) -> dict[str, int]:
    """Whatever profiles of an earlier version lack; with `everything` all of it anew, the kernels' labels too."""
    if everything:
        labels_make()
    kernels = assign_missing(everything)
    lacking = Profile.objects.filter(status=Profile.Status.READY, kernels__isnull=False).exclude(kind=Profile.Kind.SUMMARY)
    if not everything:
        lacking = lacking.exclude(kernels__shapes__p50_ns__isnull=False)
    profile_count = 0
    for profile in lacking.distinct().order_by("pk"):
        try:
            profile_count += bool(shapes_make(profile))
        except Exception:
            log.exception("profile %s: the shapes of its kernels failed", profile.pk)
    return {"kernels": kernels, "profiles": profile_count, "pairs": pairs_refresh()}
