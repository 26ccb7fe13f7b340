"""What a person may say of a regression, of builds and of production alike."""

from __future__ import annotations

import pytest

from profiles.base.refused import Refused
from tuner.gate.builds.answers import MOST_NOTE_CHARS, check_answer
from tuner.models import ProductionRegression, Regression

BOTH = (Regression, ProductionRegression)
STATES = ("open", "intended", "fixed")


def test_a_note_is_kept_without_spaces_around_it() -> None:
    assert check_answer("intended", " a new algorithm\n", STATES) == "a new algorithm"
    assert check_answer("fixed", " ", STATES) == ""
    assert check_answer("open", "x" * MOST_NOTE_CHARS, STATES) == "x" * MOST_NOTE_CHARS


@pytest.mark.parametrize(("state", "note", "where"), [
    ("gone", "why", "state"), ("", "why", "state"), ("intended", " ", "note"), ("fixed", "x" * (MOST_NOTE_CHARS + 1), "note"),
    ("fixed", "a\0b", "note")])
def test_what_no_row_can_hold_is_refused(state: str, note: str, where: str) -> None:
    with pytest.raises(Refused) as refused:
        check_answer(state, note, STATES)
    assert list(refused.value.fields) == [where]


@pytest.mark.parametrize("kind", BOTH)
def test_the_states_that_both_kinds_share_are_states_of_each(kind: type[Regression] | type[ProductionRegression]) -> None:
    assert {*kind.WATCHED, "intended", "fixed"} <= set(kind.State.values)


@pytest.mark.parametrize("kind", BOTH)
def test_an_interval_has_both_ends_or_is_none(kind: type[Regression] | type[ProductionRegression]) -> None:
    assert kind(low=1.05, high=1.1).ci == [1.05, 1.1]
    assert kind(low=None, high=1.1).ci is None and kind(low=1.05, high=None).ci is None
