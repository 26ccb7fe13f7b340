"""What a capture's form begins with: the address it was reached by, then what was asked of this program last, then defaults."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from django.db.models import QuerySet
from django.http import QueryDict

from profiles.capture.about import About
from profiles.capture.selectors import bare_name, kernel_regex, target_of
from profiles.capture.tools import CAPTURE_TOOLS
from profiles.models import Capture, Profile

BASELINES = 30                  # profiles that the form offers to compare with
OF_A_KERNEL = ("kernel", "kernel_id", "launch_skip", "launch_count", "nvtx_include", "nvtx_exclude", "range_filter")


def last_capture(owner: Any, target_id: str, tool: str) -> Capture | None:
    """Return the newest capture of a program with a tool, somebody's own before another's."""
    if not target_id.isdecimal() or len(target_id) > 18:
        return None
    rows = Capture.objects.filter(target_id=int(target_id), tool=tool).defer("log").order_by("-created")
    return rows.filter(owner=owner).first() or rows.first()


def again(capture_id: str) -> Capture | None:
    """Return the capture that is to be made once more."""
    known = capture_id.isdecimal() and len(capture_id) < 19
    return Capture.objects.select_related("target").defer("log").filter(pk=int(capture_id)).first() if known else None


def initial(query: QueryDict, about: About, tool: str, last: Capture | None) -> dict[str, Any]:
    """Return the values of a tool's fields. Of another capture, nothing is taken that names a kernel where one is asked about."""
    fields = CAPTURE_TOOLS[tool].options.READ
    values = {name: value for name, value in about.options.get(tool, {}).items() if name in fields}
    if last is not None and "fresh" not in query:
        values |= {name: value for name, value in last.options.items()
                   if name in fields and not ("kernel" in query and name in OF_A_KERNEL)}
    values |= {name: query[name] for name in fields if name in query and name != "kernel"}
    if "kernel" in query and "kernel" in fields:
        values["kernel"] = "\n".join(kernel_regex(name) for name in query.getlist("kernel")[:20])
    kinds = {field.name: field.kind for field in CAPTURE_TOOLS[tool].fields}
    return {name: _drawn(kinds[name], value) for name, value in values.items()}


def _drawn(kind: str, value: Any) -> Any:
    """Return a stored value, or one of an address, as a field of this kind draws it."""
    if kind == "many":
        return list(value) if isinstance(value, list | tuple) else [part for part in str(value).replace(",", " ").split() if part]
    return "\n".join(value) if isinstance(value, list | tuple) else value


def baselines(chosen: str) -> QuerySet[Profile]:
    """Return the profiles that a result may open beside: the newest, and the one that is chosen already."""
    ready = Profile.objects.filter(status=Profile.Status.READY).order_by("-created")
    kept = list(ready.values_list("pk", flat=True)[:BASELINES])
    if chosen.isdecimal() and len(chosen) < 19:
        kept.append(int(chosen))
    return ready.filter(pk__in=kept)


def is_about_something(query: Mapping[str, str]) -> bool:
    """Return whether the address names what is to be captured: then no program is chosen that may have nothing to do with it."""
    return any(query.get(name) for name in ("profile", "kernel", "build"))


def program_for(query: Mapping[str, str]) -> str:
    """Return the id of the program that made what the address names: the profile, else the kernel, the build; "" if unknown."""
    if made := target_of(query.get("profile", "")):
        return made
    rows = Capture.objects.filter(target__enabled=True).order_by("-pk")
    kernel = bare_name(re.sub(r"\\(.)", r"\1", query.get("kernel", "")))[:200]
    found = rows.filter(profile__kernels__name__contains=kernel).first() if kernel else None
    if found is None and query.get("build"):
        found = rows.filter(build=query["build"][:80]).first()
    return str(found.target_id) if found is not None else ""


def asked(query: Mapping[str, str]) -> dict[str, str]:
    """Return the fields of the form's own that the address fills in."""
    return {name: query[name] for name in ("target", "build", "model", "tags", "baseline") if name in query}
