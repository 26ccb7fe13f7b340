"""Where `manage.py serve` over this data folder answers: a line in the folder, for commands beside it."""

from __future__ import annotations

from contextlib import suppress

from django.conf import settings

FILE = "serve.address"
MOST_BYTES = 300


def note_address(address: str) -> None:
    """Write the address of the server that has just answered; the newest one counts."""
    path = settings.HOME / FILE
    with suppress(OSError):                     # a folder that is full or read-only stops no server
        part = path.with_suffix(".part")
        part.write_text(f"{address}\n")
        part.replace(path)


def forget_address(address: str) -> None:
    """Remove the line of a server that ends, unless another one wrote its own meanwhile."""
    if served_address() == address:
        (settings.HOME / FILE).unlink(missing_ok=True)


def served_address() -> str:
    """Return the address, "" where none is noted; a server that was killed leaves its line: ask whether it answers."""
    try:
        with (settings.HOME / FILE).open() as file:
            return file.read(MOST_BYTES).strip()
    except (OSError, UnicodeDecodeError):
        return ""
