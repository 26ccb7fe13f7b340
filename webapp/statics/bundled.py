"""Our scripts and styles bundled, under an address with the hash of their sources.

`{% static 'js/timeline/main.js' %}` becomes /static/bundles/<hash>/js/timeline/main.js. The files are made by
webapp.statics.bundler when the first process of a version needs them, and kept in the cache folder. With RIDGEPOINT_DEBUG=1
pages load every module as it is written. Either way the modules lie under their own paths as well.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

from django.conf import settings
from django.contrib.staticfiles import utils
from django.contrib.staticfiles.finders import BaseFinder
from django.contrib.staticfiles.storage import StaticFilesStorage
from django.core.files.storage import FileSystemStorage

from webapp.statics import bundler

PREFIX = "bundles"
_BUNDLED = (".js", ".css")
_AS_THEY_ARE = (".svg",)
_NAMED = re.compile(r"{%\s*static '(js/[^']+)'")
_TAGGED = re.compile(r"{%\s*js ([^%]+)%}")
_VERSIONS_KEPT = 3


def scripts_named(template: str) -> set[str]:
    """Return the scripts that a template names: `{% js "lib/save" %}` or `{% static 'js/lib/save.js' %}`."""
    tagged = " ".join(_TAGGED.findall(template)).replace('"', "").split()
    return {*_NAMED.findall(template), *(f"js/{name}.js" for name in tagged)}


@cache
def bundled_folder() -> Path:
    """Return the folder of this version's bundle, named by its hash; made where it is missing. Raises BundleError."""
    base = Path(settings.BASE_DIR)
    sources = {path.relative_to(base / "static").as_posix(): path.read_bytes()
               for path in sorted((base / "static").rglob("*")) if path.suffix in _BUNDLED + _AS_THEY_ARE}
    entries = {name for path in (base / "templates").rglob("*.html") for name in scripts_named(path.read_text())}
    digest = hashlib.sha256(Path(bundler.__file__).read_bytes() + "\n".join(sorted(entries)).encode())
    for name, content in sources.items():
        digest.update(f"\0{name}\0{len(content)}\0".encode() + content)
    parent = Path(settings.HOME) / "cache" / "static" / PREFIX
    folder = parent / digest.hexdigest()[:16]
    if folder.exists():
        with suppress(OSError):
            os.utime(folder)        # the versions used last are kept
    else:
        files = bundler.bundle({name: content.decode() for name, content in sources.items() if name.endswith(_BUNDLED)}, entries)
        _write(folder, {name: content for name, content in sources.items() if name.endswith(_AS_THEY_ARE)}
               | {name: text.encode() for name, text in files.items()})
        for old in sorted(parent.glob("*/"), key=lambda each: each.stat().st_mtime)[:-_VERSIONS_KEPT]:
            shutil.rmtree(old, ignore_errors=True)
    return folder


def _write(folder: Path, files: dict[str, bytes]) -> None:
    """Write all files, or none: several processes may do so at once."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    new = Path(tempfile.mkdtemp(dir=folder.parent, prefix="new-"))
    new.chmod(0o755)
    for name, content in files.items():
        (new / name).parent.mkdir(parents=True, exist_ok=True)
        (new / name).write_bytes(content)
    try:
        os.rename(new, folder)
    except OSError:             # another process was first
        shutil.rmtree(new)
        if not folder.exists():
            raise


@cache
def bundled_names() -> frozenset[str]:
    """Return the paths of the bundle's files below its folder, as `{% static %}` names them."""
    folder = bundled_folder()
    return frozenset(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())


class BundleFinder(BaseFinder):
    """Finds the bundle's files, under bundles/<hash>/."""

    def find(self, path: str, find_all: bool = False, **kwargs: Any) -> str | list[str]:     # type: ignore[override]    # one signature, where the stub has one for each `find_all`
        folder = bundled_folder()
        start = f"{PREFIX}/{folder.name}/"
        name = path.removeprefix(start)
        if not path.startswith(start) or name not in bundled_names():
            return []
        return [str(folder / name)] if find_all else str(folder / name)

    def list(self, ignore_patterns: Iterable[str] | None) -> Iterator[tuple[str, FileSystemStorage]]:
        folder = bundled_folder()
        storage = FileSystemStorage(location=folder)
        storage.prefix = f"{PREFIX}/{folder.name}"        # type: ignore[attr-defined]    # as Django's own finder sets it
        for name in sorted(bundled_names()):
            if not utils.matches_patterns(name, ignore_patterns or []):
                yield name, storage


class BundledStorage(StaticFilesStorage):
    """Addresses static files, those of the bundle where it has the file."""

    def url(self, name: str | None) -> str:
        if not settings.DEBUG and name in bundled_names():
            name = f"{PREFIX}/{bundled_folder().name}/{name}"
        address: str = super().url(name)
        return address
