"""Threads and the inbox as pages."""

from __future__ import annotations

from typing import Any

from django.contrib import messages
from django.contrib.auth.decorators import permission_required
from django.core.exceptions import PermissionDenied
from django.core.paginator import Paginator
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import reverse
from django.utils.http import url_has_allowed_host_and_scheme, urlencode
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_POST, require_safe

from profiles.base.refused import Refused
from webapp.forges import services as forges
from webapp.models import Comment, Follow, Forge, TalkPreference, Thread
from webapp.threads import notices, selectors, services, subjects
from webapp.threads.people import people_of

PAGE = 50


@require_safe
def thread_list(request: HttpRequest) -> HttpResponse:
    """?q=&status=&kind=&assignee="""
    filters = {name: request.GET.get(name, "")[:200] for name in selectors.FILTERS}
    page = Paginator(selectors.thread_list(filters), PAGE).get_page(request.GET.get("page"))
    return render(request, "threads/list.html", {
        "page": page, "asked": filters, "kinds": subjects.KINDS.values(), "statuses": selectors.status_choices(),
        "people": people_of(), "labels": dict(selectors.status_choices()), "project_followed": Follow.objects.filter(
            user=request.user.pk, kind=Follow.Kind.PROJECT, on=True).exists()})


@require_safe
@never_cache
def about(request: HttpRequest) -> HttpResponse:
    """?kind=&of= leads to the thread of a subject, or shows where its first comment is written."""
    subject = _subject(request.GET)
    thread = services.thread_of(subject)
    return redirect("thread", thread.pk) if thread else _page(request, None, subject, of=request.GET.get("of", ""))


@require_safe
@never_cache
def thread(request: HttpRequest, pk: int) -> HttpResponse:
    """Show a thread; what is new in it counts as read."""
    row = get_object_or_404(Thread.objects.select_related("assignee"), pk=pk)
    answer = _page(request, row, None)
    if request.headers.get("Purpose") != "prefetch":
        notices.mark_read(request.user, thread=row)
    return answer


@require_POST
@permission_required("webapp.add_comment", raise_exception=True)
def write(request: HttpRequest) -> HttpResponse:
    """The first comment about a subject, or a later one: kind, of, text."""
    subject = _subject(request.POST)
    if not request.POST.get("text", "").strip():
        return _page(request, services.thread_of(subject), subject, of=request.POST.get("of", ""), problem="write something",
                     status=400)
    return _do(request, services.thread_ensure(subject), services.comment_add, request.POST.get("text", ""))


@require_POST
@permission_required("webapp.add_comment", raise_exception=True)
def comment_add(request: HttpRequest, pk: int) -> HttpResponse:
    """Fields: text, next."""
    return _do(request, get_object_or_404(Thread, pk=pk), services.comment_add, request.POST.get("text", ""))


@require_POST
@permission_required("webapp.change_comment", raise_exception=True)
def comment_edit(request: HttpRequest, pk: int) -> HttpResponse:
    """Fields: text, next."""
    comment = get_object_or_404(Comment.objects.select_related("thread"), pk=pk)
    return _do(request, comment.thread, services.comment_edit, request.POST.get("text", ""), first=comment)


@require_POST
@permission_required("webapp.delete_comment", raise_exception=True)
def comment_delete(request: HttpRequest, pk: int) -> HttpResponse:
    """Take the text of a comment away."""
    comment = get_object_or_404(Comment.objects.select_related("thread"), pk=pk)
    return _do(request, comment.thread, services.comment_delete, first=comment)


@require_POST
def status_set(request: HttpRequest, pk: int) -> HttpResponse:
    """Fields: status, note, next."""
    row = get_object_or_404(Thread, pk=pk)
    if not request.user.has_perm(subjects.KINDS[row.kind].needs):
        raise PermissionDenied("changing a status needs the role engineer")
    return _do(request, row, services.status_set, request.POST.get("status", ""), note=request.POST.get("note", ""))


@require_POST
@permission_required("webapp.change_thread", raise_exception=True)
def assign(request: HttpRequest, pk: int) -> HttpResponse:
    """Fields: assignee ("": nobody), due ("": not said), next."""
    return _own(request, get_object_or_404(Thread, pk=pk))


@require_POST
@permission_required("webapp.change_thread", raise_exception=True)
def own(request: HttpRequest) -> HttpResponse:
    """Fields: kind, of, assignee, due, next: who ends it and until when, before anybody wrote."""
    return _own(request, services.thread_ensure(_subject(request.POST)))


def _own(request: HttpRequest, row: Thread) -> HttpResponse:
    return _do(request, row, services.own, request.POST.get("assignee", "")[:150], request.POST.get("due", "")[:40])


@require_POST
def follow(request: HttpRequest) -> HttpResponse:
    """Fields: kind, key, on (1 or empty), next."""
    fields = request.POST
    try:
        services.follow_set(request.user, fields.get("kind", ""), fields.get("key", ""), bool(fields.get("on")))
    except Refused as refused:
        messages.error(request, "; ".join(refused.fields.values()))
    return _back(request, reverse("inbox"))


@require_safe
@never_cache
def inbox(request: HttpRequest) -> HttpResponse:
    """?show=all with what was read."""
    unread = request.GET.get("show") != "all"
    page = Paginator(selectors.inbox(request.user, unread), PAGE).get_page(request.GET.get("page"))
    return render(request, "threads/inbox.html", {
        "page": page, "unread": unread, "follows": selectors.follows(request.user),
        "preference": selectors.preference(request.user), "mails": TalkPreference.Mail.choices})


@require_POST
def inbox_read(request: HttpRequest) -> HttpResponse:
    """Mark one line (id) or all as read."""
    notice_id = request.POST.get("id", "")
    which = {"pk": int(notice_id)} if notice_id.isdecimal() and len(notice_id) < 19 else {}
    notices.mark_read(request.user, **which)
    return _back(request, reverse("inbox"))


@require_POST
def mail_set(request: Any) -> HttpResponse:
    """Fields: mail."""
    mail = request.POST.get("mail", "")
    if mail in TalkPreference.Mail.values:
        TalkPreference.objects.update_or_create(user=request.user, defaults={"mail": mail})
        messages.success(request, "Mail settings saved.")
    return redirect(f"{reverse('inbox')}#mail")


def _subject(asked: Any) -> subjects.Subject:
    subject = subjects.find(asked.get("kind", ""), asked.get("of", "")[:2000])
    if subject is None:
        raise Http404("There is no such finding, regression or kernel problem.")
    return subject


def _page(request: HttpRequest, row: Thread | None, subject: subjects.Subject | None, *, of: str = "", problem: str = "",
          typed: str = "", status: int = 200) -> HttpResponse:
    return render(request, "threads/thread.html", {
        "talk": selectors.talk_of(row, subject, request.user, of), "page_of": selectors.url_of((row or subject).path),  # type: ignore[union-attr]
        "title": (row or subject).title, "problem": problem, "typed": typed, "people": people_of(),      # type: ignore[union-attr]
        **(_issues(row) if row else {}), "ask": urlencode({"kind": subject.kind, "of": of}) if subject else ""}, status=status)


def _issues(row: Thread) -> dict[str, Any]:
    return {"issues": row.issues.select_related("forge"), "forges": Forge.objects.filter(enabled=True),
            "issue_text": forges.issue_text(row)}


def _do(request: HttpRequest, row: Thread, service: Any, *given: Any, first: Any = None, **named: Any) -> HttpResponse:
    """Do something to a thread, or to `first` of it; what was typed is kept where it is refused."""
    try:
        service(row if first is None else first, *given, by=request.user, **named)
    except Refused as refused:
        typed = request.POST.get("text", "") if first is None else ""
        return _page(request, row, None, problem="; ".join(refused.fields.values()), typed=typed, status=400)
    return _back(request, reverse("thread", args=[row.pk]))


def _back(request: HttpRequest, otherwise: str) -> HttpResponse:
    after = request.POST.get("next", "")
    return redirect(after if url_has_allowed_host_and_scheme(after, {request.get_host()}) else otherwise)
