"""Which family each kernel of a profile belongs to: by rules that people may have changed, else by the kernel's name."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from typing import Any

from django.db import connection, transaction
from django.db.models import Q
from django.db.models.functions import MD5

from profiles.analysis.core.identity import Identity, identity
from profiles.models import FamilyRule, KernelFamily, KernelStat
from profiles.rows import text

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
    by_key = _rules(FamilyRule.Kind.KEY, {text(each.key) for each in keys.values()})
    missing = {text(each.key): each for name, each in keys.items() if name not in by_name and text(each.key) not in by_key}
    by_key |= _make(missing)
    return {name: by_name[name] if name in by_name else by_key[text(each.key)] for name, each in keys.items()}


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
    new = {key: each for key, each in missing.items() if key not in there}
    families = KernelFamily.objects.bulk_create([
        KernelFamily(name=text(each.label, 200), function=text(each.function, 200), op=each.op[:24], dtype=each.dtype[:16])
        for each in new.values()])
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
            wanted = families_of(part)
            rows = stats.filter(name__in=part).values_list("pk", "name", "family_id")
            pairs = [(pk, wanted[name]) for pk, name, family in rows if family != wanted[name]]
            _write(pairs)
            moved += len(pairs)
    return moved
