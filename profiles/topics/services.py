"""Makes what a topic's page shows: from the stored trace, once per version of the analysis."""

from __future__ import annotations

import logging
import time
from dataclasses import asdict
from typing import Any

from django.db import transaction

from profiles.analysis.found import Result
from profiles.analysis.frame import Frame
from profiles.models import Finding, Profile
from profiles.rows import json_safe, text
from profiles.store.frame import frame_read
from profiles.store.timeline import timeline
from profiles.store.topics import topic_read, topic_write
from profiles.topics.table import TOPICS, Topic
from workers import jobs

log = logging.getLogger(__name__)
AT_ONCE_SLICES = 2_000_000          # of more, a worker makes the documents and the page waits for them
MOST_FINDINGS = 50                  # of one topic


def document_of(profile: Profile, topic: Topic) -> dict[str, Any] | None:
    """The topic's document; made now where it is not there yet, None where a worker has been asked to (a large trace).

    Raises FileNotFoundError where the profile has no stored trace.
    """
    found = timeline(profile.pk)
    document = topic_read(profile.pk, topic.name, topic.version, int(found.document["written"]))
    if document is not None:
        return document
    if found.slices.rows > AT_ONCE_SLICES:
        if profile.pk not in jobs.waiting("analyse"):
            jobs.enqueue("ingest", "analyse", profile.pk)
        return None
    return topic_make(profile, topic)


def topic_make(profile: Profile, topic: Topic, frame: Frame | None = None) -> dict[str, Any]:
    """Compute and keep one topic: its document, and its findings as rows in one transaction."""
    began_s = time.monotonic()
    result = topic.compute(frame or frame_read(profile))
    document = json_safe({
        "topic": topic.name, "version": topic.version, "written": int(timeline(profile.pk).document["written"]),
        "applies": result.applies, "answer": result.answer, "numbers": result.numbers,
        "tables": [asdict(table) for table in result.tables], "findings": [asdict(found) for found in result.findings],
        "seconds": time.monotonic() - began_s})
    _findings_write(profile, topic, result)
    topic_write(profile.pk, topic.name, document)
    return document


def _findings_write(profile: Profile, topic: Topic, result: Result) -> None:
    kernels = dict(profile.kernels.filter(name__in={text(found.kernel) for found in result.findings if found.kernel})
                   .values_list("name", "pk"))
    with transaction.atomic():
        Finding.objects.filter(profile=profile, source=topic.name).delete()
        Finding.objects.bulk_create([
            Finding(profile=profile, source=topic.name, kernel_id=kernels.get(text(found.kernel)) if found.kernel else None,
                    rule=found.rule, severity=found.severity, title=text(found.title), advice=text(found.advice),
                    numbers=json_safe(found.numbers), worth_ns=json_safe(found.worth_ns))
            for found in result.findings[:MOST_FINDINGS]])


def topics_make(profile_id: int) -> None:
    """Every topic of a ready trace that is not made yet. What fails is logged, and made again when its page asks."""
    profile = Profile.objects.filter(pk=profile_id, status=Profile.Status.READY, kind=Profile.Kind.TRACE).first()
    if profile is None:
        return
    written = int(timeline(profile_id).document["written"])
    frame: Frame | None = None
    for number, topic in enumerate(TOPICS):
        if topic_read(profile_id, topic.name, topic.version, written) is None:
            jobs.publish(f"profile.{profile_id}", "analysis", {"topic": topic.name, "done": number, "total": len(TOPICS)})
            try:
                frame = frame or frame_read(profile)         # once for all, however large
                topic_make(profile, topic, frame)
            except Exception:
                log.exception("profile %s: the analysis %s failed", profile_id, topic.name)
    jobs.publish(f"profile.{profile_id}", "analysis", {"topic": "", "done": len(TOPICS), "total": len(TOPICS)})
