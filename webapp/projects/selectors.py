"""Which projects a person may open, and with which role."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from django.contrib.auth import get_user_model
from django.db.models import FilteredRelation, Q, QuerySet

from webapp import roles
from webapp.models import Membership, Project
from workers.scope import EVERYTHING, FIRST_PROJECT, NOTHING, Scope


@dataclass(frozen=True)
class Seat:
    """A project that a person may open. `role` is that of their membership, "" where their role in the installation counts."""

    pk: int
    slug: str
    name: str
    role: str = ""
    everywhere: bool = False        # by a role in the whole installation

    @property
    def scope(self) -> Scope:
        return Scope(self.pk, self.pk, self.everywhere)


@dataclass(frozen=True)
class Access:
    """What a person may open. `alone`: the installation has one project, and nothing has to be told apart."""

    seats: tuple[Seat, ...] = ()
    alone: bool = False
    everywhere: bool = False        # by a role in the whole installation

    def scope_of(self, seat: Seat | None) -> Scope:
        """Return the scope of a request about this seat's project."""
        if self.alone:
            return EVERYTHING
        return NOTHING if seat is None else seat.scope

    def seat(self, slug: str) -> Seat | None:
        """Return the seat of a project by its slug; None where the person has none there."""
        return next((seat for seat in self.seats if seat.slug == slug), None)

    def seat_of(self, project: int) -> Seat | None:
        """Return the seat of a project by its id."""
        return next((seat for seat in self.seats if seat.pk == project), None)


def access_of(user: Any) -> Access:
    """Return the projects of a person: all with a role in the installation, else those of their memberships. One query, or two."""
    if user is None or not user.is_authenticated or not user.is_active:
        return Access(alone=not Project.objects.exclude(pk=FIRST_PROJECT).exists())
    rows = list(Project.objects.annotate(mine=FilteredRelation("memberships", condition=Q(memberships__user=user.pk)))
                .order_by("name").values_list("pk", "slug", "name", "mine__role"))
    alone = len(rows) == 1
    everywhere = bool(user.is_superuser) or (not alone and user.groups.filter(name__in=roles.ROLES).exists())
    if alone or everywhere:
        return Access(tuple(Seat(*row[:3], row[3] or "", everywhere=True) for row in rows), alone, everywhere=True)
    return Access(tuple(Seat(*row) for row in rows if row[3]), alone, everywhere)


def members(project: Project) -> QuerySet[Membership]:
    """Return who works in a project by a membership."""
    return project.memberships.select_related("user")


def project_rows(seats: Sequence[Seat]) -> list[Project]:
    """Return the rows of these projects."""
    return list(Project.objects.filter(pk__in=[seat.pk for seat in seats]).prefetch_related("memberships"))


def people_everywhere() -> list[tuple[str, str]]:
    """Return (name, role) of people whose role counts in every project."""
    people = get_user_model().objects.filter(is_active=True).filter(Q(groups__name__in=roles.ROLES) | Q(is_superuser=True))
    return [(person.get_username(), roles.role_of(person) or roles.OWNER) for person in people.distinct().order_by("username")]
