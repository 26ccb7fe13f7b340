"""What a profile's ingest kept, and what cannot be in it: the mark of lists, the card of the page."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from profiles.analysis.core.sentences import plural, verb
from profiles.analysis.trace.plausibility.kinds import COUNTS, GPU_TIME, IDLE
from profiles.analysis.trace.plausibility.withhold import affected, touching
from profiles.models import Profile
from profiles.store.trace import READING


def integrity_mark(profile: Profile) -> tuple[str, str]:
    """Return ("ok" | "warn" | "bad" | "", one sentence) about what the ingest kept, and what cannot be in it."""
    integrity = profile.integrity
    if profile.status == Profile.Status.FAILED:
        return "bad", "nothing was readable"
    if profile.status != Profile.Status.READY or not integrity:
        return "", "not read yet"
    read, kept = integrity["records_read"], integrity["records_kept"]
    if integrity.get("truncated_at"):
        were = verb(kept, "was", "were")
        return "bad", f"the file ends early, at {integrity['truncated_at']}; {plural(kept, 'record')} {were} kept"
    if doubts := touching(doubt_rows(profile)):
        return "warn", str(doubts[0]["sentence"]).replace("`", "")
    if read != kept:
        return "warn", f"{read - kept:,} of {plural(read, 'record')} {verb(read - kept, 'is', 'are')} not kept"
    if integrity.get("repaired"):
        return "warn", f"all {read:,} records kept; {sum(integrity['repaired'].values()):,} of them mended"
    return "ok", f"all {read:,} records kept"


def doubt_rows(profile: Profile) -> list[dict[str, Any]]:
    """Return what is in doubt, the weightiest kind first; of a profile that was stored before there was such a report: nothing."""
    return profile.integrity.get("plausibility") or []


@dataclass(frozen=True)
class IntegrityCard:
    """The integrity report as rows: every count has its words."""

    mark: str
    sentence: str
    records_read: int
    records_kept: int
    truncated_at: str | None
    not_kept: list[tuple[str, int]]
    repaired: list[tuple[str, int]]
    remarks: list[tuple[str, int]]
    kinds: list[tuple[str, int]]
    notes: list[str]
    plausibility: list[dict[str, Any]]      # ingest.trace.Doubt, with the `window` of the timeline that it is in
    is_outdated: bool                       # an earlier version read the trace


def integrity_card(profile: Profile) -> IntegrityCard | None:
    integrity = profile.integrity
    if not integrity:
        return None
    def largest(name: str) -> list[tuple[str, int]]:
        return sorted(integrity.get(name, {}).items(), key=lambda pair: -pair[1])

    mark, sentence = integrity_mark(profile)
    return IntegrityCard(mark, sentence, integrity["records_read"], integrity["records_kept"], integrity.get("truncated_at"),
                         largest("not_kept"), largest("repaired"), largest("remarks"), largest("kinds"), integrity.get("notes", []),
                         [{**doubt, "window": _window(doubt)} for doubt in doubt_rows(profile)], is_outdated(profile))


def is_outdated(profile: Profile) -> bool:
    """Return whether an earlier version read the trace, and this one may make something else of it."""
    return profile.kind == Profile.Kind.TRACE and profile.status == Profile.Status.READY and (
        profile.summary.get("reading", 1) < READING)


def _window(doubt: dict[str, Any]) -> str:
    """Return where in the timeline a doubt is, "" where it is no stretch of it."""
    first_ns, last_ns = doubt.get("first_ns"), doubt.get("last_ns")
    outside = doubt.get("kind") in ("second_document", "rest_of_another_file")
    return "" if outside or first_ns is None or last_ns is None or last_ns <= first_ns else f"{first_ns}-{last_ns}"


def is_time_doubtful(profile: Profile) -> bool:
    """Return whether GPU time, idle time or counts of launches must not be built on."""
    return bool(affected(doubt_rows(profile)) & {GPU_TIME, IDLE, COUNTS})
