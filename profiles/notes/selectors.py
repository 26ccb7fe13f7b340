"""What the timeline's notes look like to those who read them."""

from __future__ import annotations

from typing import Any

from profiles.models import Profile, TimelineNote
from workers.scope import account_name


def note_json(note: TimelineNote) -> dict[str, Any]:
    """Times in ns since trace start; `text` empty: a bookmark."""
    return {
        "id": note.pk, "track": note.track, "depth": note.depth, "start_ns": note.start_ns, "end_ns": note.end_ns,
        "text": note.text, "author": account_name(note.author), "created": note.created.isoformat(),
        "changed": note.changed.isoformat(),
    }


def notes(profile: Profile) -> list[dict[str, Any]]:
    """Return the notes of a profile by start time.

    Bounded, because services.note_create is.
    """
    return [note_json(note) for note in profile.timeline_notes.select_related("author")]


def note_rights(user: Any) -> dict[str, Any]:
    """Return who asks and what the page may offer: writing, and changing what others wrote."""
    return {"me": user.get_username(), "may_write": user.has_perm("profiles.add_timelinenote"),
            "may_moderate": user.has_perm("profiles.moderate_timelinenote")}
