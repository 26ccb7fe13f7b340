"""Which row an agent's message is about, and whether its token may speak for it.

A name belongs to the token that first used it, as long as that token holds; after that to the next one that comes. Two hosts of
one name (a copied disk, a copied configuration) are told apart by what they say of their machine (`workers.agent.identity`).
"""

from __future__ import annotations

from typing import Any

from django.db import IntegrityError, transaction
from django.db.models import F
from django.utils import timezone

from profiles.fleet.models import FleetAgent

MOST_MACHINE = 64


class AgentConflict(Exception):
    """What an agent sent contradicts what is known: `where` is "agent" (its name is another token's) or "sequence"."""

    def __init__(self, where: str, what: str, hint: str) -> None:
        super().__init__(what)
        self.where, self.what, self.hint = where, what, hint


def agent_take(name: str, machine: object, token: Any = None) -> FleetAgent:
    """Return the agent of a name, locked, made where there is none; to be called in a transaction.

    machine  what it says of its machine, "" of agents that say nothing
    token    whose message it is; None: a command

    Raises:
        AgentConflict: the name is that of another token.
    """
    machine_text = "".join(machine.split("\0"))[:MOST_MACHINE] if isinstance(machine, str) else ""
    rows = list(FleetAgent.objects.select_for_update(of=("self",)).select_related("token").filter(name=name).order_by("pk"))
    agent = next((row for row in rows if row.machine == machine_text), None)
    if agent is None and machine_text:          # it was updated, and tells it now
        agent = next((row for row in rows if not row.machine and _may_speak(row, token)), None)
    elif agent is None:                 # a batch from before it was updated
        agent = next((row for row in rows if _may_speak(row, token)), None)
    if agent is None:
        try:
            with transaction.atomic():
                return FleetAgent.objects.create(name=name, machine=machine_text, token=token)
        except IntegrityError:          # another message of it came at the same moment
            return agent_take(name, machine, token)
    if not _may_speak(agent, token):
        raise AgentConflict("agent", f"the agent {name} belongs to the token “{agent.token.name if agent.token else ''}”",
                            "give the agent a spool of its own, or revoke that token")
    known_machine, known_token = agent.machine or machine_text, token or agent.token
    if (agent.machine, agent.token) != (known_machine, known_token):
        FleetAgent.objects.filter(pk=agent.pk).update(machine=known_machine, token=known_token)
        agent.machine, agent.token = known_machine, known_token
    return agent


def note_conflict(name: str, conflict: AgentConflict) -> None:
    """Count a conflict where owners look: beside the agents of that name."""
    FleetAgent.objects.filter(name=name).update(conflicts=F("conflicts") + 1, conflict=f"{conflict.what}"[:300],
                                                conflicted=timezone.now())


def note_refused(name: str, machine: object, token: Any, why: str) -> None:
    """Count a batch whose minutes were refused."""
    with transaction.atomic():
        agent = agent_take(name, machine, token)
        FleetAgent.objects.filter(pk=agent.pk).update(refused=F("refused") + 1, refused_why=why[:300], last_seen=timezone.now())


def _may_speak(agent: FleetAgent, token: Any) -> bool:
    holder = agent.token
    return holder is None or holder == token or (holder.expiry is not None and holder.expiry <= timezone.now())
