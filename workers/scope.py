"""Whose rows code sees, and where new ones go: the one place where projects are kept apart.

A request sees the project that it works in, a job of a worker that of its row; commands and the workers' housekeeping see
everything. Rows of a project, and rows that hang from one (`project_path`), are reached through a manager that leaves the others
out, so a page or route needs no check of its own. Imports nothing of ours, as `workers.jobs`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, ClassVar, TypeVar

from django.apps import apps
from django.db import models

FIRST_PROJECT = 1           # made by a migration; all rows of an installation that never made another belong to it
Row = TypeVar("Row", bound=models.Model)


@dataclass(frozen=True)
class Scope:
    """`sees`: the project whose rows are seen, None for those of all; `project`: where new rows go; `fleet`: whether the sums of
    all projects' jobs are seen as well; `profile`: of the project this one alone and what hangs from it, for who has a link."""

    sees: int | None = None
    project: int = FIRST_PROJECT
    fleet: bool = True
    profile: int | None = None

    @property
    def is_everything(self) -> bool:
        """Return whether no row is left out."""
        return self.sees is None


EVERYTHING = Scope()
NOTHING = Scope(sees=0, fleet=False)      # no project has this id: who is not signed in yet
_scope: ContextVar[Scope] = ContextVar("scope", default=EVERYTHING)


def current() -> Scope:
    """Return the scope of the code that runs."""
    return _scope.get()


def enter(scope: Scope) -> None:
    """Set the scope for the rest of this context: a request's."""
    _scope.set(scope)


def account_name(person: Any) -> str | None:
    """Return the name of an account; None for nobody, and where only a profile is seen: who has a link reads of no account."""
    return None if person is None or current().profile is not None else str(person.get_username())


@contextmanager
def within(scope: Scope | int) -> Iterator[None]:
    """Work in a scope, or in the project of this id, meanwhile."""
    mark = _scope.set(Scope(scope, scope) if isinstance(scope, int) else scope)
    try:
        yield
    finally:
        _scope.reset(mark)


def project_of(row: models.Model) -> int | None:
    """Return the project that a row belongs to; None for rows of the whole installation."""
    path = getattr(row, "project_path", "")
    if not path:
        return None
    owner: Any = row
    *way, last = path.split("__")
    for name in way:
        owner = getattr(owner, name)
    project_id: int | None = getattr(owner, f"{last}_id") if owner is not None else None
    return project_id


def projects_of_rows(model: type[models.Model], row_ids: Iterable[int]) -> dict[int, int | None]:
    """Return the project of each of these rows that there is, by its id, as `project_of` does; one query."""
    path = getattr(model, "project_path", "")
    rows = model._base_manager.filter(pk__in=list(row_ids))
    if not path:
        return dict.fromkeys(rows.values_list("pk", flat=True))
    return dict(rows.values_list("pk", path))


def scope_of_row(model: type[models.Model], row_id: object) -> Scope:
    """Return the scope of work on one row: its project. Everything for rows of the whole installation, and where it is gone."""
    row = model._base_manager.filter(pk=row_id).first()
    project = None if row is None else project_of(row)
    return EVERYTHING if project is None or len(_projects()) == 1 else Scope(project, project)


def each_project() -> Iterator[Scope]:
    """Enter every project in turn, for work over all rows that compares them; where one is entered already, or is the only
    one, nothing changes."""
    projects = _projects()
    if not current().is_everything or len(projects) == 1:
        yield current()
        return
    for project in projects:
        with within(project):
            yield current()


def _projects() -> list[int]:
    return list(apps.get_model("webapp", "Project")._base_manager.order_by("pk").values_list("pk", flat=True))


class InProject(models.Manager[Row]):
    """Rows that the current scope sees."""

    def get_queryset(self) -> models.QuerySet[Row]:
        """Return them. What hangs from a project's row is found by a subquery: locks and updates touch its own table alone."""
        rows, sees = super().get_queryset(), current().sees
        if sees is None:
            return rows
        path = str(getattr(self.model, "project_path"))  # noqa: B009    # Row has no such attribute
        if (profile := current().profile) is not None:
            return _of_profile(rows, path, profile)
        first, _, rest = path.partition("__")
        if not rest:
            return rows.filter(**{first: sees})
        owner: Any = self.model._meta.get_field(first).related_model
        return rows.filter(**{f"{first}__in": owner._base_manager.filter(**{rest: sees}).values("pk")})


def _of_profile(rows: models.QuerySet[Row], path: str, profile: int) -> models.QuerySet[Row]:
    if rows.model._meta.label == "profiles.Profile":
        return rows.filter(pk=profile)
    way, _, last = path.rpartition("__")
    return rows.filter(**{way: profile}) if last == "project" and way.split("__")[-1] == "profile" else rows.none()


class FleetWide(models.Manager[Row]):
    """Rows about the jobs of all projects: seen with a role in the whole installation."""

    def get_queryset(self) -> models.QuerySet[Row]:
        rows = super().get_queryset()
        return rows if current().fleet else rows.none()


class ProjectKey(models.ForeignKey[Any, Any]):
    """The project of a row: by default the one that is worked in. In migrations a plain key with the first project as default."""

    def __init__(self, **options: Any) -> None:
        options = {"on_delete": models.PROTECT, "related_name": "+", **options, "to": "webapp.Project",
                   "default": FIRST_PROJECT, "db_default": FIRST_PROJECT}       # the second: for code of the release before
        super().__init__(**options)

    def get_default(self) -> int:
        return current().project

    def deconstruct(self) -> Any:
        name, _, args, options = super().deconstruct()
        return name, "django.db.models.ForeignKey", args, options


class OfProject(models.Model):
    """A row that belongs to a project itself."""

    project = ProjectKey()
    project_path: ClassVar[str] = "project"
    objects = InProject()

    class Meta:
        abstract = True

    def validate_constraints(self, exclude: Collection[str] | None = None) -> None:
        """Check what is once in a project as well: no form has the project as a field."""
        super().validate_constraints(exclude=set(exclude or ()) - {"project"})


class BelowProject(models.Model):
    """A row that hangs from one of a project: `project_path` names the way to it."""

    project_path: ClassVar[str]
    objects = InProject()

    class Meta:
        abstract = True
