"""What threads are about: one line a kind of subject. A subject outlives the rows that show it: findings are found anew with every
profile, so theirs are named as decisions about advice are: kernel family (or model), GPU and rule."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qsl

from django.urls import get_script_prefix, reverse

from profiles.base.refused import Refused
from profiles.base.words import pairs_text
from profiles.models import Finding
from tuner.gate.regressions.services import change_regression
from tuner.models import Regression
from webapp.problem import address
from webapp.threads.models import Thread

KEY_CHARS = 200
OWN_STATUSES = tuple((str(value), str(label)) for value, label in Thread.Status.choices)
ENDED = frozenset({Thread.Status.RESOLVED.value, Thread.Status.WONTFIX.value})
ANSWERED = frozenset({Regression.State.FIXED.value, Regression.State.INTENDED.value, Regression.State.ENVIRONMENT.value})


@dataclass(frozen=True)
class Subject:
    """One subject. `key` names it for good, `path` is its page within the project; `kernel` and `suite` are what followers name."""

    kind: str
    key: str
    title: str
    path: str
    kernel: str = ""
    suite: str = ""
    facts: tuple[tuple[str, str], ...] = ()         # for the text of an issue


@dataclass(frozen=True)
class Kind:
    """A kind of subject: `find` gives the subject of what a page names (an id, a query), `state` and `change` are for subjects
    with a status of their own; threads keep that of others. `resolved` is the status that a closed issue sets."""

    name: str
    label: str
    find: Callable[[str], Subject | None]
    statuses: tuple[tuple[str, str], ...] = OWN_STATUSES
    ended: frozenset[str] = ENDED
    resolved: str = Thread.Status.RESOLVED.value
    needs: str = "webapp.change_thread"
    state: Callable[[str], str | None] | None = None
    change: Callable[[str, str, str, Any], None] | None = None           # (key, status, note, by); raises Refused


def _row(model: Any, of: str, *related: str) -> Any:
    return model.objects.select_related(*related).filter(pk=int(of)).first() if of.isdecimal() and len(of) < 19 else None


def _key(*parts: object) -> str:
    key = "|".join(str(part) for part in parts)
    if len(key) <= KEY_CHARS:
        return key
    return f"{key[:KEY_CHARS - 33]}#{hashlib.sha256(key.encode()).hexdigest()[:32]}"


def path_of(url: str) -> str:
    """Return an address without the prefix of its project, as rows keep it."""
    return f"/{url.removeprefix(get_script_prefix())}"[:500]


def finding_key(row: Finding) -> str:
    """Return what names a finding in every profile: rule, GPU, and kernel family, kernel name or model."""
    kernel = row.kernel
    if kernel is None:
        return _key(row.rule, row.profile.gpu, "model", row.profile.model)
    if kernel.family_id is not None:
        return _key(row.rule, row.profile.gpu, "family", kernel.family_id)
    return _key(row.rule, row.profile.gpu, "kernel", kernel.name)


def _finding(of: str) -> Subject | None:
    row = _row(Finding, of, "profile", "kernel__family")
    if row is None:
        return None
    kernel = row.kernel
    named = "" if kernel is None else kernel.family.name if kernel.family_id else kernel.short_name
    url = reverse("kernel", args=[row.profile_id, kernel.pk]) if kernel else f"{reverse('profile', args=[row.profile_id])}#findings"
    facts = [("profile", row.profile.name), ("GPU", row.profile.gpu), ("rule", row.rule), ("kernel", named),
             ("advice", row.advice.replace("`", ""))]
    return Subject("finding", finding_key(row), row.title.replace("`", "")[:300], path_of(url), named[:200],
                   facts=tuple(fact for fact in facts if fact[1]))


def _regression(of: str) -> Subject | None:
    row = _row(Regression, of, "suite", "build", "good")
    if row is None:
        return None
    size = f"{(row.ratio - 1) * 100:+.1f} %" if row.ratio else "slower"
    facts = [("suite", row.suite.name), ("build", row.build.name), ("last good build", row.good.name if row.good else ""),
             ("change", size if row.ratio else ""), ("GPU", row.gpu), ("toolkit", row.toolkit), ("driver", row.driver),
             ("kernels", ", ".join(row.kernels[:8])), ("evidence", row.why)]
    return Subject("regression", str(row.pk), f"{row.family}: {size} since {row.build.name}"[:300],
                   path_of(reverse("regression", args=[row.pk])), row.family[:200], row.suite.name,
                   tuple(fact for fact in facts if fact[1]))


def _problem(of: str) -> Subject | None:
    try:
        query = dict(parse_qsl(of, max_num_fields=20))
    except ValueError:
        return None
    one = address.read(query)
    if one is None:
        return None
    shape = pairs_text(one.shape)
    return Subject("problem", _key(one.operator, one.dtype, shape, one.gpu), f"{one.operator} {one.dtype} {shape}"[:300],
                   path_of(one.url), one.operator, facts=(("operator", one.operator), ("type", one.dtype), ("shape", shape),
                                                          *((("GPU", one.gpu),) if one.gpu else ())))


def _regression_state(key: str) -> str | None:
    state = Regression.objects.filter(pk=int(key)).values_list("state", flat=True).first()
    return None if state is None else str(state)


def _regression_change(key: str, status: str, note: str, by: Any) -> None:
    row = Regression.objects.select_related("suite", "build").filter(pk=int(key)).first()
    if row is None:
        raise Refused({"status": "this regression is gone"})
    change_regression(row, status, note=note, by=by)


KINDS: Mapping[str, Kind] = {kind.name: kind for kind in (
    Kind("finding", "finding", _finding),
    Kind("regression", "regression", _regression, statuses=tuple((str(state), str(state)) for state in Regression.State.values),
         ended=ANSWERED, resolved=Regression.State.FIXED.value, needs="tuner.change_regression", state=_regression_state,
         change=_regression_change),
    Kind("problem", "kernel problem", _problem),
)}


def find(kind: str, of: str) -> Subject | None:
    """Return the subject that a page names; None where there is none, or it is of another project."""
    subject_kind = KINDS.get(kind)
    return subject_kind.find(of) if subject_kind and "\0" not in of else None
