"""What people do in threads: write, edit, delete, assign, decide, follow; followers and open pages are told."""

from __future__ import annotations

from datetime import date, timedelta
from typing import Any

from django.core.exceptions import PermissionDenied
from django.db import transaction
from django.utils import timezone

from profiles.base.refused import Refused
from webapp.models import Comment, Follow, Notice, Thread
from webapp.threads import notices, subjects, texts
from webapp.threads.people import named, people_of
from workers import jobs

MOST_COMMENTS = 5_000           # of one thread, events included
MOST_A_MINUTE = 20              # comments of one person
MOST_EDITS = 100                # moments that are kept
MOST_FOLLOWS = 1_000            # of one person in one project


def thread_of(subject: subjects.Subject) -> Thread | None:
    """Return the thread of a subject; None before anybody wrote."""
    return Thread.objects.filter(kind=subject.kind, key=subject.key).select_related("assignee").first()


def thread_ensure(subject: subjects.Subject) -> Thread:
    """Return the thread of a subject, made where nobody wrote yet; its title and page are those of today."""
    kind = subjects.KINDS[subject.kind]
    state = (kind.state(subject.key) if kind.state else None) or str(Thread.Status.OPEN)
    thread, is_new = Thread.objects.get_or_create(kind=subject.kind, key=subject.key, defaults={
        "title": subject.title, "path": subject.path, "kernel": subject.kernel, "suite": subject.suite, "status": state,
        "is_open": state not in kind.ended})
    if not is_new and (thread.title, thread.path) != (subject.title, subject.path):
        thread.title, thread.path = subject.title, subject.path
        thread.save(update_fields=["title", "path"])
    if is_new:
        transaction.on_commit(lambda: jobs.publish("home", "thread", {"id": thread.pk}), robust=True)
    return thread


@transaction.atomic
def comment_add(thread: Thread, text: str, *, by: Any) -> Comment:
    """Write a comment; who writes or is mentioned follows from then on. Raises Refused."""
    text = _checked(text)
    now = timezone.now()                # what is later than now was written before the clock was set back
    recent = Comment.objects.filter(author=by, event="", created__gt=now - timedelta(minutes=1), created__lte=now).count()
    if recent >= MOST_A_MINUTE:
        raise Refused({"text": f"at most {MOST_A_MINUTE} comments a minute: wait a moment"})
    comment = _say(thread, by, text=text)
    follow_ensure(by, thread)
    people = named(texts.mentioned(text, _names()))
    for person in people.values():
        follow_ensure(person, thread)
    notices.write(thread, comment, mentioned=list(people.values()), by=by)
    return comment


@transaction.atomic
def comment_edit(comment: Comment, text: str, *, by: Any) -> Comment:
    """Change the text of an own comment; that it was edited is kept. People it mentions now are told. Raises Refused."""
    if comment.author_id != by.pk or comment.event or comment.deleted:
        raise PermissionDenied("this is not a comment of yours")
    before, text = comment.text, _checked(text)
    if text == before:
        return comment
    comment.text, comment.edits = text, [*comment.edits, timezone.now().isoformat()][-MOST_EDITS:]
    comment.save(update_fields=["text", "edits"])
    names = _names()
    fresh = named(set(texts.mentioned(text, names)) - set(texts.mentioned(before, names)))
    notices.write(comment.thread, comment, mentioned=list(fresh.values()), by=by, followers=False)
    publish(comment.thread)
    return comment


@transaction.atomic
def comment_delete(comment: Comment, *, by: Any) -> None:
    """Take the text of an own comment away, or with the right to delete threads of any; that there was one stays."""
    if comment.event or (comment.author_id != by.pk and not by.has_perm("webapp.delete_thread")):
        raise PermissionDenied("this is another person's comment: its author and owners may delete it")
    comment.text, comment.deleted = "", timezone.now()
    comment.save(update_fields=["text", "deleted"])
    Notice.objects.filter(comment=comment).delete()
    publish(comment.thread)


@transaction.atomic
def status_set(thread: Thread, status: str, *, by: Any, note: str = "") -> None:
    """Set a status; a subject with a status of its own gets it there. Raises Refused."""
    kind = subjects.KINDS[thread.kind]
    if status not in dict(kind.statuses):
        raise Refused({"status": f"one of {', '.join(dict(kind.statuses))}"})
    if status == thread.status:
        return
    if kind.change:
        kind.change(thread.key, status, note, by)           # its row tells the thread (`webapp.threads.signals`)
    else:
        status_keep(thread, status, by)
        if note.strip():
            comment_add(thread, note, by=by)


def status_keep(thread: Thread, status: str, by: Any) -> None:
    """Keep a status with the thread and tell of it."""
    kind = subjects.KINDS[thread.kind]
    thread.status, thread.is_open = status, status not in kind.ended
    thread.save(update_fields=["status", "is_open"])
    notices.write(thread, _say(thread, by, event=f"status: {dict(kind.statuses).get(status, status)}"), by=by)


@transaction.atomic
def assign(thread: Thread, name: str, *, by: Any) -> None:
    """Assign a thread to a person of the project, or to nobody (""). Raises Refused."""
    person = named([name]).get(name) if name else None
    if name and person is None:
        raise Refused({"assignee": f"nobody in this project is called {name[:80]}"})
    if thread.assignee_id == getattr(person, "pk", None):
        return
    thread.assignee = person
    thread.save(update_fields=["assignee"])
    comment = _say(thread, by, event=f"assigned to {name}" if person else "assigned to nobody")
    if person is not None:
        follow_ensure(person, thread)
    notices.write(thread, comment, assigned=person, by=by)


@transaction.atomic
def due_set(thread: Thread, due: date | None, *, by: Any) -> None:
    """Say until when a thread's subject is to be ended; None: not said."""
    if thread.due == due:
        return
    thread.due = due
    thread.save(update_fields=["due"])
    notices.write(thread, _say(thread, by, event=f"due {due:%Y-%m-%d}" if due else "no due date"), by=by)


@transaction.atomic
def own(thread: Thread, name: str, due: str, *, by: Any) -> None:
    """Say who ends a thread's subject ("": nobody), and until when ("2026-12-24"; "": not said). Raises Refused."""
    day = parse_day(due)
    assign(thread, name, by=by)
    due_set(thread, day, by=by)


def parse_day(text: str) -> date | None:
    """Return "2026-12-24" as a day; None of "". Raises Refused."""
    try:
        return date.fromisoformat(text.strip()) if text.strip() else None
    except ValueError as error:
        raise Refused({"due": f"a day as 2026-12-24, not {text[:40]!r}"}) from error


def follow_ensure(person: Any, thread: Thread) -> None:
    """Let a person follow a thread who has not left it."""
    Follow.objects.get_or_create(user=person, kind=Follow.Kind.THREAD, key=str(thread.pk))


def follow_set(person: Any, kind: str, key: str, on: bool) -> None:
    """Follow or leave a thread, kernel, suite or the whole project. Raises Refused."""
    if kind not in Follow.Kind.values or len(key) > 200 or "\0" in key or (not key) != (kind == Follow.Kind.PROJECT):
        raise Refused({"follow": "name a thread, kernel or suite, or the project"})
    if kind == Follow.Kind.THREAD and not Thread.objects.filter(pk=int(key) if key.isdecimal() and len(key) < 19 else 0).exists():
        raise Refused({"follow": "there is no such thread"})
    if on and Follow.objects.filter(user=person).count() >= MOST_FOLLOWS:
        raise Refused({"follow": f"you follow {MOST_FOLLOWS:,} already: leave some first"})
    if not on and kind != Follow.Kind.THREAD:
        Follow.objects.filter(user=person, kind=kind, key=key).delete()
        return
    Follow.objects.update_or_create(user=person, kind=kind, key=key, defaults={"on": on})


def event_add(thread: Thread, event: str, *, by: Any = None) -> Comment:
    """Tell in a thread what happened to it elsewhere."""
    with transaction.atomic():
        comment = _say(thread, by, event=event[:300])
        notices.write(thread, comment, by=by)
    return comment


def said_by_ridgepoint(thread: Thread, event: str) -> Comment:
    """Keep a line in a thread that tells nobody by itself."""
    return _say(thread, None, event=event[:300])


def publish(thread: Thread) -> None:
    """Tell open pages on commit that a thread has something new."""
    transaction.on_commit(lambda: jobs.publish(f"thread.{thread.pk}", "thread", {"id": thread.pk}), robust=True)


def _say(thread: Thread, by: Any, *, text: str = "", event: str = "") -> Comment:
    Thread.objects.select_for_update(no_key=True).get(pk=thread.pk)        # two at once must not pass the bound together
    if text and thread.comments.count() >= MOST_COMMENTS:
        raise Refused({"text": f"this thread has {MOST_COMMENTS:,} lines, which is the most"})
    comment = Comment.objects.create(thread=thread, author=by, author_name=by.get_username() if by else "", text=text, event=event)
    thread.changed = comment.created
    thread.save(update_fields=["changed"])
    publish(thread)
    return comment


def _checked(text: str) -> str:
    text = text.replace("\r\n", "\n").replace("\0", "").strip()
    if not text:
        raise Refused({"text": "write something"})
    if len(text) > texts.MOST_CHARACTERS:
        raise Refused({"text": f"{len(text):,} characters; at most {texts.MOST_CHARACTERS:,}"})
    return text


def _names() -> set[str]:
    return set(people_of().values_list("username", flat=True))
