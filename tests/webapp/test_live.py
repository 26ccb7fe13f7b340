"""The WebSocket: origin and identity at the handshake, then messages of the topics that were asked for."""

import json
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from django.conf import settings as django_settings
from django.test import Client

from tests.socket_visitor import SocketVisitor
from webapp.asgi import application
from webapp.live import MAX_TOPICS, SIGNED_OUT, is_same_origin, session_topic
from workers import jobs

pytestmark = [pytest.mark.servers, pytest.mark.django_db(transaction=True)]

HOST, ORIGIN = b"localhost:8000", b"http://localhost:8000"


def knock(*, origin: bytes | None = ORIGIN, host: bytes = HOST, client: str = "127.0.0.1", **headers: str) -> SocketVisitor:
    sent = [(b"host", host), *([(b"origin", origin)] if origin else [])]
    sent += [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
    return SocketVisitor(application, "/ws/live/", sent, (client, 50000))


async def test_it_forwards_what_is_watched_and_nothing_else() -> None:
    page = knock()
    assert await page.connect()
    assert await page.watch("profile.7", "nonsense", 3) == {"event": "watching", "data": {"topics": ["profile.7"]}}
    jobs.publish("profile.8", "progress", {"done_bytes": 1})
    jobs.publish("profile.7", "progress", {"done_bytes": 2})
    assert await page.receive() == {"topic": "profile.7", "event": "progress", "data": {"done_bytes": 2}}
    await page.watch("tune.1")
    jobs.publish("profile.7", "progress", {})
    assert await page.receive_nothing()
    await page.close()


@pytest.mark.parametrize("text", [
    "not json", "[]", "{}", '{"watch": "home"}', json.dumps({"watch": ["home"] * (MAX_TOPICS + 1)}), "[" * 100_000,
    '{"watch":' * 100_000, "9" * 10_000], ids=range(8))
async def test_nonsense_gets_an_answer_and_does_not_end_the_connection(text: str) -> None:
    page = knock()
    await page.connect()
    await page.send(text)
    assert (await page.receive())["event"] == "error"
    assert (await page.watch("home"))["event"] == "watching"
    await page.close()


@pytest.mark.parametrize("visitor", [
    {"origin": b"http://evil.example"},
    {"origin": b"http://localhost:9999"},                                       # another program on this machine
    {"origin": b"http://rebound.example:8000", "host": b"rebound.example:8000"},    # DNS rebinding: same origin, not ours
    {"origin": b"null"},
    {"origin": None},
    {"client": "10.0.0.9"},
    {"x_forwarded_for": "127.0.0.1"},
], ids=str)
async def test_strangers_are_refused(visitor: dict[str, Any]) -> None:
    page = knock(**visitor)
    assert not await page.connect()


async def test_loopback_must_sign_in_too_on_a_shared_server(sign_in_mode: None) -> None:
    assert not await knock().connect()


@pytest.mark.django_db(transaction=True)
async def test_a_session_opens_it_on_a_shared_server(sign_in_mode: None, bob: Any, client: Any) -> None:
    await sync_to_async(client.force_login)(bob)
    cookie = f"{django_settings.SESSION_COOKIE_NAME}={client.cookies[django_settings.SESSION_COOKIE_NAME].value}"
    page = knock(client="10.0.0.9", cookie=cookie)
    assert await page.connect()
    await page.close()


def test_same_origin() -> None:
    assert is_same_origin("http://localhost:8000", "localhost:8000") and is_same_origin("https://[::1]:8000", "[::1]:8000")
    assert not is_same_origin("http://localhost", "localhost:8000")
    assert not is_same_origin("", "") and not is_same_origin("http://[", "x")


@pytest.mark.django_db(transaction=True)
async def test_signing_out_closes_the_pages_of_that_session_only(sign_in_mode: None, alice: Any, bob: Any) -> None:
    def signed_in(person: Any) -> tuple[Client, str]:
        browser = Client()
        browser.force_login(person)
        return browser, f"{django_settings.SESSION_COOKIE_NAME}={browser.cookies[django_settings.SESSION_COOKIE_NAME].value}"

    browser, cookie = await sync_to_async(signed_in)(alice)
    _, other = await sync_to_async(signed_in)(bob)
    left, stays = knock(client="10.0.0.9", cookie=cookie), knock(client="10.0.0.9", cookie=other)
    for page in (left, stays):
        assert await page.connect()
        await page.watch("home")
    await sync_to_async(browser.post)("/accounts/logout/")
    assert (await left.receive_output(5))["code"] == SIGNED_OUT
    jobs.publish("home", "profile", {"id": 1})
    assert (await stays.receive())["event"] == "profile"
    await stays.close()


async def test_nobody_can_watch_the_topics_of_sessions() -> None:
    page = knock()
    await page.connect()
    assert await page.watch(session_topic("abc")) == {"event": "watching", "data": {"topics": []}}
    await page.close()
