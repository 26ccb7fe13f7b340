"""Keys of requests: one that is sent again because its answer was lost bears the same `Idempotency-Key`."""

from __future__ import annotations

MOST_CHARACTERS = 80            # of the rows' columns
WHAT = f"at most {MOST_CHARACTERS} printable characters"


def is_key(text: str) -> bool:
    """Return whether a header can be kept as a key; what prints is no NUL and no half of a surrogate pair."""
    return 0 < len(text) <= MOST_CHARACTERS and text.isprintable()
