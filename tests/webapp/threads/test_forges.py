"""Forges, against a server here that takes what their published APIs take; no real forge is reached."""

from __future__ import annotations

import hashlib
import hmac
import json
import re
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import jsonschema
import jwt
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from django.test import Client
from django.utils import timezone

from profiles.base.refused import Refused
from tuner.models import Build, Gate, Regression
from webapp.forges import sending_services, services
from webapp.models import Forge, ForgeArrival, ForgePost, IssueLink, Thread
from webapp.threads import services as thread_services
from webapp.threads import subjects

pytestmark = [pytest.mark.servers, pytest.mark.django_db]

SHA = "4f2c1e" + "0" * 34
SECRET = "a secret of the hook"
KEY = rsa.generate_private_key(public_exponent=65537, key_size=2048)
PEM = KEY.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()).decode()
TEXT = {"type": "string", "minLength": 1}


def exactly(required: str, **properties: Any) -> dict[str, Any]:
    return {"type": "object", "required": required.split(), "properties": properties, "additionalProperties": False}


CHECK = {"name": TEXT, "head_sha": {"type": "string", "pattern": "^[0-9a-f]{40}$"}, "status": {"const": "completed"},
         "conclusion": {"enum": ["success", "failure", "neutral"]}, "details_url": {"type": "string"},
         "output": exactly("title summary", title=TEXT, summary={"type": "string", "maxLength": 65535})}
NOTE = exactly("body", body=TEXT)
# (method, path, what its body must be, the answer): by the forges' reference pages
GITHUB = [
    ("POST", r"/app/installations/678/access_tokens", exactly("repositories", repositories={"const": ["kernels"]}),
     {"token": "ghs_x", "expires_at": "2026-11-26T20:00:00Z"}),
    ("POST", r"/repos/team/kernels/check-runs", exactly("name head_sha", **CHECK), {"id": 41, "html_url": "https://github.com/c/41"}),
    ("PATCH", r"/repos/team/kernels/check-runs/41", exactly("", **CHECK), {"id": 41, "html_url": "https://github.com/c/41"}),
    ("POST", r"/repos/team/kernels/issues/\d+/comments", NOTE, {"id": 51, "html_url": "https://github.com/n/51"}),
    ("PATCH", r"/repos/team/kernels/issues/comments/51", NOTE, {"id": 51, "html_url": "https://github.com/n/51"}),
    ("POST", r"/repos/team/kernels/issues", exactly("title", title=TEXT, body=TEXT),
     {"id": 9000, "number": 12, "html_url": "https://github.com/team/kernels/issues/12"})]
GITLAB = [
    ("POST", rf"/projects/team%2Fkernels/statuses/{SHA}", exactly(
        "state", state={"enum": ["pending", "running", "success", "failed", "canceled", "skipped"]}, name=TEXT,
        target_url={"type": "string"}, description={"type": "string", "maxLength": 255}), {"id": 61, "status": "failed"}),
    ("POST", r"/projects/team%2Fkernels/merge_requests/5/notes", NOTE, {"id": 71}),
    ("PUT", r"/projects/team%2Fkernels/merge_requests/5/notes/71", NOTE, {"id": 71}),
    ("POST", r"/projects/team%2Fkernels/issues", exactly("title", title=TEXT, description=TEXT),
     {"id": 8000, "iid": 12, "web_url": "https://gitlab.example.com/team/kernels/-/issues/12"})]
JIRA = [
    ("POST", r"/rest/api/2/issue", exactly("fields", fields=exactly(
        "project issuetype summary", project={"const": {"key": "PERF"}}, issuetype=exactly("name", name=TEXT), summary=TEXT,
        description=TEXT)), {"id": "10000", "key": "PERF-12", "self": "https://jira.example.com/rest/api/2/issue/10000"}),
    ("POST", r"/rest/api/2/issue/PERF-12/comment", NOTE, {"id": "10001"})]


class Remote:
    """A forge: it checks who asks and what, and keeps it."""

    def __init__(self, table: list[Any]) -> None:
        self.table, self.asked, self.heads, self.wrong, self.down = table, [], [], [], 0
        remote = self

        class Handler(BaseHTTPRequestHandler):
            def answer(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"] or 0)))
                status, told = remote.take(self.command, self.path, dict(self.headers), body)
                said = json.dumps(told).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(said)))
                self.end_headers()
                self.wfile.write(said)

            do_POST = do_PATCH = do_PUT = answer

            def log_message(self, *_: Any) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        self.url = f"http://127.0.0.1:{self.server.server_port}"

    def take(self, method: str, path: str, heads: dict[str, str], body: Any) -> tuple[int, Any]:
        if self.down:
            self.down -= 1
            return 503, {"message": "later"}
        for wanted, pattern, schema, answer in self.table:
            if (wanted, re.fullmatch(pattern, path) is not None) == (method, True):
                try:
                    jsonschema.validate(body, {**schema, "required": [each for each in schema["required"] if each]})
                except jsonschema.ValidationError as error:
                    self.wrong.append(f"{method} {path}: {error.message}")
                    return 422, {"message": error.message}
                self.asked.append((method, path, body))
                self.heads.append(heads)
                return 201, answer
        self.wrong.append(f"{method} {path}")
        return 404, {"message": "Not Found"}


@pytest.fixture
def remote(settings: Any) -> Iterator[Any]:
    settings.WEBHOOK_PRIVATE, settings.PUBLIC_URL = True, "https://perf.example.com"
    made: list[Remote] = []

    def start(kind: str, table: list[Any], **fields: Any) -> tuple[Remote, Forge]:
        one = Remote(table)
        made.append(one)
        given = {"place": "team/kernels", "key": "a token", **fields}
        return one, services.forge_add(kind=kind, name=kind, api=one.url, hook_secret=SECRET, **given)[0]

    yield start
    for one in made:
        assert one.wrong == []
        one.server.shutdown()
        one.server.server_close()


def decide(regression: Regression, verdict: str, url: str, capture: Any, sha: str = SHA) -> Gate:
    build, _ = Build.objects.get_or_create(name=sha, defaults={"at": timezone.now()})
    with capture(execute=True):
        return Gate.objects.create(suite=regression.suite, build=build, status="done", verdict=verdict, reason="softmax is slower",
                                   url=url, finished=timezone.now())


def thread_of(regression: Regression) -> Thread:
    subject = subjects.find("regression", str(regression.pk))
    assert subject is not None
    return thread_services.thread_ensure(subject)


def test_github_hears_a_verdict_as_one_check_and_one_comment(
        remote: Any, regression: Regression, django_capture_on_commit_callbacks: Any) -> None:
    server, forge = remote("github", GITHUB, account="345 / 678", key=PEM)
    pull = "https://github.com/team/kernels/pull/5"
    decide(regression, "AMBIGUOUS", pull, django_capture_on_commit_callbacks)
    assert sending_services.send_due() == 2
    said = {path: body for _, path, body in server.asked}
    assert said["/repos/team/kernels/check-runs"]["conclusion"] == "neutral"
    own = server.heads[0]["Authorization"].removeprefix("Bearer ")
    told = jwt.decode(own, KEY.public_key(), algorithms=["RS256"], issuer="345")
    assert told["exp"] - told["iat"] <= 600 and server.heads[1]["Authorization"] == "Bearer ghs_x"
    server.asked.clear()
    decide(regression, "SLOWER", pull, django_capture_on_commit_callbacks)
    decide(regression, "SLOWER", pull, django_capture_on_commit_callbacks, sha="9" * 40)        # the next commit of the change
    server.table.append(("POST", r"/repos/team/kernels/check-runs", server.table[1][2], {"id": 42}))
    sending_services.send_due()
    ways = sorted((method, path) for method, path, _ in server.asked if "access_tokens" not in path)
    assert ways == [("PATCH", "/repos/team/kernels/check-runs/41"), ("PATCH", "/repos/team/kernels/issues/comments/51"),
                    ("POST", "/repos/team/kernels/check-runs")]         # another commit: a check of its own, the same comment
    assert "**SLOWER**" in next(body for _, path, body in server.asked if "comments" in path)["body"]
    forge.refresh_from_db()
    assert "PRIVATE KEY" not in forge.key and set(ForgePost.objects.values_list("status", flat=True)) == {"sent"}


def test_other_verdicts_and_other_repositories_are_left_alone(
        remote: Any, regression: Regression, django_capture_on_commit_callbacks: Any) -> None:
    remote("github", GITHUB, account="345 / 678", key=PEM)
    decide(regression, "PASS", "https://github.com/team/other/pull/5", django_capture_on_commit_callbacks, sha="nightly-7")
    assert not ForgePost.objects.exists()


def test_gitlab_takes_a_status_and_a_note(remote: Any, regression: Regression, django_capture_on_commit_callbacks: Any) -> None:
    server, _ = remote("gitlab", GITLAB)
    change = "https://gitlab.example.com/team/kernels/-/merge_requests/5"
    for verdict in ("SLOWER", "PASS"):
        decide(regression, verdict, change, django_capture_on_commit_callbacks)
        assert sending_services.send_due() == 2
    assert [body["state"] for _, path, body in server.asked if "statuses" in path] == ["failed", "success"]
    assert [method for method, path, _ in server.asked if "notes" in path] == ["POST", "PUT"]
    assert server.heads[0]["Private-Token" if "Private-Token" in server.heads[0] else "PRIVATE-TOKEN"] == "a token"


@pytest.mark.parametrize(("kind", "table", "fields", "number"), [
    ("github", GITHUB, {"account": "345/678", "key": PEM}, "12"), ("gitlab", GITLAB, {}, "12"),
    ("jira", JIRA, {"place": "PERF", "account": "bot@example.org"}, "PERF-12")])
def test_an_issue_is_made_of_a_thread(remote: Any, kind: str, table: Any, fields: Any, number: str, regression: Regression,
                                      alice: Any) -> None:
    server, forge = remote(kind, table, **fields)
    thread = thread_of(regression)
    link = services.issue_create(thread, forge, thread.title, services.issue_text(thread), by=alice)
    server.down = 1
    assert sending_services.send_due() == 1
    post = ForgePost.objects.get()
    assert (post.status, post.tries) == ("waiting", 1) and "503" in post.error
    ForgePost.objects.update(due=timezone.now())
    sending_services.send_due()
    link.refresh_from_db()
    assert (link.number, link.state) == (number, "open") and link.address.endswith(number)
    text = json.dumps(server.asked[-1][2])
    assert "suite: nightly" in text and "https://perf.example.com/threads/" in text


def test_a_forge_that_refuses_is_not_asked_again(remote: Any, regression: Regression, alice: Any) -> None:
    server, forge = remote("github", [], account="345/678", key=PEM)
    services.issue_create(thread_of(regression), forge, "t", "x", by=alice)
    sending_services.send_due()
    post = ForgePost.objects.get()
    assert post.status == "failed" and "404" in post.error and IssueLink.objects.get().state == "failed"
    server.wrong.clear()


def message(kind: str, closed: bool, at: str = "1") -> tuple[dict[str, Any], dict[str, str]]:
    """What a forge sends when issue 12 is closed or opened again, in what Ridgepoint reads of it."""
    if kind == "github":
        body: dict[str, Any] = {"action": "closed" if closed else "reopened", "repository": {"full_name": "team/kernels"},
                                "issue": {"number": 12, "state": "closed" if closed else "open", "updated_at": at}}
        return body, {"X-GitHub-Event": "issues"}
    if kind == "gitlab":
        return {"object_kind": "issue", "project": {"path_with_namespace": "team/kernels"}, "object_attributes": {
            "iid": 12, "action": "close" if closed else "reopen", "state": "closed" if closed else "opened", "updated_at": at}}, {}
    return {"webhookEvent": "jira:issue_updated", "timestamp": at, "changelog": {"items": [{"field": "status"}]}, "issue": {
        "key": "PERF-12", "fields": {"status": {"statusCategory": {"key": "done" if closed else "new"}}}}}, {}


def send(client: Client, forge: Forge, body: Any, headers: dict[str, str], secret: str = SECRET) -> Any:
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    digest = f"sha256={hmac.new(secret.encode(), raw, hashlib.sha256).hexdigest()}"
    signed = {"github": {"X-Hub-Signature-256": digest}, "gitlab": {"X-Gitlab-Token": secret}, "jira": {"X-Hub-Signature": digest}}
    return client.post(f"/forges/{forge.pk}/hook/", raw, content_type="application/json", headers={**headers, **signed[forge.kind]})


@pytest.mark.parametrize("kind", ["github", "gitlab", "jira"])
def test_a_closed_issue_resolves_its_thread_once(kind: str, regression: Regression, alice: Any, sign_in_mode: None) -> None:
    client = Client(enforce_csrf_checks=True)
    place = "PERF" if kind == "jira" else "team/kernels"
    forge, _ = services.forge_add(kind=kind, name="f", place=place, key="k", api="https://f.example.com", hook_secret=SECRET)
    thread = thread_of(regression)
    IssueLink.objects.create(thread=thread, forge=forge, address="https://f.example.com/12",
                             number="PERF-12" if kind == "jira" else "12", state="open")
    body, headers = message(kind, closed=True)
    assert send(client, forge, body, headers, secret="another secret").status_code == 401
    assert client.post(f"/forges/{forge.pk}/hook/", body, content_type="application/json", headers=headers).status_code == 401
    assert not ForgeArrival.objects.exists() and Regression.objects.get(pk=regression.pk).state == "open"
    assert send(client, forge, body, headers).json() == {"message": "taken"}
    assert Regression.objects.get(pk=regression.pk).state == "fixed" and IssueLink.objects.get().state == "closed"
    thread_services.status_set(Thread.objects.get(), "open", by=alice)
    IssueLink.objects.update(state="open")
    assert send(client, forge, body, headers).json() == {"message": "known"}             # sent again by whoever kept it
    assert Regression.objects.get(pk=regression.pk).state == "open"
    Forge.objects.update(resolves=False)
    assert send(client, forge, *message(kind, closed=True, at="2")).json() == {"message": "taken"}
    assert Regression.objects.get(pk=regression.pk).state == "open" and IssueLink.objects.get().state == "closed"


@pytest.mark.parametrize("body", [b"", b"[", b"[]", b"null", b'{"action":"closed"}', b"[" * 30_000, b'{"issue":[],"repository":1}'])
def test_odd_messages_change_nothing(body: bytes, db: None, client: Client) -> None:
    forge, _ = services.forge_add(kind="github", name="f", place="team/kernels", key="k", hook_secret=SECRET)
    assert send(client, forge, body, {"X-GitHub-Event": "issues"}).json() == {"message": "not for us"}
    assert send(client, forge, b"x" * 70_000, {}).status_code == 413


def test_what_is_no_forge_is_refused(db: None) -> None:
    good = {"kind": "github", "name": "f", "place": "team/kernels", "key": "k"}
    for wrong in ({"kind": "cvs"}, {"place": "team kernels"}, {"place": "../x y"}, {"api": "http://api.github.com"}, {"key": " "},
                  {"api": "file:///etc/passwd"}, {"hook_secret": "short"}):
        with pytest.raises(Refused):
            services.forge_add(**{**good, **wrong})


def test_a_forge_inside_the_network_is_not_asked(settings: Any, regression: Regression, alice: Any) -> None:
    forge, _ = services.forge_add(kind="gitlab", name="f", place="team/kernels", key="k", api="https://127.0.0.1:1")
    services.issue_create(thread_of(regression), forge, "t", "x", by=alice)
    sending_services.send_due()
    assert "inside this network" in ForgePost.objects.get().error


def test_owners_add_forges_and_keys_are_never_shown(api: Any, alice: Any, olga: Any, client: Client, sign_in_mode: None) -> None:
    given = {"kind": "gitlab", "name": "lab", "place": "team/kernels", "key": "glpat-very-secret"}
    assert api(alice).post("/api/forges/", given, format="json").status_code == 403
    made = api(olga).post("/api/forges/", given, format="json")
    assert made.status_code == 201 and len(made.json()["hook_secret"]) > 20
    client.force_login(olga)
    for told in (api(olga).get("/api/forges/").content.decode(), client.get("/forges/").content.decode()):
        assert "glpat" not in told and made.json()["hook_secret"] not in told and "lab" in told
