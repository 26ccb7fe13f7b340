"""What every room may import: refusals, numbers, words."""

from __future__ import annotations

import math

import numpy as np
import pytest

from profiles.base.numbers import finite_number, median, positive_number, quantile
from profiles.base.refused import Refused
from profiles.base.words import dims_text, pairs_text
from webapp.errors import HINTS, exception_handler


def test_a_refusal_says_which_field_and_what() -> None:
    refused = Refused({"days": "1 to 30 days", "": "a job runs"}, hint="stop it first", status=409)
    assert str(refused) == "days: 1 to 30 days; a job runs" and refused.what == "1 to 30 days; a job runs"
    renamed = refused.renamed({"days": "for", "": "link"})
    assert renamed.fields == {"for": "1 to 30 days", "link": "a job runs"}
    assert (renamed.hint, renamed.status) == ("stop it first", 409)


@pytest.mark.parametrize(("refused", "status", "answer"), [
    (Refused({"days": "1 to 30 days"}), 400, {
        "error": "days: 1 to 30 days", "where": "days", "hint": "correct these fields", "fields": {"days": ["1 to 30 days"]}}),
    (Refused({"": "a job runs"}, whole="suite", status=409), 409, {
        "error": "suite: a job runs", "where": "suite", "hint": "correct these fields", "fields": {"suite": ["a job runs"]}}),
    (Refused("nobody is called bob"), 400, {"error": "nobody is called bob", "where": "request", "hint": HINTS[400]}),
    (Refused("a job runs", hint="stop it first"), 400, {"error": "a job runs", "where": "request", "hint": "stop it first"}),
    (Refused({"operator": "no owner allows it"}, status=403), 403, {
        "error": "no owner allows it", "where": "request", "hint": HINTS[403]}),
])
def test_the_api_answers_a_refusal_in_one_place(refused: Refused, status: int, answer: dict[str, object]) -> None:
    response = exception_handler(refused, {})
    assert response is not None and response.status_code == status and response.data == answer


@pytest.mark.parametrize("q", [0.0, 0.25, 0.5, 0.95, 1.0])
def test_quantiles_are_those_of_numpy(q: float) -> None:
    for values in ([3.0], [1.0, 2.0], [0.5, 0.7, 4.0, 9.0, 9.5]):
        assert math.isclose(quantile(values, q), float(np.quantile(values, q)))


def test_the_median_leaves_out_what_is_not_known() -> None:
    assert median([4, None, 1]) == 2.5 and median([None]) is None and median([]) is None


def test_shapes_and_configurations_in_one_line() -> None:
    assert pairs_text({"M": 4096, "cache": True}) == "M=4096 cache=True" and dims_text([4096, 1024]) == "4096×1024"


@pytest.mark.parametrize(("value", "finite", "positive"), [
    (3, 3.0, 3.0), (2.5, 2.5, 2.5), (0, 0.0, None), (-1.5, -1.5, None), (True, None, None), ("3", None, None), (None, None, None),
    (math.nan, None, None), (math.inf, None, None), (10**400, None, None), ([3], None, None)])
def test_a_number_of_others_is_finite_or_none(value: object, finite: float | None, positive: float | None) -> None:
    assert finite_number(value) == finite and positive_number(value) == positive
