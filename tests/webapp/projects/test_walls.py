"""Every route × roles × another project: nothing of it is shown, nothing of it is changed.

One project is filled with a row of every kind of row that belongs to a project, all under one id and one name. People and tokens
of another project then ask for that id and name at every address there is, by every method.
"""

from __future__ import annotations

import datetime
import uuid
from collections.abc import Iterator
from itertools import islice
from typing import Any

import pytest
from django.apps import apps
from django.contrib.auth import get_user_model
from django.core.serializers import serialize
from django.db import models
from django.test import Client
from django.urls import URLPattern, URLResolver, get_resolver, set_script_prefix
from rest_framework import serializers

from tests.scale import DEEP
from webapp.models import ApiToken, Membership, Project
from workers.scope import EVERYTHING, BelowProject, OfProject, enter, within

pytestmark = [pytest.mark.django_db, pytest.mark.servers]

PK, NAME, HIDDEN = 777_000, "zzname", "zzhidden"
IDS = ("a", "b", "profile", "profiles", "target", "baseline", "kernel", "family", "job_id", "pk", "ids")
NAMES = ("suite", "build", "build_a", "build_b", "job", "host", "operator", "q", "name", "against", "agent")
ASKED = "&".join([*(f"{name}={PK}" for name in IDS), *(f"{name}={NAME}" for name in NAMES)])
CHOSEN: dict[str, dict[str, Any]] = {        # columns that a rule of the table decides
    "Profile": {"status": "ready", "kind": "trace", "format": "kineto", "error": None},
    "Finding": {"severity": "medium"}, "KernelStat": {"total_ns": 1}, "FamilyEdit": {"changes": {"rules": []}},
    "Gate": {"verdict": "PASS"},
    "Suite": {"kind": "uploaded", "every_hours": None}, "Build": {"side": False},
    "TrialRow": {"outcome": "measured", "median_ms": 1.0, "config": {"BLOCK": 64}},
    "TuneJob": {"shape": {"M": 64}, "status": "done"},
    "CachedConfig": {"config": {"BLOCK": 64}, "shape": {"M": 64}, "shape_bucket": "M=64"},
    "ConfigSnapshot": {"content": {"entries": []}},
    "Capture": {"status": "done", "error": None, "tool": "ncu"}, "EngineCapture": {"status": "done", "error": None},
    "SuiteJob": {"status": "done"},
    "Delivery": {"regression": None, "production": None, "gate": None},
}


def scoped_models() -> list[type[models.Model]]:
    return [model for model in apps.get_models() if issubclass(model, OfProject | BelowProject)]


class Filler:
    """Makes one row of each kind, with what it needs, in the current scope."""

    def __init__(self) -> None:
        self.rows: dict[type[models.Model], models.Model] = {}

    def row(self, model: type[models.Model]) -> models.Model:
        if model not in self.rows:
            values = {field.attname: self._value(model, field) for field in model._meta.concrete_fields
                      if field.name not in ("project", *CHOSEN.get(model.__name__, {}))}
            row = model(**values, **CHOSEN.get(model.__name__, {}))
            row.save(force_insert=True)
            self.rows[model] = row
        return self.rows[model]

    def _value(self, model: type[models.Model], field: models.Field[Any, Any]) -> Any:
        if field.primary_key:
            return NAME if isinstance(field, models.CharField) else PK
        if isinstance(field, models.ForeignKey):
            other = field.related_model
            if field.null and (other is model or not issubclass(other, OfProject | BelowProject)):
                return None
            return self.row(other).pk if issubclass(other, OfProject | BelowProject) else None
        if field.choices:
            return field.choices[0][0]      # type: ignore[index]
        if field.name in ("name", "job", "host") or isinstance(field, models.SlugField):
            return NAME
        if isinstance(field, models.CharField | models.TextField):
            return field.get_default() if field.has_default() and field.get_default() else HIDDEN[:field.max_length or 99]
        if field.null and field.name not in ("median_ms",):
            return None
        if isinstance(field, models.JSONField):
            return field.get_default() if field.has_default() else {}
        if isinstance(field, models.BooleanField):
            return bool(field.get_default())
        if isinstance(field, models.DateTimeField):
            return datetime.datetime(2026, 11, 1, tzinfo=datetime.UTC)
        if isinstance(field, models.DateField):
            return datetime.date(2026, 11, 1)
        if isinstance(field, models.UUIDField):
            return uuid.UUID(int=7)
        if isinstance(field, models.BinaryField):
            return b""
        if isinstance(field, models.IntegerField | models.FloatField):
            return field.get_default() if field.has_default() else 1
        return field.get_default() if field.has_default() else []


@pytest.fixture
def other(tmp_store: Any) -> Iterator[Filler]:
    """Another project, with a row of everything."""
    project = Project.objects.create(pk=PK, slug=NAME, name="Others")
    filler = Filler()
    with within(project.pk):
        for model in scoped_models():
            filler.row(model)
    yield filler
    set_script_prefix("/")
    enter(EVERYTHING)           # a streamed answer keeps its scope; a server's requests have a context each, tests have not


@pytest.fixture
def mine(other: Filler) -> Project:
    return Project.objects.create(pk=5, slug="mine", name="Mine")


def person(name: str, project: Project | int, role: str) -> Any:
    user = get_user_model().objects.create_user(name, password=None)
    Membership.objects.create(user=user, project_id=getattr(project, "pk", project), role=role)
    return user


def routes(found: Any = None, before: str = "/") -> Iterator[tuple[str, bool]]:
    """Every address, with the id and name of the other project's rows in it; whether it holds any."""
    for each in (found or get_resolver()).url_patterns:
        route = before + str(each.pattern)
        if isinstance(each, URLResolver):
            yield from routes(each, route)
        elif isinstance(each, URLPattern):
            path, holds = route, bool(each.pattern.converters)
            for name, converter in each.pattern.converters.items():
                kind = type(converter).__name__
                value = str(PK) if kind == "IntConverter" else NAME
                for kind_of in ("int:", "slug:", "path:", "str:", "uuid:", ""):
                    path = path.replace(f"<{kind_of}{name}>", value)
            # the second loads for minutes; the third is for scrapers, with a token of its own
            left_out = "logout" in path or path.startswith(("/examples/", "/metrics"))
            if "<" not in path and "(?" not in path and not left_out:
                yield path, holds


def text_of(response: Any) -> str:
    content = b"".join(response.streaming_content) if response.streaming else response.content
    return str(content.decode("utf-8", "replace"))


def everything(filler: Filler) -> str:
    rows = [row for model in scoped_models() for row in model._base_manager.filter(pk=filler.rows[model].pk)]
    return str(serialize("json", rows))


def test_every_kind_of_row_that_a_person_makes_belongs_to_a_project() -> None:
    """A new kind of row says whose it is: here are those of the whole installation, and no others."""
    installation = {model.__name__ for model in apps.get_models() if model._meta.app_label in ("profiles", "tuner")} - {
        model.__name__ for model in scoped_models()}
    assert installation == {
        "StoredUpload",                                                              # bytes that projects share, shown nowhere
        "CeilingRun", "GpuEnvironment",                                              # facts of GPUs
        "BucketPolicy", "RevalidationPolicy", "Quarantine", "OperatorPackage", "OperatorAudit",     # what owners of it decide
        "GpuClockRule",
        "FleetKernel", "FleetSignature", "FleetContext", "FleetGpu", "FleetDay", "FleetHour", "FleetMonth",     # sums of all jobs
        "ProductionDay", "ProductionPoint", "ProductionRegression"}


@pytest.mark.parametrize("role", [pytest.param("viewer", marks=pytest.mark.deep_only), "owner"])
def test_nothing_of_another_project_is_shown(role: str, other: Filler, mine: Project, sign_in_mode: None) -> None:
    user = person(f"{role}-of-mine", mine, role)
    _, token = ApiToken.objects.create(user, name="mine", project=mine)
    page, program = Client(raise_request_exception=False), Client(raise_request_exception=False)
    page.force_login(user)
    token_header = {"authorization": f"Token {token}"}
    every = [(page, {}, f"?{ASKED}"), (program, token_header, f"?{ASKED}"), (page, {}, ""), (program, token_header, "")]
    asked = 0
    for path, holds in routes():
        for client, headers, query in every if DEEP else every[path.startswith("/api/"):][:1]:
            if client is not program or path.startswith("/api/"):
                answer = client.get(path + query, headers=headers)
                told = text_of(answer)
                asked += 1
                assert HIDDEN not in told, (path + query, answer.status_code)
                assert answer.status_code != 500, (path + query, told[:300])
                if holds and answer.status_code == 200 and str(PK) in path:
                    assert str(PK) not in told.replace(path, ""), path
    assert asked > 250


def test_the_same_addresses_show_it_to_its_own_people(other: Filler, mine: Project, sign_in_mode: None) -> None:
    """So that the test above cannot pass because nothing is there."""
    page = Client(raise_request_exception=False)
    page.force_login(person("theirs", PK, "viewer"))
    shown = (path for path, holds in routes() if HIDDEN in text_of(page.get(path)))
    enough = set(shown if DEEP else islice(shown, 26))
    assert len(enough) > 25, sorted(enough)


@pytest.mark.parametrize("role", ["owner"])         # who may most is stopped least
def test_nothing_of_another_project_is_changed(role: str, other: Filler, mine: Project, sign_in_mode: None) -> None:
    user = person(f"{role}-of-mine", mine, role)
    page = Client(raise_request_exception=False)
    page.force_login(user)
    before = everything(other)
    given: dict[str, Any] = {**dict.fromkeys(IDS, PK), **dict.fromkeys(NAMES, NAME), "other": PK, "id": PK,
                             "profiles": [PK], "ids": [PK], "state": "acknowledged", "text": "mine now"}
    for path, _ in routes():
        refused: Any = None
        for method in ("post", "put", "patch", "delete") if path.startswith("/api/") else ("post",) * DEEP:      # pages take forms
            if refused is not None and method.upper() not in refused.headers["Allow"] and not DEEP:
                continue
            answer = getattr(page, method)(path, given, content_type="application/json")
            assert answer.status_code != 500, (method, path, text_of(answer)[:300])
            assert HIDDEN not in text_of(answer), (method, path)
            refused = answer if answer.status_code == 405 else refused
        if not path.startswith("/api/") or DEEP:
            answer = page.post(path, {**given, "profiles": PK, "ids": PK})
            assert answer.status_code != 500, (path, text_of(answer)[:300])
            assert HIDDEN not in text_of(answer), path
    assert everything(other) == before


def test_a_field_that_names_a_row_asks_as_its_request_does() -> None:
    """A field is made once, in the scope that first imports its module: a query made there sees what that scope saw, for good."""
    assert get_resolver().url_patterns                                  # every module of the API is loaded
    made = [kind for kind in _below(serializers.Serializer) if not kind.__module__.startswith("rest_framework")]
    named = {(kind.__name__, name): field.queryset for kind in made for name, field in kind._declared_fields.items()
             if isinstance(field, serializers.PrimaryKeyRelatedField)}
    assert named and all(isinstance(queryset, models.Manager) for queryset in named.values()), named


def _below(kind: type) -> set[Any]:
    return {each for one in kind.__subclasses__() for each in (one, *_below(one))}


def test_a_token_does_not_outlive_the_membership(other: Filler, mine: Project, sign_in_mode: None, client: Client) -> None:
    user = person("leaver", mine, "owner")
    _, token = ApiToken.objects.create(user, name="mine", project=mine)
    assert client.get("/api/profiles/", headers={"authorization": f"Token {token}"}).status_code == 200
    assert client.get(f"/p/{NAME}/api/profiles/", headers={"authorization": f"Token {token}"}).status_code in (401, 403, 404)
    Membership.objects.filter(user=user).delete()
    assert client.get("/api/profiles/", headers={"authorization": f"Token {token}"}).status_code in (401, 403)


def test_a_link_without_a_project_leads_into_the_one_that_has_it(
        other: Filler, mine: Project, sign_in_mode: None, client: Client) -> None:
    user = person("both", mine, "viewer")
    Membership.objects.create(user=user, project_id=PK, role="owner")
    client.force_login(user)
    assert client.get("/profiles/").headers["location"] == "/p/mine/profiles/"
    assert client.get("/p/mine/profiles/").status_code == 200
    found = client.get(f"/p/mine/captures/{PK}/")
    assert (found.status_code, found.headers.get("location")) == (302, f"/p/{NAME}/captures/{PK}/")
    assert client.get(f"/p/mine/captures/{PK + 1}/").status_code == 404
    assert f'href="/p/{NAME}/profiles/"' in text_of(client.get(f"/p/{NAME}/captures/{PK}/"))


def test_a_role_counts_in_its_project_alone(other: Filler, mine: Project, sign_in_mode: None, client: Client) -> None:
    user = person("both", mine, "owner")
    Membership.objects.create(user=user, project_id=PK, role="viewer")
    client.force_login(user)
    made = client.post("/p/mine/projects/mine/members/", {"username": "both", "role": "owner"})
    assert made.status_code == 302
    assert client.post(f"/p/mine/projects/{NAME}/members/", {"username": "both", "role": "owner"}).status_code == 403
    assert client.post("/p/mine/projects/create/", {"name": "third"}).status_code == 403        # owners of the installation do
    assert Membership.objects.get(user=user, project=PK).role == "viewer"
