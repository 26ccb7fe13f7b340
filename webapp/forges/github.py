"""GitHub, as an App: check runs, comments of pull requests, issues.

https://docs.github.com/en/rest (checks/runs, issues/comments, issues/issues), apps/creating-github-apps,
webhooks/using-webhooks/validating-webhook-deliveries; API version 2022-11-28.
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

import jwt

from webapp.forges.speech import Arrived, Call, Request, Speaker, Unsigned, check_digest, text

ISSUE = re.compile(r"/([\w.\-]+/[\w.\-]+)/(?:issues|pull)/(\d{1,12})/?")
HEADERS = {"Accept": "application/vnd.github+json", "X-GitHub-Api-Version": "2022-11-28"}
TOKEN_S = 540           # an App's own token is good for ten minutes at most
CONCLUSIONS = {"good": "success", "bad": "failure", "unsure": "neutral"}


def issue_of(address: str) -> tuple[str, str] | None:
    """Return (owner/name, number) of an issue or pull request."""
    match = ISSUE.fullmatch(urlsplit(address).path)
    return (match[1], match[2]) if match else None


def app_token(account: str, key: str, now_s: float) -> str:
    """Return the JWT (RS256) of an App: issued a minute ago, since clocks differ. Raises ValueError for a key that is none."""
    app = account.partition("/")[0].strip()
    try:
        return jwt.encode({"iat": int(now_s) - 60, "exp": int(now_s) - 60 + TOKEN_S, "iss": app}, key, algorithm="RS256")
    except (jwt.PyJWTError, TypeError) as error:
        raise ValueError(f"the App's private key is not read: {error}") from error


def ready(who: Speaker, call: Call) -> Mapping[str, str]:
    """Return headers with an installation's token, which is good for an hour and for one repository."""
    installation = who.account.partition("/")[2].strip()
    if not installation.isdecimal():
        raise ValueError("the account is “App id / installation id”, like 12345 / 67890")
    own = {**HEADERS, "Authorization": f"Bearer {app_token(who.account, who.key, time.time())}"}
    payload = {"repositories": [who.place.partition("/")[2]]}
    answer = call(Request("POST", f"/app/installations/{installation}/access_tokens", payload), own)
    return {**HEADERS, "Authorization": f"Bearer {text(answer.get('token'), 500)}"}


def say(who: Speaker, what: str, body: Mapping[str, Any], remote: str) -> Request:
    """Return the request that says something, or says it anew where it has an id there."""
    repository = f"/repos/{who.place}"
    if what == "check":
        run = {"name": body["name"], "head_sha": body["sha"], "status": "completed", "conclusion": CONCLUSIONS[body["state"]],
               "details_url": body["page"], "output": {"title": body["title"], "summary": body["text"][:65_000]}}
        runs = f"{repository}/check-runs"
        return Request("PATCH", f"{runs}/{remote}", run) if remote else Request("POST", runs, run)
    if what == "issue":
        return Request("POST", f"{repository}/issues", {"title": body["title"], "body": body["text"]})
    if remote:
        return Request("PATCH", f"{repository}/issues/comments/{remote}", {"body": body["text"]})
    return Request("POST", f"{repository}/issues/{body['number']}/comments", {"body": body["text"]})


def read(what: str, answer: Mapping[str, Any]) -> tuple[str, str]:
    """Return (id, address) from an answer; of an issue its number."""
    return text(answer.get("number" if what == "issue" else "id")), text(answer.get("html_url"), 500)


def verify(secret: str, headers: Mapping[str, str], body: bytes) -> str:
    """Return the digest as what tells a message from others: the delivery's id is not signed. Raises Unsigned."""
    return check_digest(secret, headers.get("x-hub-signature-256", ""), body)[:80]


def arrived(headers: Mapping[str, str], body: Mapping[str, Any]) -> Arrived | None:
    """Return what an event says of an issue; None for other events."""
    issue, repository, action = body.get("issue"), body.get("repository"), body.get("action")
    if headers.get("x-github-event") != "issues" or not isinstance(issue, dict) or not isinstance(repository, dict):
        return None
    if action not in ("closed", "reopened"):
        return None
    return Arrived(f"issues.{action}", text(repository.get("full_name")), text(issue.get("number")), issue.get("state") == "closed")


__all__ = ["Unsigned", "app_token", "arrived", "issue_of", "read", "ready", "say", "verify"]
