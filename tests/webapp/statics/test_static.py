"""Static files go compressed to whoever accepts it, whole and unchanged.

Downloads leave in pieces under ASGI, and nothing is read before it is asked for.
"""

from __future__ import annotations

import asyncio
import gzip
import io
import re
import warnings
from pathlib import Path

import pytest
from django.conf import settings
from django.contrib.staticfiles.storage import staticfiles_storage
from django.http import FileResponse, HttpRequest, HttpResponse, StreamingHttpResponse
from django.test import AsyncClient, AsyncRequestFactory, RequestFactory, override_settings

from webapp.statics.bundled import BundleFinder, bundled_folder, bundled_names
from webapp.statics.compressed import CompressedAnswers, CompressedStatic, compress_file
from webapp.statics.streaming import PIECE_BYTES, stream_in_pieces

SCRIPT = "js/timeline/data/tiles.js"


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


@pytest.mark.slow
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
    first = compress_file(file)
    assert compress_file(file) == first
    file.write_text("let b = 2;" * 501)
    assert compress_file(file) != first and gzip.decompress(compress_file(file).read_bytes()) == file.read_bytes()


def test_the_timeline_page_stays_light(middleware):
    """Scripts and styles of the page, as sent: under 300 kB."""
    wanted = ("js/base/frame.js", "js/lib.js", "js/grid.js", "js/timeline.js", "js/timeline/main.js",
              "css/base/base.css", "css/timeline/page.css")
    sizes = [len(get(middleware, staticfiles_storage.url(name), HTTP_ACCEPT_ENCODING="gzip")[1]) for name in wanted]
    assert 50_000 < sum(sizes) < 300_000


def test_what_templates_name_is_bundled_and_kept_by_browsers(middleware):
    """An address in the bundle changes with the files, so that nobody asks for it twice."""
    templates = "".join(path.read_text() for path in (Path(settings.BASE_DIR) / "templates").rglob("*.html"))
    names = set(re.findall(r"static '((?:js|css|icon)[^']*)'", templates))
    names |= {f"{kind}/{name}.{kind}" for kind, listed in re.findall(r"{% (css|js) ([^%]+)%}", templates)
              for name in re.findall(r'"([^"]+)"', listed)}
    assert len(names) > 50 and names <= bundled_names()
    for name in names:
        url = staticfiles_storage.url(name)
        assert url.startswith(f"/static/bundles/{bundled_folder().name}/")
        answer, body = get(middleware, url)
        assert answer.status_code == 200 and body == (bundled_folder() / name).read_bytes()
        assert "immutable" in answer["Cache-Control"] and "max-age=315360000" in answer["Cache-Control"]
    assert "immutable" not in get(middleware, f"/static/{SCRIPT}")[0]["Cache-Control"]


def test_modules_as_written_are_served_to_who_debugs():
    with override_settings(DEBUG=True):
        assert staticfiles_storage.url(SCRIPT) == f"/static/{SCRIPT}"
    assert staticfiles_storage.url("bokeh/js/bokeh.min.js") == "/static/bokeh/js/bokeh.min.js"
    assert not BundleFinder().find(f"bundles/{bundled_folder().name}/../../../secret") and not BundleFinder().find("js/lib.js")


def test_a_bundle_is_made_once_for_its_sources_and_anew_for_others(tmp_path):
    site = tmp_path / "site"
    (site / "templates").mkdir(parents=True)
    (site / "templates" / "a.html").write_text('{% js "a/a" %}')
    (site / "static" / "js" / "a").mkdir(parents=True)
    module = site / "static" / "js" / "a" / "a.js"
    with override_settings(BASE_DIR=site, HOME=tmp_path):
        made = []
        for number in (1, 1, 2, 3, 4, 1):
            module.write_text(f"globalThis.a = {number};\n")
            folder = bundled_folder.__wrapped__()
            made.append((folder, (folder / "js" / "a" / "a.js").stat().st_mtime_ns))
            assert f"globalThis.a = {number};" in (folder / "js" / "a" / "a.js").read_text()
    assert made[0] == made[1] and len({folder for folder, _ in made}) == 4
    assert len(list(made[0][0].parent.iterdir())) == 3 and made[-1][0].exists()        # old versions go


def sent(answer):
    """What leaves for somebody who accepts gzip."""
    request = HttpRequest()
    request.META["HTTP_ACCEPT_ENCODING"] = "gzip, br"
    return CompressedAnswers(lambda request: answer)(request)


def test_pages_and_json_go_compressed_and_streams_and_tiles_as_they_are():
    text = "<p>kernel</p>" * 500
    for kind in ("text/html; charset=utf-8", "application/json"):
        packed = sent(HttpResponse(text, content_type=kind))
        assert packed["Content-Encoding"] == "gzip" and "Accept-Encoding" in packed["Vary"]
        assert gzip.decompress(packed.content).decode() == text and len(packed.content) < len(text) / 5
    sizes = {len(sent(HttpResponse(text)).content) for _ in range(20)}
    assert len(sizes) > 1                   # a length says nothing of what stands beside a secret
    tile = sent(HttpResponse(text, content_type="application/octet-stream"))
    stream = sent(StreamingHttpResponse(iter([text.encode()]), content_type="application/json"))
    assert "Content-Encoding" not in tile and "Content-Encoding" not in stream and stream.streaming


async def test_a_file_is_sent_in_pieces_and_not_read_whole_first():
    answer = await AsyncClient().get(f"/static/{SCRIPT}")
    assert answer.streaming and answer.is_async
    assert b"".join([piece async for piece in answer]) == (Path(settings.BASE_DIR) / "static" / SCRIPT).read_bytes()


class Counted(io.BytesIO):
    """Counts what was read of it."""

    taken = 0

    def read(self, size: int | None = -1) -> bytes:
        part = super().read(size)
        self.taken += len(part)
        return part


def test_a_file_is_read_as_it_is_sent():
    file = Counted(bytes(range(256)) * (PIECE_BYTES // 64))         # 4 pieces

    async def served(request):
        return FileResponse(file)

    async def first_and_rest():
        response = await stream_in_pieces(served)(AsyncRequestFactory().get("/"))
        content = aiter(response)
        first = await anext(content)
        seen = file.taken
        rest = [part async for part in content]
        response.close()
        return first, seen, rest

    with warnings.catch_warnings():
        warnings.simplefilter("error")                               # Django's, of a stream that it reads whole
        first, seen, rest = asyncio.run(first_and_rest())
    assert len(first) == PIECE_BYTES and PIECE_BYTES <= seen < 2 * PIECE_BYTES
    assert len(first) + sum(map(len, rest)) == 4 * PIECE_BYTES and file.closed


def test_other_answers_pass_unchanged():
    async def plain(request):
        return HttpResponse(b"x")

    assert asyncio.run(stream_in_pieces(plain)(AsyncRequestFactory().get("/"))).content == b"x"
    assert stream_in_pieces(lambda request: HttpResponse(b"y"))(AsyncRequestFactory().get("/")).content == b"y"


def test_a_stream_to_a_synchronous_server_stays_synchronous():
    response = stream_in_pieces(lambda request: FileResponse(Counted(b"z")))(RequestFactory().get("/"))
    assert not response.is_async and b"".join(response) == b"z"
