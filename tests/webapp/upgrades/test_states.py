"""A copied field is the field that Django would have made anew, for every field that the product has."""

from __future__ import annotations

from typing import Any

import pytest
from django.apps import apps
from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.migrations.state import ProjectState

from webapp.upgrades.states import copy_field, fields_copied


def written(field: Any) -> Any:
    """Return how a field is written in a migration, fields within it too."""
    _, path, arguments, named = field.deconstruct()
    return path, arguments, {name: written(value) if isinstance(value, models.Field) else value for name, value in named.items()}


@pytest.fixture(scope="module")
def state() -> ProjectState:
    return ProjectState.from_apps(apps)


def test_a_copy_is_written_as_the_one_made_anew(state: ProjectState) -> None:
    fields = [field for model in state.models.values() for field in model.fields.values()]
    assert len(fields) > 800
    for field in fields:
        copied, anew = copy_field(field), field.clone()
        assert type(copied) is type(anew) and copied is not field
        assert written(copied) == written(anew) == written(field)
        assert vars(copied).keys() - {"remote_field"} <= vars(field).keys()


def test_copies_are_in_the_order_in_which_they_were_made() -> None:
    late, early = models.TextField(), models.TextField()
    late.creation_counter, early.creation_counter = early.creation_counter, late.creation_counter
    assert early < late and copy_field(late) < copy_field(early)


def test_an_answer_kept_of_a_field_without_a_model_is_not_copied() -> None:
    field = models.ForeignKey("profiles.Profile", models.CASCADE)
    assert field.related_model == "profiles.Profile" and "related_model" in vars(field)
    copied = copy_field(field)
    assert "related_model" not in vars(copied)
    assert copied.remote_field is not field.remote_field and copied.remote_field.field is copied


def test_fields_within_a_field_are_made_anew() -> None:
    field = ArrayField(models.IntegerField())
    assert copy_field(field).base_field is not field.base_field


def test_models_rendered_from_copies_relate_to_each_other_alone(state: ProjectState) -> None:
    made_anew = models.Field.clone
    for model in state.models.values():
        for field in model.fields.values():
            _ = field.related_model if field.is_relation else None      # as Django asks before it renders
    with fields_copied():
        assert models.Field.clone is copy_field
        rendered = state.clone().apps
    assert models.Field.clone is made_anew
    plain = state.clone().apps
    relations = 0
    for model in rendered.get_models(include_auto_created=True):
        other = plain.get_model(model._meta.app_label, model._meta.model_name)
        assert [field.name for field in model._meta.get_fields(include_hidden=True)] == \
               [field.name for field in other._meta.get_fields(include_hidden=True)]
        for field in model._meta.get_fields(include_hidden=True):
            if field.is_relation and field.related_model is not None:
                assert field.related_model is rendered.get_model(field.related_model._meta.label)
                relations += 1
    assert relations > 400
