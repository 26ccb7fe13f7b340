"""Types of answers: what the schema says of them, how a row becomes one, and that a test's answers are held to them."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any, NotRequired, TypedDict

import pytest
from drf_spectacular.utils import extend_schema
from rest_framework.response import Response
from rest_framework.test import APIRequestFactory
from rest_framework.views import APIView

from profiles.base.answers import Paged, make_answer
from tests.answers import CheckAnswers
from webapp.answer_schema import json_schema


@dataclass(frozen=True)
class Place:
    host: str
    rank: int | None = None


class ThingJson(TypedDict):
    """What a thing is."""

    id: int
    made: str
    places: list[Place]
    note: NotRequired[str]


class ThingsJson(Paged):
    things: list[ThingJson]


class Gone(TypedDict):
    gone: bool


MADE = datetime(2026, 11, 30, 12, tzinfo=UTC)
THING = {"id": 3, "made": "2026-11-30T12:00:00+00:00", "places": [{"host": "a", "rank": None}]}


def test_a_row_becomes_an_answer_with_its_fields_in_order() -> None:
    row = SimpleNamespace(id=3, made=MADE, places=(Place("a"),), note="not asked for", more=1)
    assert list(make_answer(ThingJson, row).items()) == list(THING.items())
    assert make_answer(ThingJson, row, id=4, note="asked for") == {**THING, "id": 4, "note": "asked for"}


def test_the_schema_lists_each_named_part_once_with_what_it_is() -> None:
    schema, parts = json_schema(ThingsJson | Gone, "#/{name}")
    assert schema == {"anyOf": [{"$ref": "#/ThingsJson"}, {"$ref": "#/Gone"}]}
    assert set(parts) == {"ThingsJson", "ThingJson", "Place", "Gone"}
    assert parts["ThingJson"]["description"] == "What a thing is." and "note" not in parts["ThingJson"]["required"]
    assert parts["ThingsJson"]["required"] == ["count", "next_offset", "things"]


class ThingApi(APIView):
    authentication_classes, permission_classes, throttle_classes = [], [], []
    said: Any = None

    @extend_schema(responses={200: ThingJson | Gone})
    def get(self, request: Any) -> Response:
        return Response(self.said)


@pytest.mark.parametrize("said, wrong", [
    (THING, ""), ({"gone": True}, ""), ({**THING, "note": "x"}, ""),
    ({**THING, "id": "3"}, "not valid under any"), ({**THING, "colour": 1}, "not valid under any"),
    ({name: value for name, value in THING.items() if name != "made"}, "not valid under any"), ([THING], "not valid under any")])
def test_an_answer_is_held_to_the_type_that_its_view_names(said: Any, wrong: str) -> None:
    view = ThingApi.as_view(said=said)
    request = APIRequestFactory().get("/")
    request.resolver_match = SimpleNamespace(func=view)

    def answer(request: Any) -> Any:
        return view(request).render()

    if not wrong:
        assert CheckAnswers(answer)(request).status_code == 200
        return
    with pytest.raises(AssertionError, match=wrong):
        CheckAnswers(answer)(request)
