"""An edited space in words: how it differs from the operator's own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any


def edit_text(space: Mapping[str, Any] | None) -> str:
    """Return "BM 64, 128 (without 16, 32); num_stages with 6; BM * BN <= 8192"; "" where it is the operator's own."""
    if not space:
        return ""
    parts = [parameter_text(name, values, space.get("own", {}).get(name, ())) for name, values in space["parameters"].items()]
    return "; ".join([*parts, *space["constraints"]])


def parameter_text(name: str, values: Sequence[Any], own: Sequence[Any]) -> str:
    """Return what of a parameter is left, taken out and added."""
    added, without = [each for each in values if each not in own], [each for each in own if each not in values]
    if not without:
        return f"{name} with {_listed(added)}"
    more = f", with {_listed(added)}" if added else ""
    return f"{name} {_listed([each for each in values if each in own] or values)} (without {_listed(without)}{more})"


def _listed(values: Sequence[Any]) -> str:
    return ", ".join(map(str, values))
