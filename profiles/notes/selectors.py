"""What the timeline's notes look like to those who read them."""

from __future__ import annotations

from typing import Any, TypedDict

from profiles.base.answers import make_answer
from profiles.models import Profile, TimelineNote
from workers.scope import account_name


class NoteJson(TypedDict):
    """A note of a timeline; `text` empty: a bookmark."""

    id: int
    track: int | None
    depth: int | None
    start_ns: int
    end_ns: int | None
    text: str
    author: str | None
    created: str
    changed: str


def note_json(note: TimelineNote) -> NoteJson:
    """Times in ns since trace start; `text` empty: a bookmark."""
    return make_answer(NoteJson, note, author=account_name(note.author))


def notes(profile: Profile) -> list[NoteJson]:
    """Return the notes of a profile by start time.

    Bounded, because services.note_create is.
    """
    return [note_json(note) for note in profile.timeline_notes.select_related("author")]


class NoteRightsJson(TypedDict):
    """Who asks, and what the page may offer."""

    me: str
    may_write: bool
    may_moderate: bool


def note_rights(user: Any) -> NoteRightsJson:
    """Return who asks and what the page may offer: writing, and changing what others wrote."""
    return {"me": user.get_username(), "may_write": user.has_perm("profiles.add_timelinenote"),
            "may_moderate": user.has_perm("profiles.moderate_timelinenote")}
