"""Serve exactly the Bokeh bundles that the installed package ships, under static/bokeh/js/."""
from importlib.util import find_spec
from pathlib import Path
from django.contrib.staticfiles.finders import BaseFinder
from django.contrib.staticfiles import utils
from django.core.files.storage import FileSystemStorage

NAMES = ["bokeh.min.js", "bokeh-gl.min.js", "bokeh-widgets.min.js", "bokeh-tables.min.js", "bokeh-api.min.js"]

class BokehFinder(BaseFinder):
    def __init__(self, *a, **k):
        root = Path(find_spec("bokeh").origin).parent / "server" / "static" / "js"
        self.storage = FileSystemStorage(location=root)
        self.storage.prefix = "bokeh/js"
    def find(self, path, find_all=False, **kw):
        p = Path(self.storage.location) / Path(path).name
        ok = path.startswith("bokeh/js/") and Path(path).name in NAMES and p.exists()
        return ([str(p)] if find_all else str(p)) if ok else []
    def list(self, ignore_patterns):
        for n in NAMES:
            if not utils.matches_patterns(n, ignore_patterns or []):
                yield n, self.storage
