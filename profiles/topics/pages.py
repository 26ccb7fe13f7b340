"""HTML of the topics: one view serves them all."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, render
from django.views.decorators.http import require_safe

from profiles.analysis.trace.communication.facts import LIMITS
from profiles.analysis.trace.operators.topic import DRAWN_SHARE
from profiles.charts import operators as charts
from profiles.charts.needed import needed_bars, range_rows
from profiles.charts.operators import functions, sandwich
from profiles.charts.topics import (
    bandwidth_figure,
    cause_bars,
    delay_figure,
    matrix,
    peak_bars,
    queue_figure,
    rank_bars,
    timeline_figure,
    waits_figure,
)
from profiles.charts.trace import MOST_BARS, cause_parts, path_bars
from profiles.models import Profile
from profiles.profile.finding_selectors import code_pieces, finding_lines
from profiles.profile.selectors import summary_tables
from profiles.theme import cached_figure
from profiles.topics import selectors, services, time
from profiles.topics.table import TOPICS, Topic, topic_of
from profiles.topics.work import topic_numbers

# Build what a topic's template needs beyond the stored document: figures, mostly. Only pages import this: it loads Bokeh.


def causes_context(profile: Profile, document: dict[str, Any], params: Mapping[str, str]) -> dict[str, Any]:
    """Return one bar per GPU."""
    if not document["applies"]:
        return {}
    parts, labels = cause_parts(document["numbers"]), {row["gpu"]: row["label"] for row in document["numbers"]["gpus"]}
    return {"bars": [{"label": labels[gpu], "parts": mine} for gpu, mine in parts.items()]}


def communication_context(profile: Profile, document: dict[str, Any], params: Mapping[str, str]) -> dict[str, Any]:
    if not document["applies"]:
        return {}
    numbers, key = document["numbers"], ("communication", profile.pk, document["version"], document["written"])
    return {"bandwidth": cached_figure((*key, "bandwidth"), lambda: bandwidth_figure(numbers["sizes"])),
            "waits": cached_figure((*key, "waits"), lambda: waits_figure(numbers)), "ranks": rank_bars(numbers),
            "causes": cause_bars(numbers), "matrix": matrix(numbers), "limits": LIMITS}


def critical_path_context(profile: Profile, document: dict[str, Any], params: Mapping[str, str]) -> dict[str, Any]:
    if not document["applies"]:
        return {}
    bars, numbers = path_bars(document["numbers"]), document["numbers"]
    return {"bars": bars, "more_bars": max(0, len(numbers["paths"]) - MOST_BARS),
            "main_bar": next((bar for bar in bars if bar.is_main), bars[0] if bars else None)}


def launches_context(profile: Profile, document: dict[str, Any], params: Mapping[str, str]) -> dict[str, Any]:
    if not document["applies"]:
        return {}
    numbers, key = document["numbers"], (profile.pk, document["written"], document["version"])
    return {"delays": cached_figure(("launch delays", *key), lambda: delay_figure(numbers)),
            "queues": cached_figure(("launch queues", *key), lambda: queue_figure(numbers))}


def memory_context(profile: Profile, document: dict[str, Any], params: Mapping[str, str]) -> dict[str, Any]:
    if not document["applies"]:
        return {}
    devices = document["numbers"]["devices"]
    figures = [{"id": f"memory-{number}-json", "label": device["label"], "item": figure, "peak_bytes": device["peak_bytes"],
                "peak_ns": device["peak_ns"], "around": _peak_window(device)}
               for number, device in enumerate(devices) if (figure := cached_figure(
                   ("memory", profile.pk, document["version"], document["written"], number),
                   partial(timeline_figure, device))) is not None]
    return {"figures": figures, "peaks": peak_bars(devices)}


def _peak_window(device: Mapping[str, Any]) -> str:
    """A window of the timeline around the peak."""
    times = device["series"]["time_ns"]
    half = max((times[-1] - times[0]) // 40, 1000) if times else 1000
    return f"{max(device['peak_ns'] - half, 0)}-{device['peak_ns'] + half}"


def needed_context(profile: Profile, document: dict[str, Any], params: Mapping[str, str]) -> dict[str, Any]:
    """Return one bar per GPU."""
    return {"bars": needed_bars(document["numbers"])} if document["applies"] else {}


LEAST_ROWS = 12                     # modules or ranges that the operators' page shows beside their least times
TREES = {"stacks": "call stacks", "modules": "modules"}


def operators_context(profile: Profile, document: dict[str, Any], params: Mapping[str, str]) -> dict[str, Any]:
    """Return the figures of the operators' page.

    `?tree=stacks` or `modules` chooses the tree that is drawn; modules where they are recorded. `?of=NAME`: the callers and
    callees of one function of it.
    """
    if not document["applies"]:
        return {}
    numbers = document["numbers"]
    trees = {name: words for name, words in TREES.items() if numbers[name]}
    if "modules" in trees and numbers["module_kind"] == "range":
        trees["modules"] = "ranges"
    chosen = params.get("tree", "")
    if chosen not in trees:
        chosen = "modules" if numbers["module_kind"] == "module" else "stacks"
    nodes = numbers[chosen] if chosen in trees else []
    boxes = charts.boxes(numbers[chosen], numbers["gpu_ns"]) if chosen in trees else []
    needed = topic_numbers(profile, "needed")
    return {
        "least_rows": range_rows(needed, LEAST_ROWS), "least_kind": needed.get("range_kind", ""),
        "bars": charts.bars(numbers["bars"], numbers["gpu_ns"]), "legend": charts.legend(numbers["bars"]),
        "gpu_ns": numbers["gpu_ns"], "kind": numbers["kind"],
        "boxes": boxes, "trees": trees, "tree": chosen, "tree_words": trees.get(chosen, ""),
        "functions": functions(nodes), "least_pct": 100 * DRAWN_SHARE, "of": params.get("of", "")[:400],
        "sandwich": sandwich(nodes, params.get("of", "")) if params.get("of") else None,
        "rows": 1 + max((box.row for box in boxes), default=0),
        "missed": next((key for key, table in enumerate(document["tables"]) if table["title"].startswith("Could tensor")), None)}


def sequences_context(profile: Profile, document: dict[str, Any], params: Mapping[str, str]) -> dict[str, Any]:
    """Return bars of the first candidates, in percent of the largest.

    Locale-free texts for style attributes.
    """
    drawn = document["numbers"].get("drawn", [])
    largest = max((row["saved_ns"] + row["gaps_ns"] for row in drawn), default=0) or 1
    return {"drawn": [{**row, "both_ns": row["saved_ns"] + row["gaps_ns"], "width": f"{100 * row['saved_ns'] / largest:.3f}",
                       "gaps_width": f"{100 * row['gaps_ns'] / largest:.3f}"} for row in drawn]}


Context = Callable[[Profile, dict[str, Any], Mapping[str, str]], dict[str, Any]]

CONTEXTS: dict[str, Context] = {        # by name of the topic; one without a line needs nothing
    "causes": causes_context,
    "time": time.time_context,
    "needed": needed_context,
    "operators": operators_context,
    "communication": communication_context,
    "memory": memory_context,
    "launches": launches_context,
    "sequences": sequences_context,
    "critical-path": critical_path_context,
}


def topic_context(topic: Topic, profile: Profile, document: dict[str, Any], params: Mapping[str, str]) -> dict[str, Any]:
    """Return the template's context of one topic's page; `params` are those of its URL."""
    context = CONTEXTS.get(topic.name)
    return context(profile, document, params) if context is not None else {}


LOG_ROWS = 200                   # of each table of NCCL's log; the API has all


@require_safe
def topic_page(request: HttpRequest, pk: int, name: str) -> HttpResponse:
    """One question about a whole trace, answered."""
    profile = get_object_or_404(Profile, pk=pk, status=Profile.Status.READY, kind=Profile.Kind.TRACE)
    topic = topic_of(name)
    if topic is None:
        raise Http404(f"no analysis is called {name}; there are {', '.join(entry.name for entry in TOPICS)}")
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
