"""What a person says of a regression, of builds or of production: which state, and why."""

from __future__ import annotations

from collections.abc import Collection

from profiles.base.refused import Refused
from tuner.tuning.trial import storable

MOST_NOTE_CHARS = 2000


def check_answer(state: str, note: str, states: Collection[str]) -> str:
    """Return the note without spaces around it. Raises Refused for another state than these, a note that cannot be stored, and
    "intended" without one."""
    note = note.strip()
    if state not in states:
        raise Refused({"state": f"one of {', '.join(states)}"})
    if not storable(note) or len(note) > MOST_NOTE_CHARS:
        raise Refused({"note": f"a text of at most {MOST_NOTE_CHARS:,} characters"})
    if state == "intended" and not note:
        raise Refused({"note": "why the new speed is meant: whoever reads this next asks that"})
    return note
