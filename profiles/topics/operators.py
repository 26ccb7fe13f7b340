"""What the page of the topic "operators" shows beside its tables."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from profiles.charts import operators as charts
from profiles.models import Profile

TREES = {"stacks": "call stacks", "modules": "modules"}


def context(profile: Profile, document: dict[str, Any], params: Mapping[str, str]) -> dict[str, Any]:
    """`?tree=stacks` or `modules` chooses the tree that is drawn; modules where they are recorded."""
    if not document["applies"]:
        return {}
    numbers = document["numbers"]
    trees = {name: words for name, words in TREES.items() if numbers[name]}
    if "modules" in trees and numbers["module_kind"] == "range":
        trees["modules"] = "ranges"
    chosen = params.get("tree", "")
    if chosen not in trees:
        chosen = "modules" if numbers["module_kind"] == "module" else "stacks"
    found = charts.boxes(numbers[chosen], numbers["gpu_ns"]) if chosen in trees else []
    return {
        "bars": charts.bars(numbers["bars"], numbers["gpu_ns"]), "legend": charts.legend(numbers["bars"]),
        "gpu_ns": numbers["gpu_ns"], "kind": numbers["kind"],
        "boxes": found, "trees": trees, "tree": chosen, "tree_words": trees.get(chosen, ""),
        "rows": 1 + max((box.row for box in found), default=0),
        "missed": next((at for at, table in enumerate(document["tables"]) if table["title"].startswith("Could tensor")), None)}
