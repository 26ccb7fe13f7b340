"""Where the real files are, and what is known about them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

DATA = Path(__file__).resolve().parents[2] / "data"
CORPUS, H200 = DATA / "corpus", DATA / "h200"
TRUTH: list[dict[str, Any]] = [json.loads(line) for line in (CORPUS / "truth.jsonl").read_text().splitlines()]
