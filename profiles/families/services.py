"""What people may do to families: merge, split, rename, undo each of these, and write notes. Every change is a row."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.core.exceptions import PermissionDenied
from django.db import transaction
from django.utils import timezone

from profiles.base.refused import Refused
from profiles.families.assign_services import reassign
from profiles.models import FamilyEdit, FamilyNote, FamilyRule, KernelFamily, KernelStat
from profiles.rows import text as clean

MAX_TEXT = 4_000                # characters of a note
MAX_NOTES = 500                 # of one family
MAX_NAMES = 2_000               # that one split may move


@transaction.atomic
def family_merge(family: KernelFamily, into: KernelFamily, *, by: Any) -> FamilyEdit:
    """Make everything that belongs to `family` belong to `into` from now on.

    The page of `family` leads there.
    """
    if family.pk == into.pk:
        raise Refused("a family cannot be merged with itself", hint="choose another one")
    locked = KernelFamily.objects.select_for_update().filter(pk__in=(family.pk, into.pk)).order_by("pk")
    if any(each.merged_into_id for each in locked):
        raise Refused("one of the two has been merged already", hint="merge what it was merged into")
    rules = list(family.rules.select_for_update().values_list("pk", flat=True))
    FamilyRule.objects.filter(pk__in=rules).update(family=into)
    KernelFamily.objects.filter(pk=family.pk).update(merged_into=into)
    edit = FamilyEdit.objects.create(kind=FamilyEdit.Kind.MERGE, family=family, other=into, author=by, changes={"rules": rules})
    reassign(family.pk)
    return edit


@transaction.atomic
def family_split(family: KernelFamily, names: Sequence[str], *, name: str, by: Any) -> FamilyEdit:
    """These full kernel names leave `family` for a new one."""
    wanted = list(dict.fromkeys(names))[:MAX_NAMES]
    members = set(KernelStat.objects.filter(family=family).order_by().values_list("name", flat=True).distinct())
    strangers = [each for each in wanted if each not in members]
    if not wanted or strangers:
        raise Refused(f"`{strangers[0][:100]}` is no kernel of this family" if strangers else "no kernel was chosen",
                          hint="choose kernels of the list")
    if len(wanted) == len(members):
        raise Refused("these are all kernels of the family", hint="rename it instead")
    new = KernelFamily.objects.create(name=_name(name), function=family.function, op=family.op, dtype=family.dtype)
    moved, made = [], []
    for each in wanted:
        rule = FamilyRule.objects.filter(kind=FamilyRule.Kind.NAME, value=each).first()
        if rule is None:
            made.append(FamilyRule.objects.create(kind=FamilyRule.Kind.NAME, value=each, family=new).pk)
        else:
            rule.family = new
            rule.save(update_fields=["family"])
            moved.append(rule.pk)
    edit = FamilyEdit.objects.create(kind=FamilyEdit.Kind.SPLIT, family=family, other=new, author=by,
                                     changes={"made": made, "moved": moved, "names": wanted[:20], "count": len(wanted)})
    reassign(family.pk)
    return edit


@transaction.atomic
def family_rename(family: KernelFamily, name: str, *, by: Any) -> FamilyEdit:
    family = KernelFamily.objects.select_for_update().get(pk=family.pk)
    after = _name(name)
    if after == family.name:
        raise Refused("it is called that already", hint="type another name")
    edit = FamilyEdit.objects.create(kind=FamilyEdit.Kind.RENAME, family=family, author=by,
                                     changes={"before": family.name, "after": after})
    family.name = after
    family.save(update_fields=["name"])
    return edit


@transaction.atomic
def edit_undo(edit: FamilyEdit, *, by: Any) -> FamilyEdit:
    """Put back what an edit changed.

    Refused where a later edit builds on it: that one is to be undone first.
    """
    edit = FamilyEdit.objects.select_for_update(of=("self",)).select_related("family", "other").get(pk=edit.pk)
    if edit.undone:
        raise Refused("this was undone already")
    {FamilyEdit.Kind.MERGE: _undo_merge, FamilyEdit.Kind.SPLIT: _undo_split, FamilyEdit.Kind.RENAME: _undo_rename}[
        FamilyEdit.Kind(edit.kind)](edit)
    edit.undone, edit.undone_by = timezone.now(), by
    edit.save(update_fields=["undone", "undone_by"])
    return edit


def _undo_merge(edit: FamilyEdit) -> None:
    rules = FamilyRule.objects.select_for_update().filter(pk__in=edit.changes["rules"])
    _check(all(rule.family_id == edit.other_id for rule in rules))
    FamilyRule.objects.filter(pk__in=edit.changes["rules"]).update(family=edit.family)
    KernelFamily.objects.filter(pk=edit.family_id).update(merged_into=None)
    reassign(edit.other_id or 0)


def _undo_split(edit: FamilyEdit) -> None:
    made = FamilyRule.objects.select_for_update().filter(pk__in=edit.changes["made"])
    moved = FamilyRule.objects.select_for_update().filter(pk__in=edit.changes["moved"])
    _check(all(rule.family_id == edit.other_id for rule in (*made, *moved)))
    made.delete()
    FamilyRule.objects.filter(pk__in=edit.changes["moved"]).update(family=edit.family)
    KernelFamily.objects.filter(pk=edit.other_id or 0).update(merged_into=edit.family)
    reassign(edit.other_id or 0)


def _undo_rename(edit: FamilyEdit) -> None:
    _check(edit.family.name == edit.changes["after"])
    KernelFamily.objects.filter(pk=edit.family_id).update(name=edit.changes["before"])


def _check(untouched: bool) -> None:
    if not untouched:
        raise Refused("a later edit changed what this one did", hint="undo that one first")


def _name(name: str) -> str:
    kept = clean(" ".join(name.split()), 200)
    if not kept:
        raise Refused("a family needs a name", hint="type one")
    return kept


def note_create(family: KernelFamily, *, text: str, by: Any) -> FamilyNote:
    kept = clean(text.replace("\r\n", "\n").strip())
    if not kept or len(kept) > MAX_TEXT:
        raise Refused(f"a note has 1 to {MAX_TEXT:,} characters; this one has {len(kept):,}")
    if family.notes.count() >= MAX_NOTES:
        raise Refused(f"this kernel has {MAX_NOTES} notes, which is the most", hint="delete some that are no longer needed")
    return FamilyNote.objects.create(family=family, author=by, text=kept)


def note_delete(note: FamilyNote, *, by: Any) -> None:
    if note.author_id != by.pk and not by.has_perm("profiles.moderate_familynote"):
        raise PermissionDenied("this is another person's note: its author and owners may delete it")
    note.delete()
