"""HTML of the SQL console."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from profiles.base.answers import plain
from profiles.library import selectors
from profiles.models import Profile
from profiles.sql import query_selectors
from profiles.sql import services as sql_services
from profiles.sql.examples import EXAMPLES
from profiles.sql.process import Limits
from profiles.sql.tables import TABLES

LISTED_PROFILES = 300


@require_safe
def sql_console(request: HttpRequest) -> HttpResponse:
    """What else do I want to know? ?profiles=3,4 ?build= ?tag= choose what is asked, ?query= ?example= ?q= fill the editor."""
    profiles = Profile.objects.filter(status=Profile.Status.READY)
    chosen = [int(part) for part in request.GET.get("profiles", "").split(",") if part.isdecimal() and len(part) < 19]
    shown = list(profiles.filter(pk__in=chosen[:sql_services.MAX_PROFILES]))
    listed = list(profiles[:LISTED_PROFILES])
    return render(request, "profiles/sql.html", {
        "profiles": listed + [profile for profile in shown if profile not in listed], "shown": shown,
        "one": shown[0] if len(shown) == 1 else None, "choices": selectors.filter_choices(),
        "tables": TABLES, "most_profiles": sql_services.MAX_PROFILES, "most": sql_services.MOST, "usual": Limits(),
        "data": {
            "examples": plain(EXAMPLES), "queries": query_selectors.query_list(request.user),
            "tables": plain(TABLES), "chosen": [profile.pk for profile in shown],
            "may_save": request.user.has_perm("profiles.add_savedquery"), "sql_chars": sql_services.SQL_CHARS,
        },
    })
