"""What an entry's times were taken under is told of the entry itself, where its job is gone."""

from __future__ import annotations

from typing import Any

import pytest

from tuner import texts


def test_how_l2_was_flushed_is_told_with_its_size() -> None:
    told = dict(texts.recorded_policy({"policy": {"kind": "cold", "flush": "unpin, write", "flush_bytes": 256 << 20}}))
    assert told["L2 flushed"] == "evict_last lines displaced before each launch, then a write of 256 MB"
    assert "L2 flushed" not in dict(texts.recorded_policy({"policy": {"kind": "warm"}}))


@pytest.mark.parametrize("evidence", [{}, {"policy": None}, {"policy": "cold"}, {"policy": ["cold"]}])
def test_evidence_without_a_policy_tells_none(evidence: dict[str, Any]) -> None:
    assert texts.recorded_policy(evidence) == []
