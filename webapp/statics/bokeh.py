"""Serves the Bokeh bundles of the installed package under static/bokeh/js/."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from django.contrib.staticfiles import utils
from django.contrib.staticfiles.finders import BaseFinder
from django.core.files.storage import FileSystemStorage

PREFIX = "bokeh/js"
BUNDLES = ("bokeh.min.js", "bokeh-gl.min.js", "bokeh-widgets.min.js", "bokeh-tables.min.js", "bokeh-api.min.js")


class BokehFinder(BaseFinder):
    """Finds the bundles alone: the folder's sources hold references that no storage resolves."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        spec = find_spec("bokeh")       # not imported: it would cost the web process a quarter of a second
        if spec is None or spec.origin is None:
            raise RuntimeError("bokeh is not installed: run `make install`")
        self.storage = FileSystemStorage(location=Path(spec.origin).parent / "server" / "static" / "js")
        self.storage.prefix = PREFIX        # type: ignore[attr-defined]    # as Django's own finder sets it

    def find(self, path: str, find_all: bool = False, **kwargs: Any) -> str | list[str]:     # type: ignore[override]    # one signature, where the stub has one for each `find_all`
        folder, _, name = path.rpartition("/")
        file = Path(self.storage.location) / name
        if folder != PREFIX or name not in BUNDLES or not file.exists():
            return []
        return [str(file)] if find_all else str(file)

    def list(self, ignore_patterns: Iterable[str] | None) -> Iterator[tuple[str, FileSystemStorage]]:
        for name in BUNDLES:
            if not utils.matches_patterns(name, ignore_patterns or []):
                yield name, self.storage
