"""What is sent as gzip: static files, made once per version in a cache folder, and each page and JSON answer as it goes out."""

from __future__ import annotations

import gzip
import hashlib
import os
import tempfile
from pathlib import Path

from django.conf import settings
from django.http import HttpRequest
from django.http.response import HttpResponseBase
from django.middleware.gzip import GZipMiddleware
from whitenoise.middleware import WhiteNoiseMiddleware
from whitenoise.responders import StaticFile

_TEXT = (".js", ".mjs", ".css", ".svg", ".json", ".html", ".txt", ".map")
_WORTH_BYTES = 1024
_ANSWERS = ("text/html", "application/json")


class CompressedStatic(WhiteNoiseMiddleware):  # type: ignore[misc]
    """Serves gzip forms from a folder of our own; WhiteNoise looks beside each file."""

    def get_static_file(self, path: str, url: str, stat_cache: dict[str, os.stat_result] | None = None) -> StaticFile:
        plain = super().get_static_file(path, url, stat_cache)
        if stat_cache is None or not path.endswith(_TEXT) or stat_cache[path].st_size < _WORTH_BYTES:
            return plain                    # while files are edited (no cache of their facts) they go as they are
        packed = compress_file(Path(path))
        stat_cache[str(packed)] = packed.stat()
        headers = dict(plain.alternatives[-1][2])
        headers.pop("Content-Length", None)
        return StaticFile(path, list(headers.items()), stat_cache=stat_cache, encodings={"gzip": str(packed)})


class CompressedAnswers(GZipMiddleware):
    """Compresses pages and JSON that are made whole; downloads stream as they are, tiles come compressed.

    The base class pads each by a random length, so that the size tells nothing of a token beside words of the query (BREACH).
    """

    def process_response(self, request: HttpRequest, response: HttpResponseBase) -> HttpResponseBase:
        is_text = response.headers.get("Content-Type", "").partition(";")[0] in _ANSWERS
        return super().process_response(request, response) if is_text and not response.streaming else response


def compress_file(path: Path) -> Path:
    """Return the file's gzip form, made where this version has none yet."""
    facts = path.stat()
    name = hashlib.sha256(f"{path}\0{facts.st_mtime_ns}\0{facts.st_size}".encode()).hexdigest()[:32]
    target = Path(settings.HOME) / "cache" / "static" / f"{name}.gz"
    if not target.exists():
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=target.parent, delete=False) as file:
            file.write(gzip.compress(path.read_bytes(), 6, mtime=0))
        os.replace(file.name, target)
    return target
