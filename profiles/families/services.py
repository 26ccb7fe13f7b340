"""What people may do to families: merge, split, rename, undo each of these, and write notes. Every change is a row.

Which family each kernel of a profile belongs to: by rules that people may have changed, else by the kernel's name.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from django.core.exceptions import PermissionDenied
from django.db import connection, transaction
from django.db.models import Q
from django.db.models.functions import MD5
from django.utils import timezone

from profiles.analysis.core.identity import Identity, identity
from profiles.base.refused import Refused
from profiles.models import FamilyEdit, FamilyNote, FamilyRule, KernelFamily, KernelStat
from profiles.rows import text
from profiles.rows import text as clean

_LOCK = 0x5247_4641             # pg advisory lock: two workers that meet a new kernel make one family
_CHUNK = 5_000


def families_assign(kernels: Mapping[str, int]) -> None:
    """Assign every kernel of one profile to its family; missing families are made.

    `kernels`: full name -> KernelStat id.
    """
    if not kernels:
        return
    with transaction.atomic():
        family_ids = families_of(kernels)
        _write([(pk, family_ids[name]) for name, pk in kernels.items()])


def families_of(names: Iterable[str]) -> dict[str, int]:
    """Return full name -> family id.

    A rule for the name goes before the rule for its key.
    """
    keys = {name: identity(name) for name in names}
    by_name = _rules(FamilyRule.Kind.NAME, keys)
    by_key = _rules(FamilyRule.Kind.KEY, {text(ident.key) for ident in keys.values()})
    missing = {text(ident.key): ident for name, ident in keys.items() if name not in by_name and text(ident.key) not in by_key}
    by_key |= _make(missing)
    return {name: by_name[name] if name in by_name else by_key[text(ident.key)] for name, ident in keys.items()}


def _rules(kind: str, values: Iterable[str]) -> dict[str, int]:
    """value -> family, through the index on the values' digests."""
    digests = [hashlib.md5(value.encode(), usedforsecurity=False).hexdigest() for value in values]
    family_by_value: dict[str, int] = {}
    for start in range(0, len(digests), _CHUNK):
        rules = FamilyRule.objects.annotate(digest=MD5("value")).filter(kind=kind, digest__in=digests[start:start + _CHUNK])
        family_by_value.update(rules.values_list("value", "family_id"))
    return family_by_value


def _make(missing: Mapping[str, Identity]) -> dict[str, int]:
    """Families of new keys; looked up once more behind the lock, as another worker may have made them."""
    if not missing:
        return {}
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_advisory_xact_lock(%s)", [_LOCK])
    there = _rules(FamilyRule.Kind.KEY, missing)
    new = {key: ident for key, ident in missing.items() if key not in there}
    families = KernelFamily.objects.bulk_create([
        KernelFamily(name=text(ident.label, 200), function=text(ident.function, 200), op=ident.op[:24], dtype=ident.dtype[:16])
        for ident in new.values()])
    FamilyRule.objects.bulk_create([
        FamilyRule(kind=FamilyRule.Kind.KEY, value=key, family=family) for key, family in zip(new, families, strict=True)])
    return {**there, **{key: family.pk for key, family in zip(new, families, strict=True)}}


def _write(pairs: list[tuple[int, int]]) -> None:
    sql = (f"UPDATE {KernelStat._meta.db_table} SET family_id = given.family FROM unnest(%s::bigint[], %s::bigint[]) "
           "AS given(id, family) WHERE given.id = kernelstat.id").replace("kernelstat.id", f"{KernelStat._meta.db_table}.id")
    with connection.cursor() as cursor:
        cursor.execute(sql, [[pk for pk, _ in pairs], [family for _, family in pairs]])


def reassign(*family_ids: int) -> int:
    """Move every kernel to where the changed rules say now; returns how many moved."""
    return _reassign(KernelStat.objects.filter(family__in=family_ids))


def assign_missing(everything: bool = False) -> int:
    """Assign kernels without a family, or all of them after the identity changed.

    Without: profiles read before there were any families. A kernel without a time belongs to none.
    """
    timed = KernelStat.objects.filter(total_ns__isnull=False)
    return _reassign(timed if everything else timed.filter(Q(family=None)))


def _reassign(stats: Any) -> int:
    moved = 0
    names = list(stats.order_by().values_list("name", flat=True).distinct())
    with transaction.atomic():
        for start in range(0, len(names), _CHUNK):
            part = names[start:start + _CHUNK]
            family_by_name = families_of(part)
            rows = stats.filter(name__in=part).values_list("pk", "name", "family_id")
            pairs = [(pk, family_by_name[name]) for pk, name, family in rows if family != family_by_name[name]]
            _write(pairs)
            moved += len(pairs)
    return moved


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
    if any(member.merged_into_id for member in locked):
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
    strangers = [kernel_name for kernel_name in wanted if kernel_name not in members]
    if not wanted or strangers:
        raise Refused(f"`{strangers[0][:100]}` is no kernel of this family" if strangers else "no kernel was chosen",
                          hint="choose kernels of the list")
    if len(wanted) == len(members):
        raise Refused("these are all kernels of the family", hint="rename it instead")
    new = KernelFamily.objects.create(name=_name(name), function=family.function, op=family.op, dtype=family.dtype)
    moved, made = [], []
    for kernel_name in wanted:
        rule = FamilyRule.objects.filter(kind=FamilyRule.Kind.NAME, value=kernel_name).first()
        if rule is None:
            made.append(FamilyRule.objects.create(kind=FamilyRule.Kind.NAME, value=kernel_name, family=new).pk)
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
    new_rules = FamilyRule.objects.select_for_update().filter(pk__in=edit.changes["made"])
    moved = FamilyRule.objects.select_for_update().filter(pk__in=edit.changes["moved"])
    _check(all(rule.family_id == edit.other_id for rule in (*new_rules, *moved)))
    new_rules.delete()
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
    clean_name = clean(" ".join(name.split()), 200)
    if not clean_name:
        raise Refused("a family needs a name", hint="type one")
    return clean_name


def note_create(family: KernelFamily, *, text: str, by: Any) -> FamilyNote:
    clean_text = clean(text.replace("\r\n", "\n").strip())
    if not clean_text or len(clean_text) > MAX_TEXT:
        raise Refused(f"a note has 1 to {MAX_TEXT:,} characters; this one has {len(clean_text):,}")
    if family.notes.count() >= MAX_NOTES:
        raise Refused(f"this kernel has {MAX_NOTES} notes, which is the most", hint="delete some that are no longer needed")
    return FamilyNote.objects.create(family=family, author=by, text=clean_text)


def note_delete(note: FamilyNote, *, by: Any) -> None:
    if note.author_id != by.pk and not by.has_perm("profiles.moderate_familynote"):
        raise PermissionDenied("this is another person's note: its author and owners may delete it")
    note.delete()
