"""What may be done to the notes of a timeline: write, change, delete. Every page that shows the profile is told."""

from __future__ import annotations

from typing import Any

from django.core.exceptions import PermissionDenied
from django.db import transaction

from profiles.base.refused import Refused
from profiles.models import Profile, TimelineNote
from profiles.notes.selectors import note_json
from profiles.rows import text as clean
from profiles.timeline.selectors import timeline_open
from workers import jobs

MAX_NOTES = 2000                # of one profile
MAX_TEXT = 4000                 # characters


def note_create(*, profile: Profile, author: Any, start_ns: int, end_ns: int | None = None, track: int | None = None,
                depth: int | None = None, text: str = "") -> TimelineNote:
    """Write a note at a moment or stretch of time, on a track or on all. Raises Refused, NotReady."""
    timeline = timeline_open(profile)
    if track is not None and not 0 <= track < len(timeline.tracks):
        raise Refused(f"this trace has the tracks 0 to {len(timeline.tracks) - 1}",
                          hint="leave the track out: the note is then bound to its time")
    end_ns = start_ns if end_ns is None else end_ns
    if not 0 <= start_ns <= end_ns <= timeline.document["end_ns"]:
        raise Refused(f"the time lies outside the trace: 0 to {timeline.document['end_ns']} ns",
                          hint="and the end not before the start")
    with transaction.atomic():
        Profile.objects.select_for_update().get(pk=profile.pk)         # two at once must not pass the bound together
        if profile.timeline_notes.count() >= MAX_NOTES:
            raise Refused(f"this timeline has {MAX_NOTES:,} notes, which is the most",
                              hint="delete some that are no longer needed")
        note = TimelineNote.objects.create(profile=profile, author=author, track=track, depth=depth, start_ns=start_ns,
                                           end_ns=end_ns, text=note_text(text))
        _tell(note)
    return note


def note_update(note: TimelineNote, *, by: Any, text: str) -> TimelineNote:
    """Change the text of an own note, or with the right to moderate of any. Raises PermissionDenied, Refused."""
    _check(note, by)
    note.text = note_text(text)
    with transaction.atomic():
        note.save(update_fields=["text", "changed"])
        _tell(note)
    return note


def note_delete(note: TimelineNote, *, by: Any) -> None:
    _check(note, by)
    topic, pk = f"profile.{note.profile_id}", note.pk
    with transaction.atomic():
        note.delete()
        transaction.on_commit(lambda: jobs.publish(topic, "note", {"deleted": pk}), robust=True)


def note_text(text: str) -> str:
    """Plain text as it is kept. Raises Refused when it is too long to be a note."""
    plain = clean(text.replace("\r\n", "\n").strip())
    if len(plain) > MAX_TEXT:
        raise Refused(f"the text has {len(plain):,} characters; at most {MAX_TEXT:,} are kept",
                          hint="write the rest where long texts live, and its address here")
    return plain


def _check(note: TimelineNote, by: Any) -> None:
    if note.author_id != by.pk and not by.has_perm("profiles.moderate_timelinenote"):
        raise PermissionDenied("this is another person's note: its author and owners may change it")


def _tell(note: TimelineNote) -> None:
    data = {"saved": note_json(note)}
    transaction.on_commit(lambda: jobs.publish(f"profile.{note.profile_id}", "note", data), robust=True)
