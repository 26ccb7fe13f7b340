"""What share of a kernel's time could be won back, by what profiles on one GPU say: for time that was summed elsewhere."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from django.db.models.functions import MD5

from profiles.analysis.core.identity import identity
from profiles.analysis.kernel.worth import COMMUNICATION, LIBRARIES, FamilyCounters, FamilyTime, KernelClass, Worth, worth
from profiles.families.selectors import family_classes, family_counters, family_times, kernels_of
from profiles.ingest.naming.names import is_collective
from profiles.models import FamilyRule
from profiles.rows import text

MEASURED, SHAPES, OTHER_SHAPES, CLASS = "measured", "shapes", "other shapes", "class"


@dataclass(frozen=True)
class Share:
    """Of a kernel's time on one GPU, 0-1, with its ends; `said` tells in words what it rests on, `basis`.

    "measured" | "shapes" | "other shapes" | "class".
    """

    share: float
    low: float
    high: float
    basis: str
    said: str


def known_families(names: Collection[str]) -> dict[str, int]:
    """Return kernel name -> family, of names whose family exists; none is made."""
    keys = {name: text(identity(name).key) for name in names}
    by_name, by_key = _rules("name", names), _rules("key", keys.values())
    family_by_name = {name: by_name.get(name) or by_key.get(keys[name]) for name in names}
    return {name: family for name, family in family_by_name.items() if family}


def _rules(kind: str, values: Collection[str]) -> dict[str, int]:
    digests = {hashlib.md5(value.encode("utf-8", "surrogatepass"), usedforsecurity=False).hexdigest() for value in values}
    rules = FamilyRule.objects.annotate(digest=MD5("value")).filter(kind=kind, digest__in=digests)
    return dict(rules.values_list("value", "family_id"))


def recoverable_shares(names: Collection[str], gpu: str, families: Mapping[str, int]) -> dict[str, Share]:
    """Return kernel name -> share on this model of GPU; a kernel of which nothing is known there is left out.

    Profiles of the same family on the same GPU speak first. A kernel that no profile holds is estimated from the counted kernels
    of its class.
    """
    family_by_name = {name: families.get(name) for name in names if not is_collective(name)}
    counters = family_counters()
    own = [time for time in family_times(
        kernels_of({"gpu": gpu}).filter(family__in=[pk for pk in family_by_name.values() if pk]), counters)
           if time.gpu == gpu and time.category != COMMUNICATION]
    profiled = {time.family for time in own}
    counted = [report for report in counters if report.gpu == gpu]
    family_ids = profiled | {report.family for report in counted}
    classes = family_classes({report.family for report in counters} | profiled)
    number: dict[str, int] = {}
    for index, (name, family) in enumerate(family_by_name.items()):
        if family in family_ids:
            number[name] = int(family or 0)
            continue
        what = identity(name)
        number[name] = -1 - index                          # of no family here: its class alone
        classes[number[name]] = KernelClass(what.op, what.function.startswith(LIBRARIES))
    bare = [FamilyTime(pk, gpu, None, "compute", 1e9, 1) for pk in set(number.values()) - profiled]
    by_family = {estimate.family: estimate for estimate in worth([*own, *bare], counted, classes)}
    shares = {name: _share(by_family.get(pk), gpu) for name, pk in number.items()}
    for name, pk in number.items():
        if (share := shares[name]) is None or share.basis == CLASS:         # its own counters are nearer than those of its class
            shares[name] = _counted_share([report for report in counted if report.family == pk], gpu) or share
    return {name: share for name, share in shares.items() if share is not None}


def _counted_share(counted: Sequence[FamilyCounters], gpu: str) -> Share | None:
    """Return an estimate by counters of a kernel in whatever shapes: time was summed without them. Its ends are their extremes."""
    lost = [(report.time_ns, max(0.0, 1.0 - report.roof_pct / 100.0)) for report in counted
            if report.roof_pct is not None and report.time_ns > 0]
    if not lost:
        return None
    mean = sum(ns * part for ns, part in lost) / sum(ns for ns, _ in lost)
    parts = [part for _, part in lost]
    return Share(mean, min(parts), max(parts), OTHER_SHAPES, f"counters of this kernel on {gpu}, of whatever shapes")


def _share(one: Worth | None, gpu: str) -> Share | None:
    if one is None or one.expected_ns is None or one.interval_ns is None:
        return None
    of_ns = one.known_ns + one.estimated_ns
    if of_ns <= 0:
        return None
    if one.recoverable_ns is not None and one.known_ns >= one.estimated_ns:
        basis, source = MEASURED, f"counters of the same shapes of this kernel on {gpu}"
    elif one.from_shapes_ns > 0.5 * one.estimated_ns:
        basis, source = SHAPES, f"the shapes of its launches in profiles on {gpu}"
    else:
        what = " and ".join(sorted({f"{reach.count} counted {reach.what}" for reach in one.reaches.values()}))
        basis, source = CLASS, f"{what or 'counted kernels of its class'} on {gpu}"
    low_ns, high_ns = one.interval_ns
    return Share(one.expected_ns / of_ns, low_ns / of_ns, high_ns / of_ns, basis, source)
