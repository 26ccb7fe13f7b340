"""Serve exactly the Bokeh bundles that the installed package ships, under static/bokeh/js/."""

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
    """The whole package folder would not do: it holds sources whose references no static storage can resolve."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        spec = find_spec("bokeh")       # not imported: it would cost the web process a quarter of a second
        if spec is None or spec.origin is None:
            raise RuntimeError("bokeh is not installed: run `make install`")
        self.storage = FileSystemStorage(location=Path(spec.origin).parent / "server" / "static" / "js")
        self.storage.prefix = PREFIX

    def find(self, path: str, find_all: bool = False, **kwargs: Any) -> str | list[str]:
        folder, _, name = path.rpartition("/")
        found = Path(self.storage.location) / name
        if folder != PREFIX or name not in BUNDLES or not found.exists():
            return []
        return [str(found)] if find_all else str(found)

    def list(self, ignore_patterns: Iterable[str] | None) -> Iterator[tuple[str, FileSystemStorage]]:
        for name in BUNDLES:
            if not utils.matches_patterns(name, ignore_patterns or []):
                yield name, self.storage
