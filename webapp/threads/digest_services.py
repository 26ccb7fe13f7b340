"""Sends the digest of the week that ended, once a project: to channels that ask for it and to people by mail."""

from __future__ import annotations

import logging
from collections.abc import Collection
from datetime import timedelta
from smtplib import SMTPException
from typing import TYPE_CHECKING, Any

from django.core.mail import EmailMessage
from django.db import transaction
from django.template.loader import render_to_string
from django.utils import timezone

from tuner.gate.channels.services import DIGEST, write_digest_messages
from webapp.models import DigestSent, Project
from webapp.threads.notices import QUEUE, TASK, address
from webapp.threads.people import people_of
from webapp.threads.weeks import week_of
from workers import jobs
from workers.scope import current, each_project

if TYPE_CHECKING:
    from webapp.threads.digest import Digest

log = logging.getLogger(__name__)
AFTER = timedelta(hours=6)          # the Monday
_LOOK_KEY, _LOOK_S = "ridgepoint:digest", 600


def week_due() -> str:
    """Return the last week that ended AFTER ago."""
    return week_of((timezone.localtime() - AFTER - timedelta(days=7)).date())


def wake_due(waiting: Collection[int] = ()) -> list[int]:
    """Wake a worker where a project's digest is due; looked at every ten minutes."""
    if waiting or not jobs.take_turn(_LOOK_KEY, 1000 * _LOOK_S):
        return []
    projects = Project.objects.exclude(pk__in=DigestSent._base_manager.filter(week=week_due()).values("project"))
    ids = list(projects.values_list("pk", flat=True)[:1])
    for pk in ids:
        jobs.enqueue(QUEUE, TASK, pk)
    return ids


def send_due() -> int:
    """Send what is due in every project; return how many digests."""
    week, sent = week_due(), 0
    for _ in each_project():
        if not DigestSent.objects.filter(week=week).exists():
            sent += bool(send(week))
    return sent


def send(week: str) -> int:
    """Send a week's digest of the current project, whoever had it before; return to how many. Nothing where nothing happened."""
    from webapp.threads.digest import digest  # with the pages' selectors: the sweep needs none of them

    one = digest(week)
    slug = project_slug()
    told = 0
    with transaction.atomic():
        row, _ = DigestSent.objects.select_for_update().get_or_create(week=week)
        if one.happened:
            told = write_digest_messages(f"digest {week}", message(one, slug))
    if one.happened:
        told += _mail_people(one, slug)
    DigestSent.objects.filter(pk=row.pk).update(told=row.told + told)
    return told


def message(one: Digest, slug: str = "") -> dict[str, Any]:
    """Return the body of a channel's message: what happened, with addresses."""
    from webapp.threads.digest import digest_json

    page = address(f"/digest/?week={one.week}", slug)
    return {"event": DIGEST, "subject": one.subject, "text": f"{one.subject}. {page}", "mail": text_of(one, slug),
            "digest": {**digest_json(one), "page": page}}


def text_of(one: Digest, slug: str = "") -> str:
    """Return a digest as plain text, as mails and the command show it."""
    return render_to_string("threads/digest_mail.txt", {"digest": one, "page": address(f"/digest/?week={one.week}", slug)})


def project_slug() -> str:
    """Return the slug of the current project; "" where there is one alone."""
    return Project.objects.get(pk=current().project).slug if Project.objects.count() > 1 else ""


def _mail_people(one: Digest, slug: str) -> int:
    sent = 0
    for person in people_of().filter(talk_preference__digest=True).exclude(email=""):
        try:
            sent += EmailMessage(one.subject, text_of(one, slug), to=[person.email]).send()
        except (SMTPException, OSError, ValueError) as error:
            log.warning("digest %s was not mailed to %s: %s", one.week, person.pk, error)
    return sent


