"""HTML of the topics: one view serves them all."""

from __future__ import annotations

from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, render
from django.views.decorators.http import require_safe

from profiles.models import Profile
from profiles.profile.finding_selectors import code_pieces, finding_lines
from profiles.profile.selectors import summary_tables
from profiles.topics import selectors, services
from profiles.topics.contexts import topic_context
from profiles.topics.table import TOPICS, topic_of

LOG_ROWS = 200                   # of each table of NCCL's log; the API has all


@require_safe
def topic_page(request: HttpRequest, pk: int, name: str) -> HttpResponse:
    """One question about a whole trace, answered."""
    profile = get_object_or_404(Profile, pk=pk, status=Profile.Status.READY, kind=Profile.Kind.TRACE)
    topic = topic_of(name)
    if topic is None:
        raise Http404(f"no analysis is called {name}; there are {', '.join(each.name for each in TOPICS)}")
    try:
        document = services.document_of(profile, topic)
    except FileNotFoundError:
        raise Http404("this profile has no stored trace") from None
    context = {"profile": profile, "topic": topic, "topics": TOPICS, "document": document}
    if document is None:
        return render(request, "profiles/topics/_waiting.html", context)
    context |= {"answer": code_pieces(document["answer"]), "numbers": document["numbers"],
                "findings": finding_lines(profile, selectors.topic_findings(profile, topic, document)),
                "tables": selectors.shown_tables(profile, document, request.GET.get("rows") == "all")}
    if topic.name == "communication" and profile.summary.get("tables"):          # NCCL's log, uploaded with the job's traces
        context["log_tables"] = summary_tables(profile, LOG_ROWS)
    return render(request, topic.template, {**context, **topic_context(topic, profile, document, request.GET)})
