"""Write down what programs did, and hold them to their budgets."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from django.db import transaction
from django.db.models import Q
from django.utils import timezone

from profiles.base.refused import Refused
from tuner.models import TuneJob
from webapp.agents.models import AgentBudget, AgentCall
from webapp.models import ApiToken
from workers.redact import redact
from workers.scope import within

ARGUMENTS_CHARS, ANSWER_CHARS, TOOL_CHARS = 2000, 1000, 60
MOST_PER_DAY = 1_000_000


class OverBudget(Exception):
    """The token's day is spent; the text says which part and when it begins anew."""


def call_begin(who: Mapping[str, Any], tool: str, arguments: Any, gpu_s: float) -> int:
    """Take one write and `gpu_s` GPU-seconds of the token's day; return the id of the call's row. Raises OverBudget.

    Calls of one token wait for each other here, so that none takes what another one took.
    """
    with within(who["project"]["id"]), transaction.atomic():
        token = ApiToken.objects.select_for_update().get(pk=who["token"]["id"])
        budget, spent = budget_of(token), spent_today(token)
        if spent["writes"] >= budget.writes_per_day:
            raise OverBudget(f"this token has started {spent['writes']} of the {budget.writes_per_day} jobs and captures that it "
                             f"may start in a day; wait until {_tomorrow():%Y-%m-%d %H:%M} UTC, or let an owner raise the budget")
        if gpu_s and spent["gpu_s"] + gpu_s > budget.gpu_s_per_day:
            raise OverBudget(f"this asks for {gpu_s:,.0f} GPU-seconds, and {spent['gpu_s']:,.0f} of the {budget.gpu_s_per_day:,} "
                             f"that this token may use in a day are taken; ask for less, wait until {_tomorrow():%Y-%m-%d %H:%M} "
                             "UTC, or let an owner raise the budget")
        row = AgentCall.objects.create(**_columns(who, tool, arguments), writes=True, gpu_s=gpu_s)
        return row.pk


def call_end(who: Mapping[str, Any], tool: str, arguments: Any, *, ms: float, outcome: str, answer: str = "",
             call_id: int | None = None, led_to: tuple[str, int] | None = None, refused: bool = False) -> None:
    """Write down how a call ended. What it took of the day is given back where it was `refused`; where nobody knows whether it
    began something (the program left, a server failed), it stays taken."""
    ended = {"ms": round(ms, 3), "outcome": outcome, "answer": redact(_text(answer))[:ANSWER_CHARS],
             "led_to": led_to[0] if led_to else "", "led_to_id": led_to[1] if led_to else None}
    with within(who["project"]["id"]):
        if call_id is None:
            AgentCall.objects.create(**_columns(who, tool, arguments), **ended)
            return
        charge = {"writes": False, "gpu_s": 0.0} if refused else {}
        AgentCall.objects.filter(pk=call_id).update(**ended, **charge)


def budget_of(token: ApiToken) -> AgentBudget:
    """Return the token's budget: its own, else its project's, else the defaults (not stored)."""
    rows = AgentBudget.objects.filter(Q(token=token) | Q(token=None), project=token.project_id)
    rows_by_token = {row.token_id: row for row in rows}
    return rows_by_token.get(token.pk) or rows_by_token.get(None) or AgentBudget()


def spent_today(token: ApiToken) -> dict[str, Any]:
    """Return `writes` and `gpu_s` of the token since 00:00 UTC. A job that ended counts what it took, another what it may take."""
    rows = list(AgentCall.objects.filter(token=token, writes=True, created__gte=_today()).values("gpu_s", "led_to", "led_to_id"))
    ended = dict(TuneJob.objects.filter(pk__in=[row["led_to_id"] for row in rows if row["led_to"] == "tune"],
                                        finished__isnull=False).values_list("pk", "elapsed_s"))
    seconds = [min(row["gpu_s"], ended[row["led_to_id"]]) if row["led_to"] == "tune" and row["led_to_id"] in ended else row["gpu_s"]
               for row in rows]
    return {"writes": len(rows), "gpu_s": sum(seconds)}


def budget_set(project: int, token: ApiToken | None, writes_per_day: Any, gpu_s_per_day: Any) -> AgentBudget:
    """Set what a token (None: every other one of the project) may begin in a day. Raises Refused."""
    values = {"writes_per_day": _whole("writes_per_day", writes_per_day), "gpu_s_per_day": _whole("gpu_s_per_day", gpu_s_per_day)}
    row = AgentBudget.objects.filter(project=project, token=token).first() or AgentBudget(project_id=project, token=token)
    for name, value in values.items():
        setattr(row, name, value)
    row.save()
    return row


def _whole(field: str, given: Any) -> int:
    text = str(given).strip()
    if not (text.isascii() and text.isdecimal() and len(text) < 10 and int(text) <= MOST_PER_DAY):
        raise Refused({field: f"a whole number from 0 to {MOST_PER_DAY:,}"})
    return int(text)


def _columns(who: Mapping[str, Any], tool: str, arguments: Any) -> dict[str, Any]:
    token, person = who["token"], who["person"]
    there = ApiToken.objects.filter(pk=token["id"]).exists()         # it may have been revoked while the call ran
    text = json.dumps(arguments, ensure_ascii=False, default=str)
    return {"token_id": token["id"] if there else None, "token_name": token["name"][:80],
            "person_id": person["id"], "person_name": person["name"][:150],
            "tool": _text(tool)[:TOOL_CHARS], "arguments": redact(_text(text))[:ARGUMENTS_CHARS]}


def _text(given: object) -> str:
    """Return a text that PostgreSQL stores: without NUL and halves of a pair."""
    return str(given).replace("\0", "").replace("\\u0000", "").encode("utf-8", "replace").decode()


def _today() -> datetime:
    return timezone.now().replace(hour=0, minute=0, second=0, microsecond=0)


def _tomorrow() -> datetime:
    return _today() + timedelta(days=1)
