"""The log: one line for a request, with its number, person, route and time; as text or JSON; no trace of what is expected."""

from __future__ import annotations

import io
import json
import logging
import logging.config
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from asgiref.testing import ApplicationCommunicator
from django.conf import settings as django_settings
from django.core.exceptions import PermissionDenied
from django.db import OperationalError, connection
from rq.job import Job

from webapp import logs
from webapp.asgi import application
from webapp.models import ApiToken
from webapp.operate import observed
from webapp.slots import Slots
from webapp.supervisor import Child, Supervisor
from workers import jobs, trail

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.servers]


@pytest.fixture
def lines() -> Iterator[io.StringIO]:
    """What the product's own handler writes, as JSON."""
    out = io.StringIO()
    handler = logging.StreamHandler(out)
    handler.setFormatter(logs.JsonLine())
    for each in (logs.ExpectedInOneLine(), logs.OutageInOneLine(), logs.AddTrail()):
        handler.addFilter(each)
    logging.root.addHandler(handler)
    yield out
    logging.root.removeHandler(handler)
    wrapped: Any = application.application_mapping["http"]
    while not isinstance(wrapped, Slots):
        wrapped = wrapped.app
    for thread in wrapped.free:                 # the test database cannot go while they keep connections to it
        thread.submit(lambda: connection.close()).result()


async def ask(path: str, method: str = "GET", body: bytes = b"", **headers: str) -> tuple[int, dict[str, str]]:
    told = [(name.replace("_", "-").encode(), value.encode()) for name, value in {"host": "localhost", **headers}.items()]
    page = ApplicationCommunicator(application, {
        "type": "http", "path": path, "raw_path": path.encode(), "method": method, "query_string": b"", "headers": told,
        "client": ["10.0.0.9", 5], "server": ["localhost", 80], "http_version": "1.1", "scheme": "http"})
    await page.send_input({"type": "http.request", "body": body})
    begun = await page.receive_output(60)
    while (await page.receive_output(60)).get("more_body"):
        pass
    await page.wait(60)
    return begun["status"], {name.decode().lower(): value.decode() for name, value in begun["headers"]}


def told(lines: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in lines.getvalue().splitlines()]


async def test_a_refusal_is_one_line_with_its_number_and_counted(lines: io.StringIO, sign_in_mode: None) -> None:
    counted = observed.REQUESTS.labels("GET", "api/profiles/<int:pk>/", "401")
    before = counted._value.get()
    status, headers = await ask("/api/profiles/7/", x_request_id="from-the-proxy.7")
    assert status == 401 and headers["x-request-id"] == "from-the-proxy.7"
    [line] = told(lines)
    assert line["level"] == "warning" and line["logger"] == "webapp.requests" and line["time"]
    assert {name: line[name] for name in ("method", "path", "status", "route", "request_id", "client")} == {
        "method": "GET", "path": "/api/profiles/7/", "status": 401, "route": "api/profiles/<int:pk>/",
        "request_id": "from-the-proxy.7", "client": "10.0.0.9"}
    assert counted._value.get() == before + 1
    assert line["ms"] > 0 and "person" not in line and "trace" not in line


@pytest.mark.parametrize(("path", "method", "headers", "status", "why"), [
    ("/nowhere/", "GET", {}, 404, ""),
    ("/profiles/?q=%00", "GET", {}, 404, ""),
    ("/accounts/login/", "POST", {}, 403, "CSRF"),
    ("/", "GET", {"host": "evil.example"}, 400, "Invalid HTTP_HOST header"),
    ("/nowhere/\n\x1b[31m", "GET", {}, 404, "")])
async def test_what_is_expected_has_no_trace(
        lines: io.StringIO, path: str, method: str, headers: dict[str, str], status: int, why: str, sign_in_mode: None) -> None:
    answered, _ = await ask(path, method, **headers)
    assert answered == status
    [line] = told(lines)
    assert "trace" not in line and why in line.get("why", "") and why in line["message"]
    assert line["message"].isprintable()


@pytest.fixture
def token(alice: Any) -> str:
    _, made = ApiToken.objects.create(alice, name="t", scope="write")
    return str(made)


async def test_the_person_stands_in_it_and_a_number_that_is_none_is_replaced(
        lines: io.StringIO, token: str, sign_in_mode: None, settings: Any) -> None:
    settings.LOG_REQUESTS = True
    status, headers = await ask("/api/workers/", authorization=f"Token {token}", x_request_id="no number\x07")
    assert status == 200 and len(headers["x-request-id"]) == 16
    [line] = told(lines)
    assert line["person"] == "alice" and line["level"] == "info" and line["request_id"] == headers["x-request-id"]
    settings.LOG_REQUESTS = False
    await ask("/api/workers/", authorization=f"Token {token}")
    assert len(told(lines)) == 1


async def test_an_outage_is_one_line_and_says_what(lines: io.StringIO, sign_in_mode: None, monkeypatch: pytest.MonkeyPatch) -> None:
    def away(*_: Any) -> Any:
        raise OperationalError("nobody listens") from psycopg.OperationalError("nobody listens")

    monkeypatch.setattr("webapp.overview.queues", away)
    monkeypatch.setattr("webapp.accounts.RolePermission.has_permission", lambda *_: True)
    assert (await ask("/api/workers/"))[0] == 503
    monkeypatch.setattr("webapp.errors.RedirectToForm.__call__", away)
    assert (await ask("/"))[0] == 503
    api, page = told(lines)
    assert "the database does not answer" in api["why"] and "nobody listens" in page["why"]
    assert {line["level"] for line in (api, page)} == {"warning"} and "trace" not in page


async def test_a_body_that_is_not_read_says_why(lines: io.StringIO, sign_in_mode: None) -> None:
    assert (await ask("/api/profiles/", "POST", b"x", content_length="5000000", content_type="multipart/form-data"))[0] == 401
    [line] = told(lines)
    assert line["why"].startswith("sign in before sending") and line["route"] == "api/profiles/"


async def test_a_client_that_left_is_no_fault(lines: io.StringIO, sign_in_mode: None) -> None:
    page = ApplicationCommunicator(application, {
        "type": "http", "path": "/", "raw_path": b"/", "method": "GET", "query_string": b"", "headers": [(b"host", b"localhost")],
        "client": ["10.0.0.9", 5], "server": ["localhost", 80], "http_version": "1.1", "scheme": "http"})
    await page.send_input({"type": "http.disconnect"})
    await page.wait(30)
    assert told(lines) == [] and observed.REQUESTS.labels("GET", "", "499")._value.get() > 0


async def test_a_fault_keeps_its_trace(lines: io.StringIO, sign_in_mode: None, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(self: Any, request: Any) -> Any:
        raise RuntimeError("a fault")

    monkeypatch.setattr("webapp.errors.RedirectToForm.__call__", fail)
    status, _ = await ask("/accounts/login/")
    assert status == 500
    found = told(lines)
    assert any("RuntimeError: a fault" in line.get("trace", "") for line in found)
    assert found[-1]["logger"] == "webapp.requests" and found[-1]["level"] == "error"


def test_without_a_request_a_refusal_keeps_its_line(lines: io.StringIO) -> None:
    try:
        raise PermissionDenied("no")
    except PermissionDenied as error:
        logging.getLogger("django.request").warning("Forbidden: %s", "/x", exc_info=error, extra={"status_code": 403})
    [line] = told(lines)
    assert line["message"] == "Forbidden: /x" and "trace" not in line


def test_a_job_carries_the_number_of_its_request() -> None:
    trail.begin("request-1")
    jobs.enqueue("compile", "compile", 12)
    queued = [Job.fetch(name, connection=jobs.connection()) for name in
              (key.decode() for key in jobs.connection().lrange("rq:queue:compile", 0, -1))]
    mine = [job for job in queued if job.meta.get("request_id") == "request-1"]
    assert len(mine) == 1
    mine[0].delete()


def test_the_configured_handler_writes_text(capsys: pytest.CaptureFixture[str]) -> None:
    logging.config.dictConfig({**django_settings.LOGGING, "loggers": {}, "root": {"handlers": ["stderr"], "level": "INFO"}})
    try:
        trail.begin("seven")
        logging.getLogger("webapp.x").warning("said")
        assert "W webapp.x: said [seven]" in capsys.readouterr().err
    finally:
        logging.config.dictConfig(django_settings.LOGGING)


def test_the_supervisor_passes_objects_on(tmp_path: Any) -> None:
    with open(tmp_path / "log", "wb") as out:
        supervisor = Supervisor([Child("web", ["true"])], out, as_json=True)
        supervisor._line("web", b'{"level": "info", "message": "said"}', 36)
        supervisor._line("web", "no object: ü".encode(), 36)
        supervisor.say("stopping")
    first, second, third = (json.loads(line) for line in (tmp_path / "log").read_text().splitlines())
    assert first == {"process": "web", "level": "info", "message": "said"}
    assert (second["process"], second["message"]) == ("web", "no object: ü") and third["process"] == "ridgepoint"
