"""Commands work in the project that `--project` names."""

from __future__ import annotations

import json
from io import StringIO
from typing import Any

import pytest
from django.core.management import call_command, load_command_class
from django.core.management.base import CommandError

from tuner.models import Notified
from webapp.management.in_project import ProjectCommand
from webapp.models import Project
from workers.scope import current, within

pytestmark = pytest.mark.django_db


@pytest.fixture
def other() -> Project:
    return Project.objects.create(slug="other", name="Other")


def said(*arguments: str, **options: Any) -> Any:
    out = StringIO()
    call_command(*arguments, "--json", stdout=out, **options)
    return json.loads(out.getvalue())


def test_new_rows_go_there_and_no_others_are_seen(other: Project) -> None:
    there = said("notified", "--project", "other", "add", "email", "there@team.example")
    first = said("notified", "add", "email", "first@team.example")
    assert Notified._base_manager.get(pk=there["id"]).project_id == other.pk
    assert Notified._base_manager.get(pk=first["id"]).project_id != other.pk
    assert [row["address"] for row in said("notified", "list", "--project", "other")] == ["there@team.example"]
    assert {row["address"] for row in said("notified", "list")} == {"there@team.example", "first@team.example"}
    with pytest.raises(CommandError):
        said("notified", "remove", str(first["id"]), project="other")
    assert Notified._base_manager.filter(pk=first["id"]).exists()


def test_a_project_that_is_not_there_is_named(other: Project) -> None:
    with pytest.raises(CommandError, match="there is no project elsewhere"):
        said("notified", "list", project="elsewhere")


def test_without_a_name_a_command_stays_where_its_caller_is(other: Project) -> None:
    command = load_command_class("tuner", "builds")
    assert isinstance(command, ProjectCommand)
    with within(other.pk):
        call_command("builds")
        assert current().project == other.pk
