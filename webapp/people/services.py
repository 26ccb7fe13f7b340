"""What changes people: roles, deactivation, sessions, invitations, second factors."""

from __future__ import annotations

import logging
import secrets
from collections.abc import Iterable, Mapping
from datetime import timedelta
from typing import Any

from allauth.mfa.models import Authenticator
from allauth.usersessions.models import UserSession
from django.contrib.auth import SESSION_KEY, get_user_model
from django.contrib.auth.models import Group
from django.contrib.auth.password_validation import validate_password
from django.contrib.auth.tokens import default_token_generator
from django.contrib.sessions.models import Session
from django.core.exceptions import ValidationError
from django.db import IntegrityError, transaction
from django.utils import timezone
from django.utils.encoding import force_bytes
from django.utils.http import urlsafe_base64_encode

from profiles.base.refused import Refused
from webapp.audit import services as audit
from webapp.changes import connections_renew, session_topic
from webapp.models import ApiToken, Invitation, Membership, Project
from webapp.roles import ROLES, owner_exists, role_of, role_set
from workers import jobs
from workers.secret import digest_of

log = logging.getLogger(__name__)
PREFIX = "inv_"
MOST_DAYS = 60
EVERY_PROJECT = "*"         # in place of a project's slug: a role in the whole installation, in projects made later too


def may_change(actor: Any, person: Any) -> bool:
    """Return whether somebody may change this person: only superusers change a superuser, or they became one that way."""
    return bool(actor.is_superuser or not person.is_superuser)


def person_role(person: Any, role: str) -> None:
    """Give a role in the whole installation; "": none, memberships alone count. Raises Refused."""
    if role and role not in ROLES:
        raise Refused({"role": f"a role is one of {', '.join(ROLES)}"})
    with transaction.atomic():
        _role(person, role)
        _keep_an_owner("role")


def person_active(person: Any, active: bool) -> None:
    """Let a person sign in, or not: then their sessions end, and their tokens do not work. Raises Refused."""
    with transaction.atomic():
        person.is_active = active
        person.save(update_fields=["is_active"])
        _keep_an_owner("is_active")
    if not active:
        sessions_end(person)


def _role(person: Any, role: str) -> None:
    if role:
        role_set(person, role)
    else:
        person.groups.remove(*Group.objects.filter(name__in=ROLES))


def _keep_an_owner(field: str) -> None:
    if not owner_exists():
        raise Refused({field: "somebody must remain who can sign in and manage people"})


def grants_apply(person: Any, role: str, projects: Mapping[str, str], managed: Iterable[str]) -> None:
    """Give a person what the groups of their provider give; in `managed` projects nothing else counts."""
    if role_of(person) != role:
        _role(person, role)
    known = {project.slug: project for project in Project.objects.filter(slug__in={*projects, *managed})}
    for slug in sorted({*projects, *managed} - set(known)):
        log.warning("single sign-on: RIDGEPOINT_OIDC_ROLES names the project %r, and there is none", slug)
    have = {each.project_id: each for each in Membership.objects.filter(user=person, project__in=known.values())}
    for slug, project in known.items():
        mine, new_role = have.get(project.pk), projects.get(slug, "")
        if mine is None and new_role:
            Membership.objects.create(project=project, user=person, role=new_role)
        elif mine is not None and not new_role:
            mine.delete()
            ApiToken.objects.filter(project=project, user=person).delete()
        elif mine is not None and mine.role != new_role:
            mine.role = new_role
            mine.save()


# ---- sessions ----

def session_end(session: UserSession) -> None:
    """End one session; its connections close."""
    key, person = session.session_key, session.user
    session.end()
    audit.record("ended", "session", person.get_username(), person.pk)
    transaction.on_commit(lambda: jobs.publish(session_topic(key), "signed-out", {}), robust=True)


def sessions_end(person: Any, but: str | None = None) -> int:
    """End a person's sessions, but the one of this key; also those from before sessions were listed. Return how many."""
    ended = 0
    for row in Session.objects.filter(expire_date__gt=timezone.now()).iterator():
        if row.session_key != but and str(row.get_decoded().get(SESSION_KEY)) == str(person.pk):
            row.delete()
            ended += 1
    UserSession.objects.filter(user=person).exclude(session_key=but or "").delete()
    if ended:
        audit.record("ended", "session", person.get_username(), person.pk, {"sessions": [ended, 0]})
    connections_renew(person.pk)
    return ended


# ---- invitations ----

def invite(by: Any, *, role: str, project: Project | None, email: str = "", days: int = 7) -> tuple[Invitation, str]:
    """Make an invitation into a project, or with None into the installation: every project, those made later too.

    Returns it and its secret, which is stored nowhere. Raises Refused.
    """
    if role not in ROLES:
        raise Refused({"role": f"a role is one of {', '.join(ROLES)}"})
    if not 1 <= days <= MOST_DAYS:
        raise Refused({"days": f"1 to {MOST_DAYS} days"})
    secret = PREFIX + secrets.token_urlsafe(24)
    row = Invitation.objects.create(digest=digest_of(secret), email=email.strip()[:254], role=role, invited_to=project,
                                    made_by=by if getattr(by, "pk", None) else None, expires=timezone.now() + timedelta(days=days))
    return row, secret


def invited_to(slug: str, here: int | None, projects: Iterable[int] | None = None) -> Project | None:
    """Return the project that an invitation is into: that of `slug`, without one that of id `here`; None for `EVERY_PROJECT`.

    `projects`: ids of those that may be named, None for all. Raises Refused.
    """
    if slug == EVERY_PROJECT:
        return None
    rows = Project.objects.all() if projects is None else Project.objects.filter(pk__in=projects)
    project = rows.filter(**({"slug": slug} if slug else {"pk": here})).first()
    if project is None:
        raise Refused({"project": f"there is no project {slug}" if slug else
                            f"say which project, or “{EVERY_PROJECT}” for a role in the whole installation"})
    return project


def invitation_of(secret: str) -> Invitation | None:
    """Return the invitation of a link; None where there is none, or it was used, or its time is over."""
    return Invitation.objects.select_related("invited_to").filter(
        digest=digest_of(secret), used=None, expires__gt=timezone.now()).first()


def invitation_accept(secret: str, *, username: str, password: str) -> Any:
    """Make the account of an invitation, and use it up. Raises Refused."""
    people = get_user_model()
    person: Any = people(username=username.strip())
    try:
        person.clean_fields(exclude=["password"])
        validate_password(password, person)
    except ValidationError as error:
        field = "username" if hasattr(error, "error_dict") else "password"
        raise Refused({field: " ".join(error.messages)}) from error
    try:
        with transaction.atomic():
            invitation = Invitation.objects.select_for_update().filter(
                digest=digest_of(secret), used=None, expires__gt=timezone.now()).first()
            if invitation is None:
                raise Refused({"": "this invitation was used, revoked, or its time is over"})
            person.email = invitation.email
            person.set_password(password)
            person.save()
            if invitation.invited_to_id is None:
                role_set(person, invitation.role)
            else:
                Membership.objects.create(project_id=invitation.invited_to_id, user=person, role=invitation.role)
            invitation.used, invitation.used_by = timezone.now(), person
            invitation.save()
    except IntegrityError:
        raise Refused({"username": f"somebody is called “{username}” already"}) from None
    return person


# ---- what an owner does for somebody who is locked out ----

def reset_path(person: Any) -> tuple[str, str]:
    """Return what a link for a new password is made of; the link holds once and for PASSWORD_RESET_TIMEOUT."""
    audit.record("made", "password link", person.get_username(), person.pk)
    return urlsafe_base64_encode(force_bytes(person.pk)), default_token_generator.make_token(person)


def second_factor_off(person: Any) -> None:
    """Take a person's second factor and recovery codes away: the phone is lost."""
    for authenticator in Authenticator.objects.filter(user=person):
        authenticator.delete()
