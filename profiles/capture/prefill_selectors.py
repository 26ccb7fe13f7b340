"""What a capture's form begins with: the address it was reached by, then what was asked of this program last, then defaults."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.db.models import QuerySet
from django.http import QueryDict

from profiles.capture.about import About
from profiles.capture.selectors import kernel_regex
from profiles.capture.tools import CAPTURE_TOOLS
from profiles.models import Capture, Profile

BASELINES = 30                  # profiles that the form offers to compare with
OF_A_KERNEL = ("kernel", "kernel_id", "launch_skip", "launch_count", "nvtx_include", "nvtx_exclude", "range_filter")
LISTS = ("sections", "metrics")


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
    return {name: _text(name, value) for name, value in values.items()}


def _text(name: str, value: Any) -> Any:
    """Return a stored value as its field draws it."""
    if name == "sections":
        return list(value) if isinstance(value, list | tuple) else [part for part in str(value).replace(",", " ").split() if part]
    return "\n".join(value) if isinstance(value, list | tuple) else value


def baselines(chosen: str) -> QuerySet[Profile]:
    """Return the profiles that a result may open beside: the newest, and the one that is chosen already."""
    ready = Profile.objects.filter(status=Profile.Status.READY).order_by("-created")
    kept = list(ready.values_list("pk", flat=True)[:BASELINES])
    if chosen.isdecimal() and len(chosen) < 19:
        kept.append(int(chosen))
    return ready.filter(pk__in=kept)


def asked(query: Mapping[str, str]) -> dict[str, str]:
    """Return the fields of the form's own that the address fills in."""
    return {name: query[name] for name in ("target", "build", "model", "tags", "baseline") if name in query}
