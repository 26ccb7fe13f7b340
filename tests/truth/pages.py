"""Every kind of page of a ready profile, and what its answer has to hold: a new kind is a line in PAGES."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from profiles.models import Profile
from profiles.topics.table import TOPICS
from tests.truth.files import COUNTERS, SUMMARY, TRACE, Recording

FIGURE = re.compile(r'data-figure="([^"]+)"')
SCRIPT = re.compile(r'<script id="([^"]+)" type="application/json">(.*?)</script>', re.DOTALL)
BARS = re.compile(r'<div class="bars"[^>]*>(.*?)</div>', re.DOTALL)
EVERY = (TRACE, COUNTERS, SUMMARY)
COUNTED = (TRACE, COUNTERS)             # whose launches are known one by one


@dataclass(frozen=True)
class Page:
    """`address`: as `Asking.answer` takes it, of a profile and its kernel with most time.

    `varies`: with the format of a file; else only with its kind, and `make test` asks one file of each kind.
    """

    name: str
    kinds: tuple[str, ...]
    address: Callable[[Profile, Any], str]
    has: Callable[[Recording], bool] = lambda file: True
    varies: bool = False

    def is_of(self, file: Recording) -> bool:
        """Return whether the profile of a file has such a page."""
        return file.kind in self.kinds and self.has(file)


def below(path: str) -> Callable[[Profile, Any], str]:
    return lambda profile, kernel: path


def of_kernel(path: str) -> Callable[[Profile, Any], str]:
    return lambda profile, kernel: f"kernels/{kernel.pk}/{path}"


def has_kernels(file: Recording) -> bool:
    return file.has_kernels


def has_times(file: Recording) -> bool:
    return file.has_times


PAGES = (
    Page("overview", EVERY, below(""), varies=True),
    Page("overview sorted", EVERY, below("?sort=-mean"), has_kernels),
    Page("kernels", EVERY, below("kernels/"), has_kernels, varies=True),
    Page("kernels by shape", COUNTED, below("kernels/?kernels=shapes"), has_kernels),
    Page("timeline", (TRACE,), below("timeline/")),
    Page("timeline, data", (TRACE,), below("api/timeline/"), varies=True),
    *(Page(f"analysis {topic.name}", (TRACE,), below(f"analysis/{topic.name}/"), varies=True) for topic in TOPICS),
    Page("analysis operators, stacks", (TRACE,), below("analysis/operators/?tree=stacks&rows=all"), has_kernels),
    Page("roofline", COUNTED, below("roofline/"), has_kernels),
    Page("report", EVERY, below("report/"), varies=True),
    Page("report, Markdown", EVERY, below("api/summary/?format=md")),
    Page("SQL", EVERY, lambda profile, kernel: f"/sql/?profiles={profile.pk}"),
    Page("compare", COUNTED, lambda profile, kernel: f"/compare/?a={profile.pk}&b={profile.pk}", has_kernels),
    Page("kernel", EVERY, of_kernel(""), has_kernels, varies=True),
    *(Page(f"kernel, {tab}", COUNTED, of_kernel(f"{tab}/"), has_kernels)
      for tab in ("memory", "warps", "launches", "rules", "raw", "source", "sampling")),
    Page("occupancy", EVERY, lambda profile, kernel: f"/occupancy/?kernel={kernel.pk}", has_kernels),
    Page("family", EVERY, lambda profile, kernel: f"/kernels/{kernel.family_id}/", has_times),
    Page("shape", COUNTED, lambda profile, kernel: f"/kernels/shapes/{kernel.shapes.order_by('-total_ns')[0].pk}/", has_times),
    Page("delete", EVERY, below("delete/")),
    Page("counters", (COUNTERS,), below("api/counters/"), varies=True),
    Page("tables", (SUMMARY,), below("api/tables/"), varies=True),
)


def empty_figures(markup: str) -> list[str]:
    """Return the figures of a page that draw nothing: without data, or bars without a part."""
    data = dict(SCRIPT.findall(markup))
    empty = [name for name in FIGURE.findall(markup) if not _has_data(json.loads(data.get(name, "null")))]
    return empty + ["bars" for bars in BARS.findall(markup) if "<span" not in bars]


def _has_data(item: Any) -> bool:
    """Whether any source of a Bokeh document holds a value."""
    return isinstance(item, dict) and any(_is_filled(source["attributes"].get("data")) for source in _sources(item))


def _sources(item: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    left = [item]
    while left:
        each = left.pop()
        if isinstance(each, dict):
            if each.get("name") == "ColumnDataSource" and "attributes" in each:
                found.append(each)
            left += each.values()
        elif isinstance(each, list):
            left += each
    return found


def _is_filled(data: Any) -> bool:
    if not isinstance(data, dict):
        return False
    return any(map(_length, [column for _, column in data["entries"]] if "entries" in data else data.values()))


def _length(column: Any) -> int:
    if isinstance(column, dict) and column.get("type") == "ndarray":
        array = column["array"]
        return len(base64.b64decode(array["data"])) if isinstance(array, dict) else len(array)
    return len(column) if isinstance(column, list) else 0
