"""One family for programs: the same reads as its page."""

from __future__ import annotations

from typing import Any

from profiles.advice.selectors import decision_json
from profiles.families.page_selectors import ShapeLine, builds, counted_once, family_page
from profiles.families.selectors import line_json
from profiles.models import BuildChange, FamilyEdit, KernelFamily, KernelStat, Profile
from workers.scope import account_name


def family_json(family: KernelFamily) -> dict[str, Any]:
    """The page for programs."""
    page = family_page(family)
    stats = counted_once(KernelStat.objects.filter(family=family, profile__status=Profile.Status.READY))
    return {
        "family": family.pk, "name": family.name, "function": family.function, "op": family.op, "dtype": family.dtype,
        "merged_into": family.merged_into_id, "answer": page["answer"], "worth": line_json(page["line"]) if page["line"] else None,
        "shapes": [shape_json(line) for line in page["shapes"]],
        "more_shapes": vars(page["more_shapes"]) if page["more_shapes"] else None, "builds": builds(stats),
        "profiles": [{"profile": run.profile.pk, "name": run.profile.name, "build": run.profile.build, "gpu": run.profile.gpu,
                      "kind": run.profile.kind, "kernel": run.stat.pk, "launches": run.launches, "total_ns": run.total_ns,
                      "mean_ns": run.mean_ns, "p50_ns": run.p50_ns, "p95_ns": run.p95_ns, "share_pct": run.share_pct,
                      "same_as": run.same_as.pk if run.same_as else None}
                     for run in page["runs"]],
        "changes": [change_json(change) for change in page["changes"]],
        "advice": [line.advice.as_json() for line in page["advice"]],
        "decisions": [decision_json(each) for each in page["decisions"]],
        "findings": [{"profile": finding.profile_id, "rule": finding.rule, "severity": finding.severity, "title": finding.title,
                      "advice": finding.advice, "worth_ns": finding.worth_ns} for finding in page["findings"]],
        "names": [vars(member) for member in page["members"]], "edits": [edit_json(edit) for edit in page["edits"]],
        "notes": [note_json(note) for note in page["notes"]],
    }


def shape_json(line: ShapeLine) -> dict[str, Any]:
    row = line.shape
    return {
        "kind": row.kernel.profile.kind, "gpu": row.kernel.profile.gpu, "grid": row.grid, "block": row.block, "shapes": row.shapes,
        "threads_bucket": line.threads, "launches": line.launches, "total_ns": line.total_ns, "mean_ns": line.mean_ns,
        "min_ns": line.min_ns, "max_ns": line.max_ns,
        "p50_ns": _exact(line.p50_ns), "p95_ns": _exact(line.p95_ns), "p50_range_ns": line.p50_ns, "p95_range_ns": line.p95_ns,
        "build": row.kernel.profile.build, "share_pct": line.share_pct, "builds": line.builds, "profiles": line.profiles,
        "operator": row.operator, "dims": row.dims, "dtype": row.dtype, "roof_pct": line.roof_pct,
        "longest": {"profile": row.kernel.profile_id, "index": row.index, "slice": row.slice_id}, "actions": vars(line.actions)}


def _exact(ends: tuple[float, float] | None) -> float | None:
    """A quantile that is known, not only between which two numbers it lies."""
    return ends[0] if ends and ends[0] == ends[1] else None


def change_json(change: BuildChange) -> dict[str, Any]:
    names = ("name", "shape", "verdict", "old_mean_ns", "new_mean_ns", "old_launches", "new_launches", "delta_ns", "change_pct",
             "noise_pct", "why")
    return {"old_build": change.pair.old_build, "new_build": change.pair.new_build,
            **{name: getattr(change, name) for name in names}}


def edit_json(edit: FamilyEdit) -> dict[str, Any]:
    return {"id": edit.pk, "kind": edit.kind, "family": edit.family_id, "other": edit.other_id, "author": account_name(edit.author),
            "created": edit.created.isoformat(), "undone": edit.undone.isoformat() if edit.undone else None,
            "before": edit.changes.get("before"), "after": edit.changes.get("after"), "names": edit.changes.get("names", [])}


def note_json(note: Any) -> dict[str, Any]:
    return {"id": note.pk, "author": account_name(note.author), "created": note.created.isoformat(), "text": note.text}
