"""What changes projects and who works in them."""

from __future__ import annotations

from typing import Any

from django.contrib.auth import get_user_model
from django.db import IntegrityError, transaction
from django.utils.text import slugify

from profiles.base.refused import Refused
from webapp.models import ApiToken, Membership, Project
from webapp.roles import ROLES
from workers.scope import FIRST_PROJECT


def first_project_ensure(**signal: Any) -> None:
    """Make the project of everything that names none (post_migrate receiver: a database that was emptied gets it again)."""
    Project.objects.get_or_create(pk=FIRST_PROJECT, defaults={"slug": "main", "name": "Main"})


def project_create(name: str) -> Project:
    """Make a project. Raises Refused."""
    name = name.strip()
    slug = slugify(name)[:40]
    if not slug:
        raise Refused({"name": "a name has letters or digits"})
    try:
        with transaction.atomic():
            return Project.objects.create(name=name[:80], slug=slug)
    except IntegrityError:
        raise Refused({"name": f"there is a project “{name}” already"}) from None


def member_set(project: Project, username: str, role: str) -> Membership:
    """Give a person a role in a project. Raises Refused."""
    if role not in ROLES:
        raise Refused({"role": f"a role is one of {', '.join(ROLES)}"})
    person = get_user_model().objects.filter(username=username.strip(), is_active=True).first()
    if person is None:
        raise Refused({"username": f"nobody here is called “{username}”"})
    return Membership.objects.update_or_create(project=project, user=person, defaults={"role": role})[0]


def member_remove(project: Project, user_id: int) -> None:
    """Take a person out of a project; their tokens of it end."""
    with transaction.atomic():
        Membership.objects.filter(project=project, user=user_id).delete()
        ApiToken.objects.filter(project=project, user=user_id).delete()
