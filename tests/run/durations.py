"""How long each test took when it last ran here: beside what tests keep, written by `tests.servers` as a run ends."""

from __future__ import annotations

import fcntl
import json
from collections import defaultdict
from collections.abc import Mapping

from tests.kept.folder import cache_folder

NAME = "seconds-by-test.json"


def seconds_by_file() -> dict[str, float]:
    """Return {path of a file of tests: seconds of all its tests}; {} where no run was timed."""
    sums: dict[str, float] = defaultdict(float)
    for test, seconds in _read().items():
        sums[test.split("::")[0]] += seconds
    return sums


def remember(seconds_by_test: Mapping[str, float]) -> None:
    """Keep what the tests of a run took, set-up included; those that it did not run keep theirs. Runs may end at once."""
    if not seconds_by_test:
        return
    cache_folder().mkdir(parents=True, exist_ok=True)
    with open(cache_folder() / f"{NAME}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        fresh = cache_folder() / f"{NAME}.fresh"
        fresh.write_text(json.dumps({**_read(), **{test: round(seconds, 2) for test, seconds in seconds_by_test.items()}}))
        fresh.replace(cache_folder() / NAME)


def _read() -> dict[str, float]:
    try:
        found: dict[str, float] = json.loads((cache_folder() / NAME).read_text())
    except (OSError, ValueError):
        return {}
    return found
