"""What threads and inboxes look like to those who read them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NotRequired, TypedDict

from django.db.models import Count, Q, QuerySet
from django.urls import get_script_prefix
from django.utils import timezone
from django.utils.safestring import SafeString, mark_safe

from profiles.base.answers import make_answer
from profiles.models import Finding
from webapp.models import Comment, Follow, Notice, TalkPreference, Thread
from webapp.threads import subjects, texts
from webapp.threads.people import people_of

FILTERS = ("q", "status", "kind", "assignee")
SHOWN = 500                     # newest lines of a thread on its page


@dataclass(frozen=True)
class Line:
    """One comment or event as it is shown."""

    row: Comment
    html: SafeString
    edited: datetime | None
    fresh: bool                 # not read before
    may_edit: bool
    may_delete: bool


@dataclass(frozen=True)
class Talk:
    """A thread with its lines; `thread` None: nobody wrote yet."""

    subject: subjects.Subject | None
    kind: subjects.Kind
    thread: Thread | None
    lines: tuple[Line, ...]
    earlier: int                # lines that are not shown
    following: bool
    statuses: tuple[tuple[str, str], ...]
    status: str
    may_change: bool
    of: str = ""                # how the page named the subject

    @property
    def is_late(self) -> bool:
        return bool(self.thread and self.thread.is_open and self.thread.due and self.thread.due < timezone.localdate())

    @property
    def status_label(self) -> str:
        return dict(self.statuses).get(self.status, self.status)


def url_of(path: str) -> str:
    """Return the address of a kept path in the project that is worked in."""
    return get_script_prefix().rstrip("/") + path


def talk_of(thread: Thread | None, subject: subjects.Subject | None, user: Any, of: str = "") -> Talk:
    """Return a thread, or the beginning of one, as a person sees it."""
    kind = subjects.KINDS[thread.kind if thread else subject.kind if subject else "finding"]
    lines: tuple[Line, ...] = ()
    count, following, status = 0, False, str(Thread.Status.OPEN)
    if thread is None and subject is not None and kind.state:
        status = kind.state(subject.key) or status
    if thread is not None:
        count, status = thread.comments.count(), thread.status
        rows = list(thread.comments.select_related("author").order_by("-created", "-id")[:SHOWN])[::-1]
        unread = set(Notice.objects.filter(user=user, thread=thread, read=None).values_list("comment_id", flat=True))
        lines = tuple(comment_lines(rows, user, unread))
        following = Follow.objects.filter(user=user, kind=Follow.Kind.THREAD, key=str(thread.pk), on=True).exists()
    return Talk(subject, kind, thread, lines, count - len(lines), following, kind.statuses, status, user.has_perm(kind.needs), of)


def comment_lines(rows: Iterable[Comment], user: Any, unread: Collection[int | None]) -> Iterable[Line]:
    """Return comments as they are shown to a person."""
    names = set(people_of().values_list("username", flat=True))
    moderates, writes = user.has_perm("webapp.delete_thread"), user.has_perm("webapp.change_comment")
    for row in rows:
        own = row.author_id == user.pk and writes and not row.event and not row.deleted
        yield Line(row, mark_safe(texts.html_of(row.text, names)) if row.text else SafeString(),      # texts makes it safe
                   datetime.fromisoformat(row.edits[-1]) if row.edits else None, row.pk in unread, own,
                   not row.event and not row.deleted and (own or moderates))


def thread_list(query: Mapping[str, str]) -> QuerySet[Thread]:
    """Return threads, what changed last first, filtered; `status` "all", "ended" or one of them, else open ones."""
    rows = Thread.objects.select_related("assignee").annotate(
        said=Count("comments", filter=Q(comments__event="", comments__deleted=None))).order_by("-changed", "-id")
    status = query.get("status", "")
    if status == "ended":
        rows = rows.filter(is_open=False)
    elif status and status != "all":
        rows = rows.filter(status=status)
    elif not status:
        rows = rows.filter(is_open=True)
    if query.get("kind"):
        rows = rows.filter(kind=query["kind"])
    if query.get("assignee"):
        rows = rows.filter(assignee__username=query["assignee"])
    if word := query.get("q", "").strip():
        rows = rows.filter(Q(title__icontains=word) | Q(kernel__icontains=word)
                           | Q(pk__in=Comment.objects.filter(text__icontains=word).values("thread")))
    return rows


def status_choices() -> list[tuple[str, str]]:
    """Return every status that a thread may have, once, with its word."""
    return list({value: label for kind in subjects.KINDS.values() for value, label in kind.statuses}.items())


def finding_threads(findings: Iterable[Finding]) -> dict[int, Thread]:
    """Return the threads of findings by the finding's id: one query for all."""
    keys = {row.pk: subjects.finding_key(row) for row in findings}
    said = Count("comments", filter=Q(comments__event="", comments__deleted=None))
    rows = {row.key: row for row in Thread.objects.filter(kind="finding", key__in=set(keys.values())).annotate(said=said)} \
        if keys else {}
    return {pk: rows[key] for pk, key in keys.items() if key in rows}


def inbox(user: Any, unread: bool = False) -> QuerySet[Notice]:
    """Return a person's lines in the current project, the newest first."""
    rows = Notice.objects.filter(user=user).select_related("thread", "comment")
    return rows.filter(read=None) if unread else rows


class FollowJson(TypedDict):
    kind: str
    key: str
    title: str


def follows(user: Any) -> list[FollowJson]:
    """Return what a person follows, threads by their title."""
    rows = list(Follow.objects.filter(user=user, on=True).order_by("kind", "key"))
    ids = [int(row.key) for row in rows if row.kind == Follow.Kind.THREAD]
    titles = dict(Thread.objects.filter(pk__in=ids).values_list("pk", "title"))
    return [{"kind": row.kind, "key": row.key, "title": titles.get(int(row.key), "") if row.kind == Follow.Kind.THREAD else row.key}
            for row in rows if row.kind != Follow.Kind.THREAD or int(row.key) in titles]


def preference(user: Any) -> TalkPreference:
    """Return what a person wants by mail; the default where they said nothing."""
    return TalkPreference.objects.filter(user=user).first() or TalkPreference(user=user)


class CommentJson(TypedDict):
    """A comment, or an event of its thread; `edited`: when last."""

    id: int
    author: str | None
    text: str
    event: str
    created: str
    edited: str | None
    deleted: bool


def comment_json(row: Comment) -> CommentJson:
    return make_answer(CommentJson, row, author=row.author_name or None, edited=row.edits[-1] if row.edits else None,
                       deleted=row.deleted is not None)


class ThreadJson(TypedDict):
    """A thread; of one alone its newest comments and events, oldest first."""

    id: int
    kind: str
    title: str
    page: str
    kernel: str | None
    suite: str | None
    status: str
    open: bool
    assignee: str | None
    due: str | None
    created: str
    changed: str
    comments: NotRequired[list[CommentJson]]


def thread_json(row: Thread, lines: bool = False) -> ThreadJson:
    """A thread over the API; `lines` with its newest SHOWN comments and events, oldest first."""
    newest = [comment_json(comment) for comment in list(row.comments.order_by("-created", "-id")[:SHOWN])[::-1]] if lines else None
    return make_answer(ThreadJson, row, page=url_of(row.path), kernel=row.kernel or None, suite=row.suite or None,
                       open=row.is_open, assignee=row.assignee.get_username() if row.assignee else None,
                       **({} if newest is None else {"comments": newest}))


class NoticeJson(TypedDict):
    """A line of an inbox: why it is there; `mail`: whether one was sent."""

    id: int
    why: str
    thread: int
    title: str
    comment: CommentJson | None
    created: str
    read: str | None
    mail: str | None


def notice_json(row: Notice) -> NoticeJson:
    return make_answer(NoticeJson, row, thread=row.thread_id, title=row.thread.title, mail=row.mail or None,
                       comment=comment_json(row.comment) if row.comment else None)
