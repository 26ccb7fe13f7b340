"""What a compiled configuration's facts say before it is timed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tuner.trial import Reason, Rejected

SPILL_STORM = 64       # 4-byte words per thread in local memory


def spill_storm(facts: Mapping[str, Any]) -> Rejected | None:
    """Too many registers live in local memory for a measurement to be worth it.

    On the landscapes recorded on an H200 (11 shapes of 4 operators) no configuration that spills more than 64 words is
    within 1.5 times the best of its shape; those of up to 32 words come as near as 1.2 times. `tests/tuner/test_prune.py`
    counts it.
    """
    spills = facts.get("spills")
    if not isinstance(spills, int) or spills <= SPILL_STORM:
        return None
    return Rejected(Reason.SPILLS, f"spills {spills:,} words per thread to local memory, more than {SPILL_STORM}: not timed", facts)
