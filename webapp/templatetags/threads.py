"""Threads on the pages of their subjects."""

from __future__ import annotations

from typing import Any

from django import template
from django.template.context import Context
from django.utils.http import urlencode

from webapp.models import Thread
from webapp.threads import selectors, services, subjects
from webapp.threads.people import people_of

register = template.Library()
_THREADS = "threads of findings"


@register.inclusion_tag("threads/_thread.html", takes_context=True)
def thread(context: Context, kind: str, of: object) -> dict[str, Any]:
    """Show the thread of a subject, or where its first comment is written."""
    request: Any = context["request"]
    subject = subjects.find(kind, urlencode(of) if isinstance(of, dict) else str(of))
    row = services.thread_of(subject) if subject else None
    named = urlencode(of) if isinstance(of, dict) else str(of)
    return {"talk": selectors.talk_of(row, subject, request.user, named) if subject else None, "embedded": True,
            "perms": context["perms"], "user": request.user, "request": request, "csrf_token": context.get("csrf_token"),
            "people": people_of()}


@register.simple_tag(takes_context=True)
def finding_thread(context: Context, lines: Any, finding: Any) -> Thread | None:
    """Return the thread of one of a page's findings; those of all are read at once."""
    cache = context.render_context.get(_THREADS)
    if cache is None or finding.pk not in cache[0]:
        rows = [line.finding for line in lines] if lines else [finding]
        rows = rows if finding in rows else [*rows, finding]
        cache = ({row.pk for row in rows}, selectors.finding_threads(rows))
        context.render_context[_THREADS] = cache
    found: Thread | None = cache[1].get(finding.pk)
    return found
