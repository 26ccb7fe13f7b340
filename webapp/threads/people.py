"""Who may be mentioned, assigned and told: the people of a project."""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.contrib.auth import get_user_model
from django.db.models import Q, QuerySet

from webapp import roles
from webapp.accounts import LOCAL_USER
from workers.scope import current


def people_of(project: int | None = None) -> QuerySet[Any]:
    """Return the active people with a role in a project, the current one by default, by name."""
    number = current().project if project is None else project
    condition = Q(memberships__project=number) | Q(groups__name__in=roles.ROLES) | Q(is_superuser=True)
    people = get_user_model().objects.filter(condition, is_active=True).distinct().order_by("username")
    return people if settings.LOCAL_MODE else people.exclude(username=LOCAL_USER)


def named(names: Any) -> dict[str, Any]:
    """Return people of the current project by name."""
    return {person.get_username(): person for person in people_of().filter(username__in=list(names))}
