"""One page to print: what the summary says, with pictures."""

from __future__ import annotations

from typing import Any

from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, render
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.http import require_safe

from profiles.models import Profile
from profiles.profile.finding_selectors import code_pieces, integrity_card
from profiles.report import selectors

FINDINGS, KERNELS = 4, 10
GPUS, IDLEST = 4, 1                     # of more GPUs than that: all of them summed, and the one that idles most


@require_safe
def report(request: HttpRequest, pk: int) -> HttpResponse:
    profile = get_object_or_404(Profile.objects.select_related("owner"), pk=pk)
    if profile.status != Profile.Status.READY:
        raise Http404("the profile is not ready")
    document = selectors.summary(profile)
    return render(request, "profiles/report.html", {
        "profile": profile, "found": document, "answer": code_pieces(document["answer"]), "integrity": integrity_card(profile),
        "gpus": [{**gpu, "parts": _parts(gpu)} for gpu in _shown_gpus(document["gpus"])],
        "analyses": [{**analysis, "pieces": code_pieces(analysis["answer"] or "")} for analysis in document["analyses"]],
        "findings": [{**finding, "title_pieces": code_pieces(finding["title"]), "advice_pieces": code_pieces(finding["advice"])}
                     for finding in document["findings"][:FINDINGS]],
        "kernels": document["kernels"][:KERNELS], "now": timezone.now(),
        "address": request.build_absolute_uri(reverse("profile", args=[pk]))})


def _shown_gpus(gpus: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """As many bars as fit on the page."""
    if len(gpus) <= GPUS:
        return gpus
    summed = {name: sum(gpu[name] or 0 for gpu in gpus) for name in
              ("wall_ns", "compute_ns", "communication_ns", "memory_ns", "idle_ns")}
    idlest = sorted(gpus, key=lambda gpu: -gpu["idle_ns"])[:IDLEST]
    return [{"label": f"all {len(gpus)} GPUs", "name": "", **summed},
            *({**gpu, "label": f"most idle: {gpu['label']}"} for gpu in idlest)]


def _parts(gpu: dict[str, object]) -> list[dict[str, object]]:
    """Pieces of a GPU's bar: category, ns and percent of the wall time."""
    wall_ns = int(str(gpu["wall_ns"] or 0))
    parts = [(name, int(str(gpu[f"{name}_ns"] or 0))) for name in ("compute", "communication", "memory", "idle")]
    return [{"category": name, "ns": ns, "pct": 100 * ns / wall_ns, "css": f"{100 * ns / wall_ns:.3f}"} for name, ns in parts
            if ns and wall_ns]
