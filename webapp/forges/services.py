"""What is set and said: forges, links of threads to issues, and verdicts for the change that they are about.

And what forges send here: verified, taken once, and an issue that was closed resolves its thread.
"""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from django.conf import settings
from django.db import transaction
from django.utils import timezone

from profiles.base.refused import Refused
from tuner.gate.stats.rule import Verdict
from tuner.models import Gate
from webapp.forges.speech import Arrived, Unsigned
from webapp.forges.table import FORGES, ForgeKind
from webapp.models import Forge, ForgeArrival, ForgePost, IssueLink, Thread
from webapp.threads import services as thread_services
from webapp.threads import subjects
from webapp.threads.notices import QUEUE, TASK, address, project_slug
from webapp.threads.subjects import Subject, find
from workers import jobs
from workers.outgoing import parse_address
from workers.scope import project_of, within
from workers.secret import Unreadable, seal, unseal

MOST_FORGES, MOST_LINKS = 20, 20
SHA = re.compile(r"[0-9a-f]{40}")
STATES = {Verdict.PASS: "good", Verdict.FASTER: "good", Verdict.SLOWER: "bad"}
PLACE = re.compile(r"[\w.\-]+(?:/[\w.\-]+)*")


def forge_add(*, kind: str, name: str, place: str, key: str, api: str = "", account: str = "", hook_secret: str = "",
              by: Any = None) -> tuple[Forge, str]:
    """Add a forge; return it with the secret of its webhook, shown this once. Raises Refused."""
    forge_kind = FORGES.get(kind)
    if forge_kind is None:
        raise Refused({"kind": f"one of {', '.join(FORGES)}"})
    name, place, api = name.strip()[:80], place.strip().strip("/"), (api.strip() or forge_kind.api).rstrip("/")
    if not name or Forge.objects.filter(name=name).exists():
        raise Refused({"name": "a name that no other forge of the project has"})
    if not PLACE.fullmatch(place) or len(place) > 200:
        raise Refused({"place": "owner/name, group/project, or the key of a Jira project"})
    try:
        if parse_address(api).scheme != "https" and not settings.WEBHOOK_PRIVATE:
            raise Refused({"api": "an https address: a key is sent there"})
    except Refused as refused:
        raise Refused({"api": refused.what}) from refused
    if not key.strip() or len(key) > 10_000:
        raise Refused({"key": "the App's private key (PEM), or a token"})
    hook_secret = hook_secret.strip() or secrets.token_urlsafe(32)
    if not 12 <= len(hook_secret) <= 120:
        raise Refused({"hook_secret": "12 to 120 characters; empty for one of our making"})
    if Forge.objects.count() >= MOST_FORGES:
        raise Refused({"name": f"there are {MOST_FORGES} forges already: remove one first"})
    row = Forge.objects.create(kind=kind, name=name, api=api, place=place, account=account.strip()[:200], key=seal(key.strip()),
                               hook_secret=seal(hook_secret), author=by)
    return row, hook_secret


def forge_of(link: str) -> tuple[Forge | None, str]:
    """Return the forge of an issue's address and its number there; (None, "") where none of the project's forges has it."""
    host = (urlsplit(link).hostname or "").removeprefix("www.")
    for row in Forge.objects.filter(enabled=True):
        issue = FORGES[row.kind].issue(link)
        if issue and issue[0].lower() == row.place.lower() and (urlsplit(row.api).hostname or "").removeprefix("api.") == host:
            return row, issue[1]
    return None, ""


@transaction.atomic
def link_add(thread: Thread, link: str, *, by: Any) -> IssueLink:
    """Link a thread to an issue by its address; where a forge of the project has it, it is told. Raises Refused."""
    link = link.strip()
    try:
        parse_address(link)
    except Refused as refused:
        raise Refused({"address": refused.what}) from refused
    if thread.issues.count() >= MOST_LINKS:
        raise Refused({"address": f"a thread has at most {MOST_LINKS} issues"})
    if thread.issues.filter(address=link).exists():
        raise Refused({"address": "this issue is linked already"})
    forge, number = forge_of(link)
    row = IssueLink.objects.create(thread=thread, forge=forge, address=link, number=number, author=by)
    thread_services.event_add(thread, f"linked {link}", by=by)
    if forge is not None:
        _post(forge, "note", f"note:{row.pk}", {"number": number, "text": f"Talked about in Ridgepoint: {_page(thread)}"}, row)
    return row


@transaction.atomic
def link_remove(row: IssueLink, *, by: Any) -> None:
    """Take a link away; the issue stays."""
    thread_services.event_add(row.thread, f"unlinked {row.address or row.number}", by=by)
    row.delete()


@transaction.atomic
def issue_create(thread: Thread, forge: Forge, title: str, text: str, *, by: Any) -> IssueLink:
    """Let a forge make an issue about a thread's subject. Raises Refused."""
    title, text = " ".join(title.split())[:240], text.replace("\0", "").strip()
    if not title or len(text) > 30_000:
        raise Refused({"title": "a title, and a text of at most 30,000 characters"})
    if thread.issues.count() >= MOST_LINKS:
        raise Refused({"title": f"a thread has at most {MOST_LINKS} issues"})
    row = IssueLink.objects.create(thread=thread, forge=forge, address="", state="making", author=by)
    _post(forge, "issue", f"issue:{row.pk}", {"title": title, "text": text}, row)
    thread_services.event_add(thread, f"issue asked for at {forge.name}", by=by)
    return row


def issue_text(thread: Thread) -> str:
    """Return the text that an issue about a thread's subject begins with."""
    subject = subject_of(thread)
    facts = "\n".join(f"- {name}: {value}" for name, value in subject.facts) if subject else ""
    return f"{thread.title}\n\n{facts}\n\nRidgepoint: {_page(thread)}\n"


def subject_of(thread: Thread) -> Subject | None:
    """Return a thread's subject where its page still names it."""
    of = thread.key if thread.kind == "regression" else urlsplit(thread.path).query if thread.kind == "problem" else ""
    return find(thread.kind, of) if of else None


def gate_tell(gate: Gate) -> int:
    """Say a gate's verdict where its change is: a check of its commit, a comment of its pull request; return how many are due.

    What was said before about the same commit and suite, or in the same pull request, is said anew in the same place.
    """
    count = 0
    for forge in Forge.objects.filter(enabled=True):
        kind = FORGES[forge.kind]
        body = _verdict(gate)
        if forge.checks and "check" in kind.makes and SHA.fullmatch(gate.build.name):
            _post(forge, "check", f"{gate.suite.name}:{gate.build.name}", {**body, "sha": gate.build.name})
            count += 1
        if forge.comments and "comment" in kind.makes and (number := _change_of(gate, forge, kind)):
            _post(forge, "comment", f"{gate.suite.name}:{number}", {**body, "number": number})
            count += 1
    return count


def _change_of(gate: Gate, forge: Forge, kind: ForgeKind) -> str:
    for link in filter(None, (gate.url, gate.build.url)):
        issue = kind.issue(link)
        if issue and issue[0].lower() == forge.place.lower() and ("/pull/" in link or "/merge_requests/" in link):
            return issue[1]
    return ""


def _verdict(gate: Gate) -> dict[str, Any]:
    verdict = gate.verdict or "FAILED"
    page = address(f"/gates/{gate.pk}/", project_slug())
    lines = [f"**{verdict}**: {gate.suite.name}, build `{gate.build.name[:12]}`", gate.reason or "",
             f"[Evidence]({page})" if page else ""]
    state = STATES.get(Verdict(gate.verdict), "unsure") if gate.verdict else "bad"
    return {"name": f"Ridgepoint: {gate.suite.name}", "state": state, "page": page, "text": "\n\n".join(filter(None, lines)),
            "title": f"{verdict}: {gate.reason}"[:250] if gate.reason else verdict}


def _post(forge: Forge, what: str, key: str, body: dict[str, Any], link: IssueLink | None = None) -> ForgePost:
    same = ForgePost.objects.filter(forge=forge, what=what, key=key[:200], body=body, status__in=["waiting", "sent"]).first()
    if same is not None:
        return same
    row, _ = ForgePost.objects.update_or_create(forge=forge, what=what, key=key[:200], defaults={
        "body": body, "link": link, "status": "waiting", "tries": 0, "due": timezone.now(), "error": ""})
    jobs.enqueue_on_commit(QUEUE, TASK, row.pk)
    return row


def _page(thread: Thread) -> str:
    return address(f"/threads/{thread.pk}/", project_slug())


MOST_BYTES = 64 << 10


def arrive(forge: Forge, headers: Mapping[str, str], body: bytes) -> str:
    """Take a message; return what became of it: "taken", "known" or "not for us". Raises Unsigned.

    Nothing of a body is looked at before it is verified.
    """
    kind = FORGES.get(forge.kind)
    if kind is None:
        raise Unsigned("a kind of forge that is not known here")
    try:
        key = kind.verify(unseal(forge.hook_secret), headers, body)
    except Unreadable as error:
        raise Unsigned(str(error)) from error
    if not forge.enabled:
        return "not for us"
    try:
        content = json.loads(body)
    except (ValueError, RecursionError):
        return "not for us"
    arrival = kind.arrived(headers, content) if isinstance(content, dict) else None
    if arrival is None or arrival.place.lower() != forge.place.lower():
        return "not for us"
    with within(project_of(forge) or 0), transaction.atomic():
        _, fresh = ForgeArrival.objects.get_or_create(forge=forge, key=key[:80], defaults={"event": arrival.event[:60]})
        if fresh:
            _take(forge, arrival)
    return "taken" if fresh else "known"


def _take(forge: Forge, found: Arrived) -> None:
    for link in IssueLink.objects.filter(forge=forge, number=found.number).select_related("thread"):
        state = "closed" if found.closed else "open"
        if link.state == state:
            continue
        IssueLink.objects.filter(pk=link.pk).update(state=state)
        thread = link.thread
        thread_services.event_add(thread, f"issue {link.number} {state} at {forge.name}")
        if found.closed and forge.resolves and thread.is_open:
            _resolve(thread, f"issue {link.number} closed at {forge.name}")


def _resolve(thread: Any, note: str) -> None:
    try:
        with transaction.atomic():
            thread_services.status_set(thread, subjects.KINDS[thread.kind].resolved, by=None,
                                       note=note if thread.kind == "regression" else "")
    except Refused as refused:
        thread_services.event_add(thread, f"could not be resolved: {refused}")
