"""The soak, shorter: a process killed every 15 s for four minutes. `docs/soak.md` holds the figures of an hour."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.scale import DEEP
from tests.soak.__main__ import Plan, run

pytestmark = [pytest.mark.process, pytest.mark.deep, pytest.mark.timeout(1800),
              pytest.mark.skipif(not DEEP, reason="minutes: make test-deep")]


def test_a_team_s_load_survives_kills_with_nothing_lost_and_nothing_twice(tmp_path: Path) -> None:
    outcome = run(Plan(minutes=4, people=20, jobs=8, agents=4, kill_every_s=15, gate_every_s=30), tmp_path)
    assert not outcome.book.violations, outcome.book.violations[:10]
    assert sum(outcome.book.kills.values()) >= 8
