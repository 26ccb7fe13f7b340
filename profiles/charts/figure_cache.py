"""Figures that were made already: a Bokeh figure takes some 80 ms to build, longer than everything else of its page."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Any

KEPT_FIGURES = 128
_figures: OrderedDict[Hashable, dict[str, Any] | None] = OrderedDict()


def cached_figure(key: Hashable, make: Callable[[], dict[str, Any] | None]) -> dict[str, Any] | None:
    """The figure of `key`, which names everything it is made of; the latest ones are kept."""
    if key in _figures:
        _figures.move_to_end(key)
        return _figures[key]
    made = _figures[key] = make()
    while len(_figures) > KEPT_FIGURES:
        _figures.popitem(last=False)
    return made
