"""Static files go compressed to whoever accepts it, whole and unchanged."""

import gzip
from pathlib import Path

import pytest
from django.conf import settings
from django.http import HttpRequest
from django.test import override_settings

from webapp.compressed_static import CompressedStatic, compressed

SCRIPT = "js/timeline/tiles.js"


@pytest.fixture(scope="module")
def middleware():
    with override_settings(WHITENOISE_AUTOREFRESH=False):       # as a server has it
        return CompressedStatic(lambda request: None)


def get(middleware, path: str, **headers):
    request = HttpRequest()
    request.method, request.path_info = "GET", path
    request.META.update(headers)
    answer = middleware(request)
    return answer, b"".join(answer.streaming_content)


def test_text_is_compressed_for_those_who_accept_it(middleware):
    original = (Path(settings.BASE_DIR) / "static" / SCRIPT).read_bytes()
    answer, body = get(middleware, f"/static/{SCRIPT}", HTTP_ACCEPT_ENCODING="gzip, br")
    assert answer["Content-Encoding"] == "gzip" and "Accept-Encoding" in answer["Vary"]
    assert int(answer["Content-Length"]) == len(body) < len(original) / 2
    assert gzip.decompress(body) == original and "javascript" in answer["Content-Type"]
    plain, body = get(middleware, f"/static/{SCRIPT}")
    assert body == original and "Content-Encoding" not in plain
    assert plain["ETag"] == answer["ETag"] and "Accept-Encoding" in plain["Vary"]


def test_a_changed_file_is_compressed_anew(tmp_path):
    file = tmp_path / "a.js"
    file.write_text("let a = 1;" * 500)
    first = compressed(file)
    assert compressed(file) == first
    file.write_text("let b = 2;" * 501)
    assert compressed(file) != first and gzip.decompress(compressed(file).read_bytes()) == file.read_bytes()


def test_the_timeline_page_stays_light(middleware):
    """Scripts and styles of the page, as sent: under 300 kB."""
    total = 0
    for url in middleware.files:
        if url.startswith(("/static/js/timeline/", "/static/js/lib/", "/static/css/")):
            total += len(get(middleware, url, HTTP_ACCEPT_ENCODING="gzip")[1])
    assert 50_000 < total < 300_000
