"""Who is here, how they sign in, and where they are signed in."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from allauth.mfa.models import Authenticator
from allauth.socialaccount.models import SocialAccount
from allauth.usersessions.models import UserSession
from django.contrib.auth import get_user_model
from django.db.models import Count, Q, QuerySet
from django.utils import timezone

from webapp.models import ApiToken, Invitation
from webapp.roles import OWNER, ROLES

MOST = 1000


@dataclass(frozen=True)
class Person:
    """One line of the list. `role`: in the whole installation; `projects`: (slug, role)."""

    pk: int
    name: str
    email: str
    role: str
    superuser: bool
    active: bool
    last_sign_in: datetime | None
    ways: tuple[str, ...]           # "password", "single sign-on"
    second_factor: bool
    tokens: int
    projects: Sequence[tuple[str, str]] = field(default_factory=tuple)


def people(word: str = "", pks: Sequence[int] | None = None) -> list[Person]:
    """Return people by name, at most MOST; a fixed number of queries."""
    rows = people_rows(word)
    return described((rows.filter(pk__in=pks) if pks is not None else rows)[:MOST])


def people_rows(word: str = "") -> QuerySet[Any]:
    """Return accounts by name with what `described` asks of them."""
    rows: QuerySet[Any] = get_user_model().objects.order_by("username").annotate(tokens=Count("auth_token_set", distinct=True))
    if word:
        rows = rows.filter(Q(username__icontains=word) | Q(email__icontains=word))
    return rows.prefetch_related("groups", "memberships__project")


def described(rows: Iterable[Any]) -> list[Person]:
    """Return a line of each of `people_rows`; two queries."""
    factors = set(Authenticator.objects.filter(type=Authenticator.Type.TOTP).values_list("user", flat=True))
    by_provider = set(SocialAccount.objects.values_list("user", flat=True))
    return [_person(row, row.pk in factors, row.pk in by_provider) for row in rows]


def _person(row: Any, second_factor: bool, by_provider: bool) -> Person:
    groups = {group.name for group in row.groups.all()}
    role = next((role for role in reversed(list(ROLES)) if role in groups), "")
    ways = (*(("password",) if row.has_usable_password() else ()), *(("single sign-on",) if by_provider else ()))
    return Person(row.pk, row.get_username(), row.email, role or (OWNER if row.is_superuser else ""), row.is_superuser,
                  row.is_active, row.last_login, ways, second_factor, row.tokens,
                  tuple((membership.project.slug, membership.role) for membership in row.memberships.all()))


def sessions(person: Any) -> list[UserSession]:
    """Return where a person is signed in, the newest first; sessions that have ended are forgotten."""
    return sorted(UserSession.objects.purge_and_list(person), key=lambda each: each.created_at, reverse=True)


def tokens(person: Any) -> QuerySet[ApiToken]:
    """Return a person's tokens in every project."""
    return ApiToken.objects.filter(user=person.pk).select_related("project")


def invitations() -> QuerySet[Invitation]:
    """Return invitations that can still be accepted."""
    return Invitation.objects.filter(used=None, expires__gt=timezone.now()).select_related("invited_to", "made_by")
