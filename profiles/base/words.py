"""Texts that many rooms write."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any


def pairs_text(values: Mapping[str, Any]) -> str:
    """Return a shape or a configuration in one line: "M=4096 N=512 BLOCK=128"."""
    return " ".join(f"{name}={value}" for name, value in values.items())


def shorten(text: str, most: int) -> str:
    """Return a text of at most so many characters; one that is cut ends with …"""
    return text if len(text) <= most else f"{text[:most - 1].rstrip()}…"


def dims_text(dims: Iterable[int]) -> str:
    """Return the sizes of a tensor as people write them: "4096×1024"."""
    return "×".join(map(str, dims))
