"""What is in `make test-core`: tests that need no server, no browser, no GPU and no second process."""

from __future__ import annotations

import re
from pathlib import Path

NOT_CORE = ("browser", "gpu", "torch", "process", "slow", "golden")         # marks; and whatever needs servers
WHOLE_FILE = re.compile(rf"^pytestmark = .*mark\.(django_db|servers|{'|'.join(NOT_CORE)})\b", re.MULTILINE)


def has_core_tests(path: Path) -> bool:
    """Return False for a file of tests that marks all of them as something else: it is not even imported."""
    return WHOLE_FILE.search(path.read_text()) is None
