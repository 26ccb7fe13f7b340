"""The second prune: what the compiler said, held against what the H200 then measured."""

from pathlib import Path

import pytest

from tuner.tuning.measure.landscape import Landscape
from tuner.tuning.search.pipeline import SPILL_STORM, reject_spills
from tuner.tuning.trial import Measured, Reason

LANDSCAPES = sorted((Path(__file__).parents[2] / "data" / "h200" / "landscapes").glob("*.json.gz"))


@pytest.mark.parametrize("path", LANDSCAPES, ids=lambda path: path.name.partition(".")[0])
def test_no_recorded_spill_storm_comes_near_the_best(path):
    landscape = Landscape.load(path)
    pruned = 0
    for index in range(len(landscape.shapes)):
        measured = [o for _, o in landscape.at(index).outcomes.values() if isinstance(o, Measured)]
        fastest = min(o.median_ms for o in measured)
        stormy = [o.median_ms for o in measured if reject_spills(o.facts)]
        pruned += len(stormy)
        assert all(ms > 1.5 * fastest for ms in stormy), landscape.at(index).shape
    assert pruned > 0


def test_the_reason_and_the_facts_stay():
    facts = {"registers": 255, "spills": SPILL_STORM + 1}
    refused = reject_spills(facts)
    assert refused is not None and refused.reason is Reason.SPILLS and refused.facts == facts and "65 words" in refused.message
    assert reject_spills({"spills": SPILL_STORM}) is None and reject_spills({}) is None
