"""What the builds page looks at: a suite, the environment, the line of builds and the kernel, as the address says."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from django.utils.http import urlencode

from tuner.builds.series_selectors import environments, lines
from tuner.models import KernelRun, Suite
from tuner.suites.run_selectors import build_totals

FIELDS = ("suite", "on", "gpu", "toolkit", "driver", "branch", "kernel")
MOST_CHARS = 400


@dataclass(frozen=True)
class Choice:
    suite: Suite
    where: dict[str, Any]               # one of `environments`
    branch: str = ""
    kernel: str = ""                    # key; "": the page chooses
    places: tuple[dict[str, Any], ...] = ()         # all environments that could be chosen
    branches: tuple[str, ...] = ()
    missed: str = ""                    # what was asked for and is not there

    def query(self, **changes: str) -> str:
        """The address' question, with what replaces its parts."""
        asked = {"suite": self.suite.name, "on": self.where["text"], "branch": self.branch, "kernel": self.kernel, **changes}
        return urlencode({name: value for name, value in asked.items() if value})

    def with_kernel(self, key: str) -> Choice:
        return replace(self, kernel=key)


def suites() -> list[Suite]:
    """Those that can be looked at: the one with the newest run first, then those without runs."""
    found = list(Suite.objects.order_by("name")[:200])
    newest = newest_suite_id()
    return sorted(found, key=lambda suite: suite.pk != newest)


def newest_suite_id() -> int | None:
    runs = KernelRun.objects.filter(rejected="").exclude(kernel__suite__kind=Suite.Kind.WINNERS)
    newest: int | None = runs.order_by("-pk").values_list("kernel__suite", flat=True).first()
    return newest


def choose(query: Mapping[str, str]) -> Choice | None:
    """By the address, else the newest; None where no suite has a run yet."""
    asked = {name: query.get(name, "")[:MOST_CHARS] for name in FIELDS}
    suite = Suite.objects.filter(name=asked["suite"]).first() if asked["suite"] and "\0" not in asked["suite"] else None
    missed = f"There is no suite {asked['suite']}." if asked["suite"] and suite is None else ""
    suite = suite or Suite.objects.filter(pk=newest_suite_id()).first()
    totals = build_totals(suite) if suite else []
    places = environments(suite, totals) if suite else []
    if suite is None or not places:
        return None
    where = next((place for place in places if _fits(place, asked)), None)
    if where is None:
        where, missed = places[0], missed or f"{suite.name} has no run on {asked['on'] or asked['gpu'] or 'that environment'}."
    branches = lines(suite, {build for *_, build, _, _ in totals})
    branch = asked["branch"] if asked["branch"] in branches else branches[0]
    return Choice(suite, where, branch, asked["kernel"], tuple(places), tuple(branches), missed)


def _fits(place: Mapping[str, Any], asked: Mapping[str, str]) -> bool:
    if asked["on"]:
        return bool(place["text"] == asked["on"])
    return all(asked[name] in ("", place[name]) for name in ("gpu", "toolkit", "driver"))
