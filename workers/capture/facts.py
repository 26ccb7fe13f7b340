"""What is found out while a capture runs, kept on its row: metrics that wildcards named, step times with and without recording."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from profiles.models import Capture
from profiles.rows import json_safe

NAME = "ridgepoint.json"        # as the launchers write it beside their results
MAX_BYTES = 64 << 10


def said_by_tool(folder: Path) -> dict[str, Any]:
    """Return what a launcher measured of itself (a small JSON object in its folder), {} without."""
    path = folder / NAME
    try:
        said = json.loads(path.read_text()) if path.is_file() and path.stat().st_size <= MAX_BYTES else {}
    except ValueError:                  # the program ended in the middle of it, or wrote a file of that name itself
        return {}
    return dict(json_safe(said)) if isinstance(said, dict) else {}


def facts_store(capture: Capture, worker: str, facts: Mapping[str, Any]) -> None:
    """Add facts to the row where it is still the worker's."""
    if facts:
        capture.facts = {**capture.facts, **facts}
        Capture.objects.filter(pk=capture.pk, worker=worker).update(facts=capture.facts)
