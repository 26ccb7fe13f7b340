"""Which forges there are: one line each. What a forge speaks is one file, plain functions that make requests and read answers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from webapp.forges import github, gitlab, jira
from webapp.forges.speech import Arrived, Call, Request, Speaker


@dataclass(frozen=True)
class ForgeKind:
    """`makes` says which of check, comment, issue, note it takes; `say` makes the request of one, `read` its id and address from
    the answer; `verify` refuses what a forge did not send, `arrived` reads what it did."""

    name: str
    label: str
    api: str                                            # where it is unless somebody says otherwise
    makes: frozenset[str]
    issue: Callable[[str], tuple[str, str] | None]      # address of an issue -> (place, number)
    ready: Callable[[Speaker, Call], Mapping[str, str]]             # headers with a token, fetched where it takes a request
    say: Callable[[Speaker, str, Mapping[str, Any], str], Request]
    read: Callable[[str, Mapping[str, Any]], tuple[str, str]]        # (what, answer) -> (id or number, address)
    verify: Callable[[str, Mapping[str, str], bytes], str]           # (secret, headers, body) -> delivery id; raises Unsigned
    arrived: Callable[[Mapping[str, str], Mapping[str, Any]], Arrived | None]
    account: str = ""                                   # what the field of the account holds


FORGES: Mapping[str, ForgeKind] = {kind.name: kind for kind in (
    ForgeKind("github", "GitHub", "https://api.github.com", frozenset({"check", "comment", "issue", "note"}), github.issue_of,
              github.ready, github.say, github.read, github.verify, github.arrived, "App id / installation id"),
    ForgeKind("gitlab", "GitLab", "https://gitlab.com/api/v4", frozenset({"check", "comment", "issue", "note"}), gitlab.issue_of,
              gitlab.ready, gitlab.say, gitlab.read, gitlab.verify, gitlab.arrived),
    ForgeKind("jira", "Jira", "", frozenset({"issue", "note"}), jira.issue_of, jira.ready, jira.say, jira.read, jira.verify,
              jira.arrived, "mail address of the account; empty: a token of Jira Data Center"),
)}
