"""A listing as JSON: it goes there and back, and nothing but a listing is read."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tuner.tuning import offer as offers
from tuner.tuning.offer import Offer, read_offer

CONFIGS = [{"TILE": tile, "SPLIT_K": split} for tile in ("64x64", "128x64") for split in (1, 2, 4)]


def made() -> Offer:
    return Offer.of(CONFIGS, "lib 1.0", preferred=[CONFIGS[4], CONFIGS[1]], pruned={"refused": 7},
                    values={"TILE": ("64x64", "128x64")}, about={"seconds": 0.5, "whole": True})


def test_a_listing_goes_there_and_back() -> None:
    back = read_offer(json.loads(json.dumps(made().as_json())))
    assert list(back.space.configs()) == list(made().space.configs()) and back.space.size == 6 + 7
    assert back.default_config == CONFIGS[4] and [back.space.config(row) for row in back.starts] == [CONFIGS[4], CONFIGS[1]]
    assert (back.library, back.about) == ("lib 1.0", {"seconds": 0.5, "whole": True})
    assert [param.values for param in back.space.params] == [("64x64", "128x64"), (1, 2, 4)]


def test_nothing_listed_is_a_listing_too() -> None:
    back = read_offer(json.loads(json.dumps(Offer.of([], "lib", pruned={"refused": 1}).as_json())))
    assert len(back.space) == 0 and back.default_config is None and back.space.pruned == {"refused": 1}


def test_beyond_the_most_the_preferred_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(offers, "MAX_CONFIGS", 3)
    few = made()
    assert len(few.space) == 3 and few.default_config == CONFIGS[4] and few.space.pruned["beyond the first 3"] == 3


@pytest.mark.parametrize("change", [
    {"rows": [[0, 9]]}, {"rows": [[-1, 0]]}, {"rows": [[0]]}, {"rows": "x"}, {"rows": [[0, 0]] * 20_001},
    {"rows": [[0, 0], [0, 0]]}, {"rows": [[2**40, 0]]}, {"params": [{"name": "A", "values": []}]},
    {"params": [{"name": "A" * 300, "values": [1]}]}, {"params": [{"name": "A", "values": [[1]]}]}, {"params": 5},
    {"params": [{}] * 30}, {"default": 6}, {"default": True}, {"starts": [99]}, {"starts": ["a"]}, {"pruned": {"x": -1}},
    {"pruned": [1]}, {"library": 3}, {"library": "x" * 300}, {"about": {"x": {"deep": 1}}}])
def test_what_is_no_listing_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises(ValueError):
        read_offer({**made().as_json(), **change})


@pytest.mark.parametrize("told", [None, [], "x", 5, {}])
def test_another_kind_of_answer_is_refused(told: Any) -> None:
    with pytest.raises(ValueError, match="no listing"):
        read_offer(told)
