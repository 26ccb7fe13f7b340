"""The WebSocket: origin and identity at the handshake, then messages of the topics that were asked for."""

import asyncio
import json
import threading
import time
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from django.conf import settings as django_settings
from django.test import Client

from tests.socket_visitor import SocketVisitor
from tuner.models import TuneJob
from webapp import live, socket_limits
from webapp.asgi import application
from webapp.live import MAX_TOPICS, MOST_CHARACTERS, SIGNED_OUT, TOO_MUCH, is_same_origin, seen_topics, session_topic
from webapp.models import Membership, Project
from webapp.projects.selectors import Access, Seat
from webapp.socket_limits import MESSAGES, MESSAGES_PER_S, TOPICS, TOPICS_PER_S, SocketLimits
from workers import jobs
from workers.scope import FIRST_PROJECT

pytestmark = [pytest.mark.servers, pytest.mark.django_db(transaction=True)]

@pytest.fixture(autouse=True)
def own_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Count the sockets of this test alone."""
    monkeypatch.setattr(live, "LIMITS", SocketLimits())


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


async def member_cookie(alice: Any) -> str:
    """The cookie of a member of one of two projects, whose topics are looked up."""
    def sign_in() -> str:
        Project.objects.create(slug="second", name="Second")
        alice.groups.clear()
        Membership.objects.create(project_id=FIRST_PROJECT, user=alice, role="viewer")
        browser = Client()
        browser.force_login(alice)
        return f"{django_settings.SESSION_COOKIE_NAME}={browser.cookies[django_settings.SESSION_COOKIE_NAME].value}"

    return await sync_to_async(sign_in)()


def test_topics_are_looked_up_by_one_question_a_kind(alice: Any, django_assert_max_num_queries: Any) -> None:
    other = Project.objects.create(slug="second", name="Second")
    rows = [TuneJob(project_id=project, operator="matmul", shape={"M": 1}, dtype="float16", budget_trials=1, budget_seconds=1)
            for project in (FIRST_PROJECT, other.pk)]
    TuneJob.objects.bulk_create(rows)
    mine, theirs = (f"tune.{row.pk}" for row in rows)
    access = Access((Seat(FIRST_PROJECT, "main", "Main", "viewer"),))
    kinds = ("profile", "tune", "gate", "suite", "capture", "check", "candidate", "thread")
    topics = {f"{kind}.{10_000_000 + number}" for kind in kinds for number in range(25)} | {mine, theirs, "home", "workers"}
    with django_assert_max_num_queries(len(kinds)):
        assert seen_topics(topics, access) == {mine, "home", "workers"}


async def test_who_floods_is_closed_and_nobody_else_waits(sign_in_mode: None, alice: Any, bob: Any, client: Any,
                                                          monkeypatch: pytest.MonkeyPatch) -> None:
    """40 sockets of a viewer send lists of 200 topics; what stands before a handshake is no longer than their first lists."""
    asked: list[int] = []
    monkeypatch.setattr(live, "seen_topics", lambda topics, access: (asked.append(len(topics)), seen_topics(topics, access))[1])
    cookie = await member_cookie(alice)
    pages = [knock(client="10.0.0.9", cookie=cookie) for _ in range(40)]
    for page in pages:
        assert await page.connect()
    for number in range(20):
        for page in pages:
            await page.send(json.dumps({"watch": [f"profile.{number * 1000 + topic + 1}" for topic in range(MAX_TOPICS)]}))
    await sync_to_async(client.force_login)(bob)
    session = client.cookies[django_settings.SESSION_COOKIE_NAME].value
    began_s = time.monotonic()
    other = knock(client="10.0.0.8", cookie=f"{django_settings.SESSION_COOKIE_NAME}={session}")
    assert await other.connect() and (await other.watch("home"))["event"] == "watching"
    assert time.monotonic() - began_s < 5
    codes = [await close_code(page) for page in pages]
    assert codes.count(TOO_MUCH) > 30
    assert sum(asked) <= TOPICS + TOPICS_PER_S * (time.monotonic() - began_s + 10)
    await other.close()


async def close_code(page: SocketVisitor) -> int | None:
    """Return with which code the server closed the socket; None where it did not."""
    while not await page.receive_nothing(0.2):
        message = await page.receive_output(1)
        if message["type"] == "websocket.close":
            return int(message["code"])
    return None


async def test_a_newer_list_takes_the_place_of_those_that_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    looked_up: list[set[str]] = []
    all_came = threading.Event()

    def look_up_slowly(topics: set[str], access: Any) -> set[str]:
        looked_up.append(topics)
        if len(looked_up) == 1:
            all_came.wait(20)
        return topics

    monkeypatch.setattr(live, "seen_topics", look_up_slowly)
    page = knock()
    assert await page.connect()
    for number in range(1, 9):
        await page.send(json.dumps({"watch": [f"profile.{number}"]}))
    await asyncio.sleep(0.5)            # read by then; the first is still being looked up
    all_came.set()
    while (await page.receive())["data"]["topics"] != ["profile.8"]:
        pass
    assert looked_up == [{"profile.1"}, {"profile.8"}]
    await page.close()


async def test_one_person_has_a_bounded_number_of_sockets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket_limits, "MOST_SOCKETS", 3)
    pages = [knock() for _ in range(4)]
    for page in pages:
        assert await page.connect()
    assert (await pages[3].receive_output(5))["code"] == TOO_MUCH
    await pages[0].close()
    await pages[3].close()
    again = knock()
    assert await again.connect() and (await again.watch("home"))["event"] == "watching"
    for page in (*pages[1:3], again):
        await page.close()


async def test_a_long_message_is_not_read() -> None:
    page = knock()
    await page.connect()
    await page.send(json.dumps({"watch": ["home"], "x": "y" * MOST_CHARACTERS}))
    assert (await page.receive())["event"] == "error"
    await page.close()


def test_an_account_fills_again_and_is_forgotten() -> None:
    now_s = 0.0
    limits = SocketLimits(lambda: now_s)
    assert limits.open("a") and [limits.take_message("a") for _ in range(MESSAGES)].count(True) == MESSAGES - 1
    assert not limits.take_message("a") and limits.take_message("b")
    assert limits.take_topics("a", TOPICS) == 0 and limits.take_topics("a", 200) == pytest.approx(200 / TOPICS_PER_S)
    now_s = 1.5 / MESSAGES_PER_S
    assert limits.take_message("a") and not limits.take_message("a")
    assert limits.take_topics("a", 10 * TOPICS) is None
    now_s = 1000.0
    for number in range(socket_limits.MANY_PEOPLE + 1):
        limits.open(str(number))
    limits.close("a")
    assert "a" not in limits.accounts and "0" in limits.accounts


async def test_nobody_can_watch_the_topics_of_sessions() -> None:
    page = knock()
    await page.connect()
    assert await page.watch(session_topic("abc")) == {"event": "watching", "data": {"topics": []}}
    await page.close()
