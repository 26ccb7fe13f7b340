"""Makes what a topic's page shows: from the stored trace, once per version of the analysis."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from django.conf import settings
from django.db import DatabaseError, transaction

from profiles.analysis.core.frame import Frame
from profiles.analysis.core.gpus import COMPUTE, MEMORY
from profiles.analysis.core.result import Result
from profiles.analysis.core.sentences import pct_text
from profiles.analysis.trace.account.causes import COVERED
from profiles.analysis.trace.plausibility.withhold import withhold_result
from profiles.models import Finding, KernelStat, Profile
from profiles.rows import json_safe, text
from profiles.store.frame import frame_read
from profiles.store.objects import topic_read, topic_write
from profiles.store.timeline import timeline
from profiles.topics.table import TOPICS, Topic, fingerprint
from workers import jobs

# What bounds the kernels of a trace: by the dimensions of their launches, as the topic "layer" classifies them.

LEAST_KNOWN = 0.5               # share of a kernel's time whose roof must be known


def kernel_bounds(work: Sequence[Mapping[str, Any]]) -> dict[str, tuple[str, str]]:
    """Return (roof that most of its time stands under, the numbers) by kernel, of rows by kernel and shape of the topic "layer"."""
    rows: dict[str, list[Mapping[str, Any]]] = {}
    for row in work:
        rows.setdefault(row["kernel"], []).append(row)
    return {kernel: bound for kernel, own in rows.items() if (bound := _bound(own)) is not None}


def _bound(rows: Sequence[Mapping[str, Any]]) -> tuple[str, str] | None:
    spent = {side: sum(row["total_ns"] for row in rows if row["side"] == side) for side in (MEMORY, COMPUTE)}
    known_ns, whole_ns = sum(spent.values()), sum(row["total_ns"] for row in rows)
    if not known_ns or known_ns < LEAST_KNOWN * whole_ns:
        return None
    side = max(spent, key=lambda each: spent[each])
    rated = [row for row in rows if row["side"] == side and row["floor_ns"] is not None and not row["mark"]]
    rated_ns = sum(row["total_ns"] for row in rated)
    words = f"under its {side} roof"
    if rated_ns:
        words = f"{pct_text(100.0 * sum(row['floor_ns'] for row in rated) / rated_ns)} of its {side} roof"
    part = "" if spent[side] == whole_ns else f" for {pct_text(100.0 * spent[side] / whole_ns)} of its time"
    return side, f"{words}{part}, by the dimensions of its launches"


def bounds_write(profile: Profile, work: Sequence[Mapping[str, Any]]) -> None:
    """Keep what bounds the kernels of a trace in their rows: pages, API and files read it there, as they do of counters."""
    bounds = kernel_bounds(work)
    changed = []
    for stat in KernelStat.objects.filter(profile=profile).only("pk", "name", "bound", "bound_reason").iterator():
        bound, reason = bounds.get(stat.name, ("", ""))
        if (stat.bound, stat.bound_reason) != (bound, reason):
            stat.bound, stat.bound_reason = bound, text(reason)
            changed.append(stat)
    KernelStat.objects.bulk_update(changed, ["bound", "bound_reason"], batch_size=500)


log = logging.getLogger(__name__)
AT_ONCE_SLICES = 250_000            # of more, a worker makes the documents and the page waits for them: some 560 bytes a slice
LAYER = "layer"                     # the topic whose classification of kernels stands in their rows
ACCOUNT = "causes"                  # the topic that puts all time under causes
NEEDED = "needed"                   # the topic that says the least time of the work
GAINS = (ACCOUNT, NEEDED)         # topics whose findings say what there is to win
MOST_FINDINGS = 50                  # of one topic


def document_of(profile: Profile, topic: Topic) -> dict[str, Any] | None:
    """Return the topic's document, made now where it is not there yet.

    None where a worker has been asked to (a large trace).

    Raises FileNotFoundError where the profile has no stored trace.
    """
    stored = timeline(profile.pk)
    document = topic_read(profile.pk, topic.name, topic.version, int(stored.document["written"]))
    if document is not None and _is_current(profile, topic, document):
        return document
    if stored.slices.rows > AT_ONCE_SLICES or (document is not None and "refused_mb" in document):
        if profile.pk not in jobs.waiting("analyse"):
            jobs.enqueue("ingest", "analyse", profile.pk)
        return None
    return topic_make(profile, topic)


def _may_fit_now(document: dict[str, Any]) -> bool:
    """Whether the topic was refused for want of memory or time, and more is allowed since."""
    refused_mb: float = document.get("refused_mb", math.inf)
    refused_s: float = document.get("refused_s", math.inf)
    return refused_mb < settings.STAGE_MEMORY_MB or refused_s < (settings.STAGE_SECONDS or math.inf)


def _is_current(profile: Profile, topic: Topic, document: dict[str, Any]) -> bool:
    """Return whether a document holds: made of what the topic is given today, not refused for memory that is there now."""
    digest = fingerprint(topic.given(profile)) if topic.given else ""
    refused = "refused_mb" in document          # whatever it is given, it does not fit
    return not _may_fit_now(document) and (refused or document.get("given", "") == digest)


def topic_refuse(profile_id: int, name: str, answer: str) -> None:
    """Keep a document that says why the topic is not made; nobody tries again until more is allowed."""
    profile = Profile.objects.get(pk=profile_id)
    topic = next(topic for topic in TOPICS if topic.name == name)
    result = Result(answer, applies=False)
    _keep(profile, topic, result, {**_document(profile, topic, result, 0.0), "refused_mb": settings.STAGE_MEMORY_MB,
                                    **({"refused_s": settings.STAGE_SECONDS} if settings.STAGE_SECONDS else {})})


def topic_make(profile: Profile, topic: Topic, frame: Frame | None = None) -> dict[str, Any]:
    """Compute and keep one topic: its document, and its findings as rows in one transaction."""
    began_s = time.monotonic()
    inputs = topic.given(profile) if topic.given else None
    frame = frame or frame_read(profile)
    result = topic.compute(frame) if inputs is None else topic.compute(frame, inputs)
    result = withhold_result(topic.name, result, profile.integrity.get("plausibility") or [])
    document = _document(profile, topic, result, time.monotonic() - began_s)
    if inputs is not None:
        document["given"] = fingerprint(inputs)
    try:
        _keep(profile, topic, result, document)
    except (OSError, DatabaseError) as error:       # a full disk: the page shows it all the same, the next one makes it again
        log.warning("profile %s: the analysis %s was not kept: %s", profile.pk, topic.name, error)
    return document


def _document(profile: Profile, topic: Topic, result: Result, seconds: float) -> dict[str, Any]:
    document: dict[str, Any] = json_safe({
        "topic": topic.name, "version": topic.version, "written": int(timeline(profile.pk).document["written"]),
        "applies": result.applies, "answer": result.answer, "numbers": result.numbers,
        "tables": [asdict(table) for table in result.tables], "findings": [asdict(finding) for finding in result.findings],
        "seconds": seconds})
    return document


def _keep(profile: Profile, topic: Topic, result: Result, document: dict[str, Any]) -> None:
    """Keep the document, and the findings as rows: of other topics than the account those whose time it does not have already.

    The profile's row is locked before its findings, as a deletion does. One that is deleted meanwhile gets neither: its objects
    are deleted once its row is gone, and what came later would stay for ever. Who sees the document sees its findings: it comes
    after them.
    """
    kernels = dict(profile.kernels.filter(name__in={text(finding.kernel) for finding in result.findings if finding.kernel})
                   .values_list("name", "pk"))
    with transaction.atomic():
        if not _locked(profile):
            return
        Finding.objects.filter(profile=profile, source=topic.name).delete()
        worth = topic.name in GAINS             # what there is to win is said once: findings of others overlap with theirs
        Finding.objects.bulk_create([
            Finding(profile=profile, source=topic.name, kernel_id=kernels.get(text(finding.kernel)) if finding.kernel else None,
                    rule=finding.rule, severity=finding.severity, title=text(finding.title), advice=text(finding.advice),
                    numbers=json_safe(finding.numbers if worth or finding.worth_ns is None else
                                      {**finding.numbers, "at_most_ns": finding.worth_ns}),
                    worth_ns=json_safe(finding.worth_ns) if worth else None)
            for finding in result.findings[:MOST_FINDINGS] if finding.rule not in COVERED])
    with transaction.atomic():
        if _locked(profile):
            if topic.name == LAYER:
                bounds_write(profile, document["numbers"].get("work", []))
            if topic.name == NEEDED:
                _grade(profile, document["numbers"].get("needed_pct") if document["applies"] else None)
            topic_write(profile.pk, topic.name, document)


def _grade(profile: Profile, needed_pct: float | None) -> None:
    """Keep with the locked row what of the time the work needed at least, for lists; nothing where that is not known."""
    summary = Profile.objects.values_list("summary", flat=True).get(pk=profile.pk)
    rest = {name: value for name, value in summary.items() if name != "needed_pct"}
    profile.summary = rest if needed_pct is None else {**rest, "needed_pct": needed_pct}
    Profile.objects.filter(pk=profile.pk).update(summary=profile.summary)


def _locked(profile: Profile) -> bool:
    """Lock a profile's row until the transaction ends; False where it is gone."""
    return Profile.objects.select_for_update(no_key=True).filter(pk=profile.pk).first() is not None


def topics_make(profile_id: int, say: Callable[[str], None] = lambda topic: None, skip: Collection[str] = ()) -> None:
    """Make every topic of a ready trace that is not made yet.

    `say` gets the name of each before. What fails is logged, and made again when its page asks. Raises MemoryError.
    """
    profile = Profile.objects.filter(pk=profile_id, status=Profile.Status.READY, kind=Profile.Kind.TRACE).first()
    if profile is None:
        return
    written = int(timeline(profile_id).document["written"])
    frame: Frame | None = None
    for number, topic in enumerate(TOPICS):
        document = topic_read(profile_id, topic.name, topic.version, written)
        if topic.name not in skip and (document is None or not _is_current(profile, topic, document)):
            say(topic.name)
            jobs.publish(f"profile.{profile_id}", "analysis", {"topic": topic.name, "done": number, "total": len(TOPICS)})
            try:
                frame = frame or frame_read(profile)         # once for all, however large
                topic_make(profile, topic, frame)
            except MemoryError:
                raise
            except Exception:
                if not Profile.objects.filter(pk=profile_id).exists():
                    log.info("profile %s: deleted while its analyses were made", profile_id)
                    return
                log.exception("profile %s: the analysis %s failed", profile_id, topic.name)
    jobs.publish(f"profile.{profile_id}", "analysis", {"topic": "", "done": len(TOPICS), "total": len(TOPICS)})
