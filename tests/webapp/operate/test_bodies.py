"""Headers and bodies of requests: who may send much, how much anybody may, and how slowly."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import requests
import uvicorn
from django.test import Client

from webapp.models import ApiToken
from webapp.operate import bodies, connections
from webapp.operate.bodies import Bodies, is_known
from workers import disk

FORM = {"Content-Type": "multipart/form-data; boundary=x"}


class Site:
    """A real server over `Bodies`; the application behind it reads the whole body and tells how much that was."""

    def __init__(self) -> None:
        self.read_bytes, self.asked, self.known = 0, 0, True
        self.app = Bodies(self._read_all)
        listener = socket.socket()
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        self.address = listener.getsockname()
        self.url = "http://{}:{}".format(*self.address)
        self.server = uvicorn.Server(uvicorn.Config(self.app, http=connections.BoundedHeaders, lifespan="off", log_level="error"))
        self.thread = threading.Thread(target=lambda: asyncio.run(self.server.serve([listener])), daemon=True)
        self.thread.start()

    def is_known(self, scope: Any) -> bool:
        self.asked += 1
        return self.known

    async def _read_all(self, scope: Any, receive: Any, send: Any) -> None:
        self.read_bytes = 0
        while (message := await receive())["type"] == "http.request":
            self.read_bytes += len(message["body"])
            if not message["more_body"]:
                await send({"type": "http.response.start", "status": 200, "headers": []})
                await send({"type": "http.response.body", "body": str(self.read_bytes).encode()})
                return

    def stop(self) -> None:
        self.server.should_exit = True
        self.thread.join(20)


@pytest.fixture
def site(monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    made = Site()
    monkeypatch.setattr(bodies, "_ask", made.is_known)
    yield made
    made.stop()


def pieces(megabytes: int) -> Iterator[bytes]:
    for _ in range(megabytes):
        yield bytes(1 << 20)


@pytest.mark.slow
@pytest.mark.parametrize("data", [lambda: bytes(30 << 20), lambda: pieces(30)], ids=["announced", "chunked"])
def test_of_somebody_unknown_a_little_is_read(site: Site, data: Callable[[], Any]) -> None:
    site.known = False
    answer = requests.post(f"{site.url}/api/profiles/", data=data(), headers=FORM, timeout=60)
    assert answer.status_code == 401 and "sign in" in answer.json()["error"] and answer.headers["Connection"] == "close"
    assert site.read_bytes <= bodies.SMALL_BYTES
    page = requests.post(f"{site.url}/health/", data=data(), timeout=60)
    assert page.status_code == 401 and 'class="topbar"' in page.text
    assert requests.post(f"{site.url}/login/", data=b"x" * 1000, timeout=60).text == "1000"
    site.known = True
    answer = requests.post(f"{site.url}/api/profiles/", data=data(), headers=FORM, timeout=60)
    assert answer.text == str(30 << 20) and site.asked == 3


@pytest.mark.parametrize(("data", "read"), [(lambda: bytes(9 << 20), 0), (lambda: pieces(9), 8 << 20)],
                         ids=["announced", "chunked"])
def test_more_than_the_limit_is_cut(site: Site, settings: Any, data: Callable[[], Any], read: int) -> None:
    settings.UPLOAD_MAX_BYTES = 7 << 20
    answer = requests.post(f"{site.url}/api/profiles/", data=data(), headers=FORM, timeout=60)
    assert answer.status_code == 413 and f"{8 << 20:,} are taken" in answer.json()["error"]
    assert "RIDGEPOINT_UPLOAD_MAX_BYTES" in answer.json()["hint"] and site.read_bytes <= read
    assert requests.post(f"{site.url}/x", data=bytes(8 << 20), headers=FORM, timeout=60).status_code == 200


def test_what_is_no_form_has_a_limit_of_its_own(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bodies, "OTHER_BYTES", 1 << 20)
    answer = requests.post(f"{site.url}/api/tune/", data=bytes(2 << 20), headers={"Content-Type": "application/json"}, timeout=60)
    assert answer.status_code == 413


def test_without_room_nothing_large_is_read(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(disk, "shortage", lambda: disk.Place(("object store",), "/x", 1000, 10**9, 10**8))
    answer = requests.post(f"{site.url}/api/profiles/", data=bytes(1 << 20), headers=FORM, timeout=60)
    assert requests.post(f"{site.url}/api/suites/", data=bytes(1 << 20), timeout=60).text == str(1 << 20)      # results of CI
    site.read_bytes = 0
    answer = requests.post(f"{site.url}/api/profiles/", data=bytes(1 << 20), headers=FORM, timeout=60)
    assert answer.status_code == 507 and "1 kB free, 100 MB are kept" in answer.json()["error"] and not site.read_bytes


def slow_answer(site: Site, tell: Callable[[socket.socket], None]) -> bytes:
    with socket.create_connection(site.address) as link:
        link.sendall(b"POST /api/profiles/ HTTP/1.1\r\nHost: x\r\nContent-Length: 50000\r\n\r\n")
        tell(link)
        link.settimeout(30)
        return link.recv(200)


def test_a_slow_sender_is_cut_off(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bodies, "GRACE_S", 1.0)
    monkeypatch.setattr(bodies, "LINGER_S", 0.1)
    began_s = time.monotonic()

    def drop_by_drop(link: socket.socket) -> None:
        while time.monotonic() - began_s < 2:
            try:
                link.sendall(b"x")
            except OSError:
                return
            time.sleep(0.05)

    assert b" 408 " in slow_answer(site, drop_by_drop).split(b"\r\n")[0]
    monkeypatch.setattr(bodies, "GRACE_S", 60.0)
    monkeypatch.setattr(bodies, "IDLE_S", 0.5)
    assert b" 408 " in slow_answer(site, lambda link: link.sendall(b"x" * 40_000)).split(b"\r\n")[0]


def test_a_connection_that_waits_for_its_answer_is_not_slow(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bodies, "GRACE_S", 0.3)

    async def long_work(scope: Any, receive: Any, send: Any) -> None:
        while (await receive()).get("more_body"):
            pass
        listening = asyncio.create_task(receive())
        await asyncio.sleep(1)
        assert not listening.done()
        listening.cancel()
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"done"})

    site.app.app = long_work
    assert requests.post(f"{site.url}/x", data=b"x", timeout=30).text == "done"


@pytest.mark.django_db
def test_who_is_known(alice: Any, sign_in_mode: None, settings: Any) -> None:
    client = Client()
    client.force_login(alice)
    session = client.cookies[settings.SESSION_COOKIE_NAME].value
    _, token = ApiToken.objects.create(alice, name="ci", scope="write")

    def ask(host: str = "127.0.0.1", **headers: str) -> bool:
        told = [(name.encode(), value.encode("latin-1")) for name, value in headers.items()]
        return is_known({"client": (host, 1), "headers": told})

    cookie = f"{settings.SESSION_COOKIE_NAME}={session}"
    assert ask(cookie=f"a=b; {cookie}") and ask(authorization=f"Token {token}")
    assert not any((ask(), ask(cookie=cookie + "x"), ask(cookie="\x00;;="), ask(authorization=f"Token {token}x"),
                    ask(authorization="Token \xff"), ask(authorization="Basic YTpi"), ask(authorization="Token")))
    settings.LOCAL_MODE = True
    assert ask() and not ask("10.0.0.9") and not ask(**{"x-forwarded-for": "10.0.0.9"})
    alice.is_active = False
    alice.save()
    settings.LOCAL_MODE = False
    assert not ask(cookie=cookie) and not ask(authorization=f"Token {token}")


def answer_to(connection: socket.socket) -> bytes:
    """What the server says until it closes the connection."""
    said = b""
    while block := connection.recv(1 << 16):
        said += block
    return said


@pytest.mark.parametrize("headers", [b"", b"GET / HTTP/1.1\r\nHost: x\r\nX-A: 1"])
def test_headers_that_do_not_end_are_cut_off(site: Site, monkeypatch: pytest.MonkeyPatch, headers: bytes) -> None:
    monkeypatch.setattr(connections, "HEADERS_S", 0.5)
    with socket.create_connection(site.address, 20) as connection:
        connection.sendall(headers)
        assert answer_to(connection).startswith(b"HTTP/1.1 408 " if headers else b"")
    with socket.create_connection(site.address, 20) as connection:              # a second request over the same connection
        connection.sendall(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\n\r\n1")
        time.sleep(0.7)         # longer than headers may take
        connection.sendall(headers)
        said = answer_to(connection)
        assert said.startswith(b"HTTP/1.1 200 ") and (b"HTTP/1.1 408 " in said) == bool(headers)


def test_headers_beyond_the_limit_are_cut_off(site: Site) -> None:
    def lines(count: int) -> bytes:
        return b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n" + b"X-A: %s\r\n" % (b"1" * 1_000) * count

    with socket.create_connection(site.address, 20) as connection:
        connection.sendall(lines(60) + b"\r\n")
        assert answer_to(connection).startswith(b"HTTP/1.1 200 ")
    with socket.create_connection(site.address, 20) as connection:
        connection.sendall(lines(70))
        assert answer_to(connection).startswith(b"HTTP/1.1 431 ")
