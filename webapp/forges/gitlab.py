"""GitLab: commit statuses, notes of merge requests, issues.

https://docs.gitlab.com/api/ (commits: set a pipeline status, notes, issues), user/project/integrations/webhooks.
"""

from __future__ import annotations

import hmac
import re
from collections.abc import Mapping
from hashlib import sha256
from typing import Any
from urllib.parse import quote, urlsplit

from webapp.forges.speech import Arrived, Call, Request, Speaker, Unsigned, text

ISSUE = re.compile(r"/([\w.\-]+(?:/[\w.\-]+)+?)/-/(?:issues|work_items|merge_requests)/(\d{1,12})/?")
STATES = {"good": "success", "bad": "failed", "unsure": "success"}       # GitLab has no word for undecided: the description says so


def issue_of(address: str) -> tuple[str, str] | None:
    """Return (group/project, number) of an issue or merge request."""
    match = ISSUE.fullmatch(urlsplit(address).path)
    return (match[1], match[2]) if match else None


def ready(who: Speaker, call: Call) -> Mapping[str, str]:
    """Return headers with the token of a project, group or person."""
    return {"PRIVATE-TOKEN": who.key}


def say(who: Speaker, what: str, body: Mapping[str, Any], remote: str) -> Request:
    """Return the request that says something, or says it anew where it has an id there. A status of one name replaces itself."""
    project = f"/projects/{quote(who.place, safe='')}"
    if what == "check":
        return Request("POST", f"{project}/statuses/{body['sha']}", {
            "state": STATES[body["state"]], "name": body["name"], "target_url": body["page"], "description": body["title"][:255]})
    if what == "issue":
        return Request("POST", f"{project}/issues", {"title": body["title"], "description": body["text"]})
    notes = f"{project}/{'merge_requests' if what == 'comment' else 'issues'}/{body['number']}/notes"
    return Request("PUT", f"{notes}/{remote}", {"body": body["text"]}) if remote else Request("POST", notes, {"body": body["text"]})


def read(what: str, answer: Mapping[str, Any]) -> tuple[str, str]:
    """Return (id, address) from an answer; of an issue its number in the project."""
    return text(answer.get("iid" if what == "issue" else "id")), text(answer.get("web_url"), 500)


def verify(secret: str, headers: Mapping[str, str], body: bytes) -> str:
    """Return what tells a message from others. GitLab sends the secret itself, and signs nothing. Raises Unsigned."""
    if not secret or not hmac.compare_digest(secret.encode(), headers.get("x-gitlab-token", "").encode("utf-8", "replace")):
        raise Unsigned("X-Gitlab-Token is not the secret")
    return sha256(body).hexdigest()


def arrived(headers: Mapping[str, str], body: Mapping[str, Any]) -> Arrived | None:
    """Return what an event says of an issue; None for other events."""
    issue, project = body.get("object_attributes"), body.get("project")
    if body.get("object_kind") != "issue" or not isinstance(issue, dict) or not isinstance(project, dict):
        return None
    if issue.get("action") not in ("close", "reopen"):
        return None
    return Arrived(f"issue.{issue['action']}", text(project.get("path_with_namespace")), text(issue.get("iid")),
                   issue.get("state") == "closed")
