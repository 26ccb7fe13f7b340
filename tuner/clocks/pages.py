"""The page of GPUs' clocks: what owners let workers do with them, what is held now, how it last went."""

from __future__ import annotations

from typing import Any

from django.contrib import messages
from django.contrib.auth.decorators import permission_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_POST, require_safe

from profiles.base.refused import Refused
from tuner.clocks import selectors, services
from tuner.clocks.wish import DEFAULT_GRAPHICS, ClockWish

MAY_ALLOW = "tuner.change_gpuclockrule"


@require_safe
def clock_list(request: HttpRequest) -> HttpResponse:
    """Show every GPU."""
    return _page(request)


@permission_required(MAY_ALLOW, raise_exception=True)
@require_POST
def clock_change(request: HttpRequest) -> HttpResponse:
    """Allow a GPU's clocks to be held (POST `uuid` and the wish), or with `do=forbid` no longer."""
    uuid, typed = request.POST.get("uuid", "")[:80], {name: request.POST.get(name, "")[:40] for name in ("graphics", "memory_mhz")}
    flags = {name: request.POST.get(name) == "yes" for name in ("persistence", "required")}
    if request.POST.get("do") == "forbid":
        services.rule_remove(uuid)
        messages.success(request, "Clocks of this GPU are left alone from the next job on.")
        return redirect("gpu-clocks")
    try:
        services.rule_set(uuid, ClockWish.read(**typed, **flags), by=request.user)
    except Refused as refused:
        return _page(request, {uuid: {**typed, **flags}}, {uuid: refused.fields}, status=400)
    messages.success(request, "Allowed from the next job on.")
    return redirect("gpu-clocks")


def _page(request: HttpRequest, typed: dict[str, Any] | None = None, wrong: dict[str, Any] | None = None,
          status: int = 200) -> HttpResponse:
    cards = [{**card, "typed": {**card, **(typed or {}).get(card["uuid"], {})}, "wrong": (wrong or {}).get(card["uuid"], {})}
             for card in selectors.clock_list()]
    lost = [what for uuid, told in (wrong or {}).items() if uuid not in {card["uuid"] for card in cards} for what in told.values()]
    return render(request, "tuner/clocks.html", {
        "cards": cards, "lost": lost, "may_allow": request.user.has_perm(MAY_ALLOW), "default": DEFAULT_GRAPHICS,
        "allowed": sum(card["allowed"] for card in cards), "held": sum(bool(card["held"]) for card in cards)}, status=status)
