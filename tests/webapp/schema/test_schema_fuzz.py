"""Every operation of the API's schema, with arguments that the schema allows and with others: never a 5xx.

schemathesis makes the requests. Ids are those of rows that are there as often as invented ones: one project holds a row of every
kind, a recorded trace and a recorded report with all that is kept of them. `make test-deep` tries a hundred for each.
"""

from __future__ import annotations

import contextlib
import json
import warnings
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import requests
import schemathesis
from django.conf import settings as django_settings
from django.core.files.base import File
from django.db import transaction
from django.test import Client
from drf_spectacular.generators import SchemaGenerator
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from hypothesis.errors import Unsatisfiable
from hypothesis.internal.conjecture import engine
from schemathesis import Case, GenerationMode

from profiles.upload.services import profile_create, profile_ingest
from tests.scale import DEEP
from tests.webapp.projects.test_walls import IDS, NAME, NAMES, PK, Filler, other, person
from workers.scope import within

pytestmark = [pytest.mark.django_db, pytest.mark.servers]
__all__ = ["other"]

H200 = Path(__file__).parents[2] / "data" / "h200"
EXAMPLES = 100 if DEEP else 1       # the first is the simplest: all of it aimed at rows that are there
REFUSED_FOR_NOW = (503, 507)
ATTEMPTS = 20                       # at an argument that is not allowed; where there is one at all, the eleventh at the latest is


@pytest.fixture
def ids(other: Filler, sign_in_mode: None) -> list[int]:
    """Numbers of rows: those of one of each kind, of a trace, and of a report."""
    found = [PK]
    with within(PK):
        for name in ("ddp_even_rank0.json.gz", "buildA.ncu-rep.zst"):
            with (H200 / name).open("rb") as file:
                profile = profile_create(owner=None, file=File(file, name=name), worker="test")
            profile_ingest(profile.pk, "test")
            profile.refresh_from_db()
            assert profile.status == "ready"
            found.append(profile.pk)
    return found


@pytest.fixture
def soon_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """hypothesis makes 459 attempts before it says that an operation without arguments has none that is not allowed."""
    if not DEEP:
        monkeypatch.setattr(engine, "INVALID_THRESHOLD_BASE", ATTEMPTS)


@pytest.fixture
def client_of_owner(ids: list[int], monkeypatch: pytest.MonkeyPatch) -> Client:
    """Answers are not held to their types: the rows hold what nothing writes, a grid that is a word and facts that are none."""
    monkeypatch.setattr(django_settings, "MIDDLEWARE", [each for each in django_settings.MIDDLEWARE if "CheckAnswers" not in each])
    client = Client(raise_request_exception=False)
    user = person("fuzzer", PK, "owner")
    client.force_login(user)
    return client


@schemathesis.serializer("application/vnd.ridgepoint.fleet", "application/octet-stream")
def bytes_as_they_are(ctx: Any, value: Any) -> bytes:
    return value if isinstance(value, bytes) else str(value).encode()


def operations() -> list[Any]:
    make: Any = SchemaGenerator
    schema = make().get_schema(request=None, public=True)
    read: Any = schemathesis.openapi.from_dict(json.loads(json.dumps(schema, default=str)))
    return [result.ok() for result in read.get_all_operations()]


def aim(values: Any, ids: list[int], draw: Any) -> Any:
    """Put numbers and names of rows that are there where an id or a name is asked for, every other time."""
    if not isinstance(values, dict):
        return values
    for key, value in values.items():
        if key in (*IDS, "id", "kernel_pk", "note_pk") and isinstance(value, int | str) and not draw(st.booleans()):
            values[key] = draw(st.sampled_from(ids))
        elif key in NAMES and isinstance(value, str) and not draw(st.booleans()):
            values[key] = NAME
        elif isinstance(value, dict):
            aim(value, ids, draw)
    return values


def send(client: Client, case: Case[Any]) -> Any:
    arguments = case.as_transport_kwargs(base_url="http://testserver")
    for name in ("timeout", "verify", "allow_redirects", "cert", "proxies", "stream"):
        arguments.pop(name, None)
    ready = requests.Request(**arguments).prepare()
    path, _, query = str(ready.path_url).partition("?")
    headers = {name.lower(): str(value) for name, value in ready.headers.items()}
    body = ready.body.encode() if isinstance(ready.body, str) else ready.body or b""
    with transaction.atomic():
        answer: Any = client.generic(str(ready.method), path, body, content_type=headers.get("content-type", "application/json"),
                                QUERY_STRING=query)
        text = b"".join(answer.streaming_content) if answer.streaming else answer.content
        transaction.set_rollback(True)
    return answer.status_code, text.decode("utf-8", "replace"), ready


def asked(operations: list[Any]) -> Iterator[tuple[Any, GenerationMode]]:
    """Each operation with what its schema allows and what it does not; outside `make test-deep` with one of them, by its name."""
    for operation in operations:
        modes = (GenerationMode.POSITIVE, GenerationMode.NEGATIVE)
        yield from ((operation, mode) for mode in (modes if DEEP else [modes[zlib.crc32(operation.label.encode()) % 2]]))


@pytest.mark.timeout(7200 if DEEP else 300)
def test_no_operation_of_the_schema_answers_with_a_server_error(ids: list[int], client_of_owner: Client, soon_given_up: None
                                                                ) -> None:
    failures, seen = dict[str, str](), dict[int, int]()
    for operation, mode in asked(operations()):
        @settings(max_examples=EXAMPLES, derandomize=not DEEP, deadline=None, database=None, phases=[Phase.generate],
                  suppress_health_check=list(HealthCheck))
        @given(case=operation.as_strategy(mode), data=st.data())
        def ask(case: Case[Any], data: Any) -> None:
            for part in (case.path_parameters, case.query, case.body):
                aim(part, ids, data.draw)
            case.headers.pop("Authorization", None)
            status, text, ready = send(client_of_owner, case)
            seen[status] = seen.get(status, 0) + 1
            if status >= 500 and status not in REFUSED_FOR_NOW:
                told = f"{status} {ready.path_url} {ready.body!r:.300}: {text[:300]}"
                failures.setdefault(f"{ready.method} {case.operation.path}", told)

        with warnings.catch_warnings(), contextlib.suppress(Unsatisfiable):         # there: nothing is not allowed
            warnings.simplefilter("ignore")
            ask()
    assert not failures, "\n".join(f"{what}: {why}" for what, why in failures.items())
    assert seen.get(200, 0) > (60 if DEEP else 25), seen        # so that it cannot pass because all was refused at the door
