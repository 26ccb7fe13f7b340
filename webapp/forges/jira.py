"""Jira, Cloud and Data Center: issues and comments.

https://developer.atlassian.com/cloud/jira/platform/rest/v2/ (issues, issue comments), webhooks (X-Hub-Signature).
"""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from webapp.forges.speech import Arrived, Call, Request, Speaker, check_digest, text

ISSUE = re.compile(r"/(?:.*/)?browse/([A-Z][A-Z0-9_]{1,40})-(\d{1,12})/?")


def issue_of(address: str) -> tuple[str, str] | None:
    """Return (project, "PERF-12") of an issue."""
    match = ISSUE.fullmatch(urlsplit(address).path)
    return (match[1], f"{match[1]}-{match[2]}") if match else None


def ready(who: Speaker, call: Call) -> Mapping[str, str]:
    """Return headers: Cloud takes mail address and API token, Data Center a personal token."""
    basic = b64encode(f"{who.account}:{who.key}".encode()).decode()
    return {"Accept": "application/json", "Authorization": f"Basic {basic}" if who.account else f"Bearer {who.key}"}


def say(who: Speaker, what: str, body: Mapping[str, Any], remote: str) -> Request:
    """Return the request that makes an issue, or a comment of one."""
    if what == "issue":
        return Request("POST", "/rest/api/2/issue", {"fields": {
            "project": {"key": who.place}, "issuetype": {"name": "Task"}, "summary": body["title"][:255],
            "description": body["text"]}})
    notes = f"/rest/api/2/issue/{body['number']}/comment"
    return Request("PUT", f"{notes}/{remote}", {"body": body["text"]}) if remote else Request("POST", notes, {"body": body["text"]})


def read(what: str, answer: Mapping[str, Any]) -> tuple[str, str]:
    """Return (id, address) from an answer; of an issue its key and the page where people read it."""
    if what != "issue":
        return text(answer.get("id")), ""
    key, own = text(answer.get("key")), text(answer.get("self"), 500)
    return key, f"{own.partition('/rest/')[0]}/browse/{key}" if own else ""


def verify(secret: str, headers: Mapping[str, str], body: bytes) -> str:
    """Return the digest as what tells a message from others. Raises Unsigned."""
    return check_digest(secret, headers.get("x-hub-signature", ""), body)[:80]


def arrived(headers: Mapping[str, str], body: Mapping[str, Any]) -> Arrived | None:
    """Return what an event says of an issue whose status changed; None for other events."""
    issue, changes = body.get("issue"), body.get("changelog")
    items = changes.get("items") if isinstance(changes, dict) else None
    if body.get("webhookEvent") != "jira:issue_updated" or not isinstance(issue, dict) or not isinstance(items, list):
        return None
    if not any(isinstance(change, dict) and change.get("field") == "status" for change in items):
        return None
    fields = issue.get("fields")
    status = fields.get("status") if isinstance(fields, dict) else None
    category = status.get("statusCategory") if isinstance(status, dict) else None
    key = text(issue.get("key"))
    return Arrived("issue.status", key.rpartition("-")[0], key, isinstance(category, dict) and category.get("key") == "done")
