"""Who is told of something new in a thread: a line in their inbox, and a mail where they want one."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable
from datetime import timedelta
from smtplib import SMTPException
from typing import Any

from django.conf import settings
from django.core.mail import EmailMessage
from django.db import transaction
from django.db.models import F, Q
from django.utils import timezone

from tuner.gate.channels.kinds.mail import KEPT_IN_FILES
from tuner.gate.channels.sending_services import WAITS
from webapp.models import Comment, Follow, Notice, Project, TalkPreference, Thread
from webapp.threads.people import people_of
from workers import jobs
from workers.scope import EVERYTHING, current, project_of, within

log = logging.getLogger(__name__)
GATHERED = timedelta(seconds=30)            # so long a mail waits for more of the same person
LEASE = timedelta(minutes=3)
KEPT_FOR = timedelta(days=180)              # read lines of an inbox
MOST_LINES = 50                             # of one mail
OWN = {Notice.Why.MENTION, Notice.Why.ASSIGNED}
QUEUE, TASK = "messages", "talk"


def write(thread: Thread, comment: Comment, *, mentioned: Collection[Any] = (), assigned: Any = None, by: Any = None,
          followers: bool = True, why: str = "") -> int:
    """Write the lines of a comment or change; return how many. Who did it is not told; who left the thread only when named."""
    whys: dict[int, str] = {}
    if followers:
        usual = why or (Notice.Why.CHANGE if comment.event else Notice.Why.COMMENT)
        whys = dict.fromkeys(_followers(thread), str(usual))
    whys |= {person.pk: str(Notice.Why.MENTION) for person in mentioned}
    if assigned is not None:
        whys[assigned.pk] = str(Notice.Why.ASSIGNED)
    whys.pop(getattr(by, "pk", 0), None)
    people = list(people_of(thread.project_id).filter(pk__in=whys))
    if not people:
        return 0
    mail_by_user = dict(TalkPreference.objects.filter(user__in=people).values_list("user_id", "mail"))
    due = timezone.now() + GATHERED
    rows = [Notice(user=person, thread=thread, comment=comment, why=whys[person.pk]) for person in people]
    for row, person in zip(rows, people, strict=True):
        if person.email and _is_mailed(mail_by_user.get(person.pk, TalkPreference.Mail.MINE), row.why):
            row.mail, row.due = "waiting", due
    Notice.objects.bulk_create(rows, ignore_conflicts=True)
    return len(rows)


def _followers(thread: Thread) -> set[int]:
    condition = Q(kind=Follow.Kind.THREAD, key=str(thread.pk)) | Q(kind=Follow.Kind.PROJECT)
    if thread.kernel:
        condition |= Q(kind=Follow.Kind.KERNEL, key=thread.kernel)
    if thread.suite:
        condition |= Q(kind=Follow.Kind.SUITE, key=thread.suite)
    follows = Follow._base_manager.filter(condition, project=thread.project_id).values_list("user_id", "kind", "on")
    left = {user for user, kind, on in follows if kind == Follow.Kind.THREAD and not on}
    return {user for user, _, on in follows if on} - left - {None}


def _is_mailed(wanted: str, why: str) -> bool:
    return wanted == TalkPreference.Mail.ALL or (wanted == TalkPreference.Mail.MINE and why in OWN)


def mark_read(user: Any, **which: Any) -> int:
    """Mark a person's lines as read, all or those of a thread; return how many. What was read needs no mail any more."""
    unread = Notice.objects.filter(user=user, read=None, **which)
    unread.filter(mail="waiting").update(mail="", due=None)
    return unread.update(read=timezone.now())


def unread_count(user: Any) -> int:
    """Return how many lines of a person's inbox are unread in the current project: one query over a partial index."""
    return Notice.objects.filter(user=user, read=None).count()


# ---- mails ----

def wake_due(waiting: Collection[int] = ()) -> list[int]:
    """Wake a worker for mails that are due, where no entry of the queue does; return the id of the first."""
    first = Notice._base_manager.filter(mail="waiting", due__lte=timezone.now()).values_list("pk", flat=True).order_by("due")[:1]
    ids = [] if waiting else list(first)
    for pk in ids:
        jobs.enqueue(QUEUE, TASK, pk)
    return ids


def send_due() -> int:
    """Send the mails that are due, one a person and project with all their lines; return how many."""
    sent = 0
    with within(EVERYTHING):
        while (group := _claim()) is not None:
            _send(group)
            sent += 1
        Notice.objects.filter(read__lt=timezone.now() - KEPT_FOR).delete()
    return sent


@transaction.atomic
def _claim() -> list[Notice] | None:
    """Return the lines of one person in one project, their next try moved ahead: a worker that dies leaves them to come due."""
    now = timezone.now()
    waiting = Notice.objects.filter(mail="waiting")
    first = (waiting.filter(due__lte=now).select_related("thread").select_for_update(skip_locked=True, of=("self",))
             .order_by("due").first())
    if first is None:
        return None
    rows = list(waiting.filter(user=first.user_id, thread__project=first.thread.project_id, due__lte=now + GATHERED)
                .select_for_update(skip_locked=True, of=("self",))
                .select_related("thread", "comment", "user").order_by("created", "pk")[:MOST_LINES])
    Notice.objects.filter(pk__in=[row.pk for row in rows]).update(due=now + LEASE, tries=F("tries") + 1)
    return rows


def _send(rows: list[Notice]) -> None:
    outcome: dict[str, Any]
    try:
        _mail(rows).send()
        outcome = {"mail": "kept" if settings.EMAIL_BACKEND == KEPT_IN_FILES else "sent", "due": None, "error": ""}
    except (SMTPException, OSError, ValueError) as error:
        tries = rows[0].tries
        again = tries < len(WAITS)
        outcome = {"mail": "waiting" if again else "failed", "error": f"{type(error).__name__}: {error}"[:300],
                   "due": timezone.now() + WAITS[tries] if again else None}
        log.warning("mail of notices %s was not sent: %s", rows[0].pk, error)
    Notice.objects.filter(pk__in=[row.pk for row in rows]).update(**outcome)


def _mail(rows: list[Notice]) -> EmailMessage:
    slug = Project.objects.get(pk=project_of(rows[0]) or 0).slug if Project.objects.count() > 1 else ""
    first = rows[0].thread.title
    subject = first if len({row.thread_id for row in rows}) == 1 else f"{first} and more"
    body = "\n\n".join(_lines(rows, slug)) + f"\n\nWhat is mailed: {address('/inbox/', slug)}#mail\n"
    return EmailMessage(" ".join(subject.split())[:180], body, to=[rows[0].user.email] if rows[0].user else [])


def _lines(rows: Iterable[Notice], slug: str) -> Iterable[str]:
    for row in rows:
        comment = row.comment
        who = (comment.author_name if comment else "") or "Ridgepoint"
        text = "" if comment is None else comment.event or comment.text[:1000]
        yield f"{row.thread.title}\n{who}: {text}\n{address(f'/threads/{row.thread_id}/', slug)}"


def project_slug() -> str:
    """Return the slug of the current project; "" where there is one alone."""
    return Project.objects.get(pk=current().project).slug if Project.objects.count() > 1 else ""


def address(path: str, slug: str = "") -> str:
    """Return the whole address of a page in a project, as a mail says it."""
    return f"{settings.PUBLIC_URL}{f'/p/{slug}' if slug else ''}{path}"
