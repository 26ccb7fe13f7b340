"""Requests to a serving engine that an owner named: fixed routes, bounded answers, an address that is checked each time."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from profiles.base.refused import Refused
from profiles.running.engines import metrics
from profiles.running.engines.parameters import NEEDS, START, STOP, VERSIONS
from workers.outgoing import Answer, NotSent, exchange, is_metadata, is_public, parse_address, resolve_host

MOST_ANSWER = 1 << 20
QUICK_S, START_S, STOP_S = 5.0, 60.0, 300.0         # a stop ends when the traces are written


class EngineProblem(Exception):
    """The engine did not do what was asked; `hint`: what helps."""

    def __init__(self, what: str, hint: str = "") -> None:
        super().__init__(what)
        self.what, self.hint = what, hint


@dataclass(frozen=True)
class Engine:
    """`private`: addresses inside the network are meant; those of no service never are."""

    kind: str
    address: str
    token: str = ""
    private: bool = True

    def version(self) -> str:
        """Return the version that it states. Raises EngineProblem."""
        problem = EngineProblem("it states no version", f"is it {self.kind}, at this address?")
        for path in VERSIONS[self.kind]:
            answer = self._ask("GET", path, None, QUICK_S)
            if answer.status == 404:
                continue
            self._check(answer, path)
            try:
                version = json.loads(answer.body)["version"]
            except (ValueError, KeyError, TypeError, RecursionError):
                raise problem from None
            if isinstance(version, str) and version and version.isprintable():
                return version[:80]
        raise problem

    def start(self, parameters: Mapping[str, Any]) -> None:
        """Begin a capture. Raises EngineProblem."""
        self._check(self._ask("POST", START, parameters, START_S), START)

    def stop(self, total_s: float = STOP_S) -> None:
        """End a capture; it returns when the traces are written. Raises EngineProblem."""
        self._check(self._ask("POST", STOP, {}, total_s), STOP)

    def metrics(self) -> metrics.Reading:
        """Return what its metrics say now. Raises EngineProblem."""
        answer = self._ask("GET", metrics.PATH, None, QUICK_S, metrics.MOST_BYTES)
        self._check(answer, metrics.PATH)
        if not answer.whole:
            raise EngineProblem(f"its metrics are above {metrics.MOST_BYTES:,} bytes")
        return metrics.read_metrics(answer.body.decode(errors="replace"), self.kind)

    def _ask(self, method: str, path: str, body: Mapping[str, Any] | None, total_s: float, most_bytes: int = MOST_ANSWER) -> Answer:
        headers = {"Accept": "application/json, text/plain"} | ({"Authorization": f"Bearer {self.token}"} if self.token else {}) | (
            {} if body is None else {"Content-Type": "application/json"})
        try:
            found = checked_addresses(self.address, self.private)
            return exchange(method, self.address.rstrip("/") + path, None if body is None else json.dumps(body).encode(), headers,
                            found=found, most_bytes=most_bytes, total_s=total_s)
        except Refused as error:
            raise EngineProblem(str(error)) from error
        except NotSent as error:
            raise EngineProblem(f"{path}: {error}", "is the server up, and can the worker reach it?") from error

    def _check(self, answer: Answer, path: str) -> None:
        if 200 <= answer.status < 300:
            return
        said = " ".join(answer.body[:300].decode(errors="replace").split())[:160]
        if answer.status == 404:
            raise EngineProblem(f"it has no route {path}", NEEDS[self.kind] if path in (START, STOP) else "")
        if answer.status in (401, 403):
            raise EngineProblem(f"{path}: it refuses the token ({answer.status})", "an owner gives the server's admin or API key")
        if 300 <= answer.status < 400:
            raise EngineProblem(f"{path}: it redirects, which is not followed")
        raise EngineProblem(f"{path}: {answer.status}{': ' + said if said else ''}")


def checked_addresses(address: str, private: bool) -> list[str]:
    """Return where a name leads, once each of it may be asked. Raises Refused, NotSent."""
    parts = parse_address(address)
    found = resolve_host((parts.hostname or "").encode("idna").decode(), parts.port or (443 if parts.scheme == "https" else 80))
    if not found:
        raise NotSent("the name has no address")
    if any(is_metadata(each) for each in found):
        raise Refused("no serving engine has a link-local or metadata address")
    if not private and not all(is_public(each) for each in found):
        raise Refused("it is inside this network; RIDGEPOINT_ENGINE_PRIVATE=1 allows such addresses")
    return found
