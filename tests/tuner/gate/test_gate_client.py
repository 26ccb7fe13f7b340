"""The pipeline's client against a real server: what it exits with, what it writes, and what it does when the network fails."""

import ast
import gzip
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from socketserver import StreamRequestHandler, ThreadingTCPServer
from xml.etree import ElementTree as ET

import pytest
import yaml
from django.conf import settings as django_settings
from django.core.management import call_command
from django.urls import reverse

from tuner.gate import client
from tuner.gate.verdicts.services import upload_runs
from tuner.models import Build, Gate, Suite
from webapp.models import ApiToken

PROJECT = Path(__file__).resolve().parents[3]
CLIENT_FILE = PROJECT / "tuner" / "gate" / "client.py"
RECORDED = PROJECT / "tests" / "data" / "h200" / "timing_runs.jsonl.gz"
WHERE = ["--gpu", "NVIDIA H200", "--toolkit", "cuda 13.0, triton 3.6.0", "--driver", "580.159"]
SHA = "3f2a" + "0" * 36
DONE = {"id": 7, "status": "done", "verdict": "PASS", "exit_code": 0, "reason": "as fast", "kernels": [], "links": {}}


def runs_file(path, runs, slower=1.0):
    """Recorded runs of one configuration of each operator; the softmax's samples are multiplied."""
    first, lines = {}, []
    for line in map(json.loads, gzip.decompress(RECORDED.read_bytes()).splitlines()):
        if line["config"] == first.setdefault(line["op"], line["config"]) and line["run"] in runs:
            factor = slower if line["op"] == "softmax" else 1.0
            lines.append(json.dumps({"run": line["run"], "op": line["op"], "shape": line["shape"],
                                     "us": [us * factor for us in line["us"]]}))
    path.write_bytes(gzip.compress("\n".join(lines).encode()))
    return str(path)


class Scripted:
    """A server that answers as it is told: (status, body or None for a broken connection, headers)."""

    def __init__(self, *answers):
        self.answers, self.asked = list(answers), []
        script = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self):
                length = int(self.headers.get("Content-Length") or 0)
                script.asked.append((self.command, self.path, self.rfile.read(length), dict(self.headers)))
                status, body, headers = (script.answers.pop(0) if len(script.answers) > 1 else script.answers[0])
                if body is None:
                    self.connection.close()
                    return
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(body if isinstance(body, bytes) else json.dumps(body).encode())

            do_POST = do_GET

            def log_message(self, *args):
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, args=(0.02,), daemon=True).start()


@pytest.fixture
def scripted():
    made = []

    def start(*answers):
        made.append(Scripted(*[(*answer, {})[:3] for answer in answers]))
        return made[-1]

    yield start
    for each in made:
        each.server.shutdown()
        each.server.server_close()


@pytest.fixture(autouse=True)
def unhurried(monkeypatch):
    monkeypatch.setattr(client.time, "sleep", lambda seconds: None)
    for name in (*client.SHA_VARIABLES, *client.BRANCH_VARIABLES, "RIDGEPOINT_URL", "RIDGEPOINT_TOKEN"):
        monkeypatch.delenv(name, raising=False)


def ask(server, *more):
    return client.main(["--server", server.url, "--suite", "serving", "--build", "b1", *more])


# ---- against Ridgepoint itself ----

@pytest.mark.django_db(transaction=True, available_apps=django_settings.INSTALLED_APPS)
def test_from_runs_to_exit_code_and_every_report(live_server, tmp_path, capsys, monkeypatch, alice):
    Suite.objects.create(name="serving", kind="uploaded", device="")
    monkeypatch.setenv("RIDGEPOINT_URL", live_server.url)
    monkeypatch.setenv("RIDGEPOINT_TOKEN", ApiToken.objects.create(alice, name="CI")[1])

    def gate(build, file, *more):
        return client.main(["--suite", "serving", "--build", build, "--runs", file, *WHERE, *more])

    assert gate("b1", runs_file(tmp_path / "b1.gz", range(1, 11))) == 0         # the first: nothing to compare with, and no failure
    assert "NO DATA" in capsys.readouterr().out
    assert gate("b2", runs_file(tmp_path / "b2.gz", range(11, 16))) == 0
    assert capsys.readouterr().out.startswith("PASS: ")
    files = {form: tmp_path / form for form in ("markdown", "junit", "json", "github")}
    slower = runs_file(tmp_path / "b3.gz", range(16, 21), 1.08)
    assert gate(SHA, slower, *(part for form, path in files.items() for part in (f"--{form}", str(path)))) == 1
    out = capsys.readouterr().out
    assert out.startswith("SLOWER: ") and "▲ SLOWER" in out and f"Evidence: {live_server.url}/gates/" in out
    suite = ET.parse(files["junit"]).getroot().find("testsuite")
    assert (suite.get("tests"), suite.get("failures"), suite.get("errors")) == ("3", "1", "0")
    document = json.loads(files["json"].read_text())
    worst = document["kernels"][0]
    assert (document["exit_code"], worst["op"], worst["verdict"]) == (1, "softmax", "SLOWER")
    assert 1.06 < worst["ci"][0] <= worst["ratio_p50"] <= worst["ci"][1] < 1.1
    assert files["markdown"].read_text().startswith("### ❌ SLOWER: 3f2a00000000 of serving, softmax")
    check = json.loads(files["github"].read_text())
    page = f"{live_server.url}/gates/{document['id']}/"
    assert (check["conclusion"], check["head_sha"], check["details_url"]) == ("failure", SHA, page)
    assert client.main(["--gate", str(document["id"]), "--quiet"]) == 1       # asked again later
    assert client.main(["--suite", "unheard", "--build", "b1", *WHERE]) == 3
    assert "there is no such suite" in capsys.readouterr().err
    broken = tmp_path / "broken.jsonl"
    broken.write_text('{"run": 1, "op": "softmax", "shape": {}, "us": ["fast"]}\n')
    assert gate("b4", str(broken)) in (2, 3) and "Traceback" not in capsys.readouterr().err
    monkeypatch.setenv("RIDGEPOINT_TOKEN", "rp_of_nobody")
    assert gate("b5", slower) == 3
    assert "Token" in capsys.readouterr().err


# ---- the pipelines of docs/gate-ci.md, word for word ----

def pipelines():
    """Each step of the documentation's examples, as the CI system hands it to a shell."""
    text = (PROJECT / "docs" / "gate-ci.md").read_text()
    github, gitlab, buildkite = (yaml.safe_load(block) for block in re.findall(r"```yaml\n(.*?)```", text, re.DOTALL))
    jenkins = re.search(r"```groovy\n(.*?)```", text, re.DOTALL)[1]
    job = github["jobs"]["kernels"]
    return {"GitHub": [step["run"] for step in job["steps"] if "run" in step], "GitLab": gitlab["kernels"]["script"],
            "Buildkite": buildkite["steps"][0]["command"].replace("$$", "$").splitlines(),
            "Jenkins": re.findall(r"(?:sh |script: )'([^']*)'", jenkins), "by hand": re.search(
                r"```sh\n[^\n]*RIDGEPOINT_TOKEN=[^\n]*\n(.*?)```", text, re.DOTALL)[1].splitlines()}


@pytest.mark.skipif(not shutil.which("curl"), reason="no curl on this machine")
@pytest.mark.django_db(transaction=True, available_apps=django_settings.INSTALLED_APPS)
def test_the_documented_pipelines_do_what_they_say(live_server, tmp_path, alice):
    suite = Suite.objects.create(name="serving", kind="uploaded", device="")
    for build, runs, factor in (("base", range(1, 11), 1.0), (SHA, range(16, 21), 1.08)):
        where = {"gpu": "NVIDIA H200", "toolkit": "cuda 13.0, triton 3.6.0", "driver": "580.159"}
        upload_runs(suite, build, Path(runs_file(tmp_path / build, runs, factor)).read_bytes(), **where)
    tools = tmp_path / "tools"
    tools.mkdir()
    (tools / "gh").write_text('#!/bin/sh\necho "$@" >> gh.log\n')               # GitHub's own tool: what it is asked is looked at
    (tools / "gh").chmod(0o755)
    github = {"github.event.pull_request.base.sha": "base", "github.event.pull_request.html_url": "https://git.example/pull/7",
              "github.event.number": "7"}
    environ = {"PATH": f"{tools}:{os.environ['PATH']}", "RIDGEPOINT_URL": live_server.url, "HOME": str(tmp_path), "SHA": SHA,
               "RIDGEPOINT_TOKEN": ApiToken.objects.create(alice, name="CI")[1], "GITHUB_REPOSITORY": "team/kernels",
               "GITHUB_STEP_SUMMARY": "summary.md", "CI_COMMIT_SHA": SHA, "CI_PIPELINE_URL": "https://git.example/p/7",
               "GIT_COMMIT": SHA, "BUILD_URL": "https://ci.example/7/",
               "BUILDKITE_BUILD_URL": "https://buildkite.example/7"}
    for name, steps in pipelines().items():
        folder = tmp_path / name
        folder.mkdir()
        codes = []
        for step in steps:
            script = re.sub(r"\$\{\{ (.*?) \}\}", lambda found: github[found[1]], step)
            done = subprocess.run(["bash", "-e", "-c", script], cwd=folder, env=environ, capture_output=True, text=True, timeout=60)
            codes.append(done.returncode)
            assert "SLOWER" in done.stdout or done.returncode == 0, (name, step, done.stderr)
        assert codes.count(1) == 1 and set(codes) == {0, 1}, (name, codes)
    assert (tmp_path / "GitHub" / "summary.md").read_text().startswith("### ❌ SLOWER")
    said = (tmp_path / "GitHub" / "gh.log").read_text().splitlines()
    assert said == ["pr comment 7 --repo team/kernels --edit-last --create-if-none --body-file gate.md",
                    "api repos/team/kernels/check-runs --input check.json"]
    assert json.loads((tmp_path / "GitHub" / "check.json").read_text())["conclusion"] == "failure"
    for name, file in (("GitLab", "gate.xml"), ("Jenkins", "gate.xml"), ("Buildkite", "gate.xml"), ("by hand", "gate.xml")):
        assert ET.parse(tmp_path / name / file).getroot().find("testsuite").get("failures") == "1"


@pytest.mark.django_db
def test_reports_over_the_api(api, bob, sign_in_mode):
    found = Gate.objects.create(suite=Suite.objects.create(name="serving"), status="measuring",
                                build=Build.objects.create(name="b1", at="2026-11-22T00:00:00Z"))
    address, http = reverse("api-gate-report", args=[found.pk]), api(bob)
    assert http.get(address).status_code == 400 and http.get(address, {"format": "pdf"}).json()["where"] == "format"
    early = http.get(address, {"format": "junit"})
    assert early.status_code == 409 and "not decided yet" in early.json()["error"]
    assert http.get(address, {"format": "md"}).content.decode().startswith("### ⏳ b1 of serving is being measured")
    assert http.get(address, {"format": "github"}).json()["where"] == "head_sha"
    check = http.get(address, {"format": "github", "head_sha": SHA})
    assert (json.loads(check.content)["status"], check["Content-Disposition"]) == (
        "in_progress", f'attachment; filename="gate-{found.pk}.github.json"')
    wrong = {"format": "github", "head_sha": SHA, "undecided": "success", "path": "x" * 301}
    assert set(http.get(address, wrong).json()["fields"]) == {"undecided", "path"}
    assert http.get(reverse("api-gate-report", args=[0]), {"format": "md"}).status_code == 404
    assert api().get(address, {"format": "md"}).status_code in (401, 403)


@pytest.mark.django_db
def test_the_client_can_be_fetched_and_is_the_file_that_is_tested(api, bob):
    answer = api(bob).get(reverse("api-gate-client", args=["ridgepoint_gate.py"]))
    assert answer.content == CLIENT_FILE.read_bytes()
    assert "ridgepoint_gate.py" in answer["Content-Disposition"]
    assert api(bob).get(reverse("api-gate-client", args=["settings.py"])).status_code == 404


def test_the_file_needs_python_3_8_and_its_standard_library():
    tree = ast.parse(CLIENT_FILE.read_text(), feature_version=(3, 8))
    named = [alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names]
    named += [node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    assert {name.split(".")[0] for name in named} <= sys.stdlib_module_names
    newer = {"removeprefix", "removesuffix", "zip_longest", "cache", "pairwise"}          # methods and functions of later Pythons
    assert not newer & {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}


# ---- the network ----

def test_a_failing_network_is_tried_again_and_then_an_error(scripted, capsys):
    server = scripted((503, {}), (200, None), (429, {}, {"Retry-After": "1"}), (200, DONE))
    assert ask(server) == 0
    assert [each[0] for each in server.asked] == ["POST"] * 4
    told = capsys.readouterr().err
    assert "answers 503; trying again" in told and "does not answer" in told
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    began = time.monotonic()
    assert client.main(["--server", f"http://127.0.0.1:{port}", "--suite", "s", "--build", "b", "--patience", "0"]) == 3
    assert "does not answer" in capsys.readouterr().err and time.monotonic() - began < 30


@pytest.mark.parametrize(("answer", "says"), [
    ((200, b"<html>a proxy's page</html>"), "does not answer with JSON"), ((200, [1]), "something else than a gate"),
    ((200, {"exit_code": None, "status": "x"}), "not a gate"), ((200, {"exit_code": None, "id": "seven"}), "not a gate"),
    ((400, {"error": "suite: there is no such suite", "hint": "correct these fields"}), "there is no such suite — correct"),
    ((500, b"oops"), "500"), ((403, {"error": "ask an owner"}), "ask an owner"),
    ((302, {}, {"Location": "http://elsewhere.example/"}), "redirects to http://elsewhere.example/")])
def test_what_is_no_gate_is_an_error_and_no_traceback(scripted, capsys, answer, says):
    server = scripted(answer)
    assert ask(server, "--timeout", "0.5") == 3
    assert says in capsys.readouterr().err and len(server.asked) < 4


@pytest.mark.parametrize("stops", ["body", "chunk", "length"])
def test_half_an_answer_is_asked_for_again_and_never_written(tmp_path, stops):
    """A server or proxy that dies while it answers: what came so far is no report."""
    whole = json.dumps(DONE).encode()
    half = {"body": b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % (2 * len(whole)) + whole,
            "chunk": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n" % (2 * len(whole)) + whole,
            "length": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n" + whole[:5] + b"\r\n"}[stops]
    good = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(whole) + whole
    answers, heads = [half, good, half, half, good], []

    class Dying(StreamRequestHandler):
        def handle(self):
            heads.append(self.request.recv(65536))
            self.wfile.write(answers.pop(0))

    with ThreadingTCPServer(("127.0.0.1", 0), Dying) as server:
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        file = tmp_path / "gate.json"
        assert client.main(["--server", f"http://127.0.0.1:{server.server_address[1]}", "--suite", "s", "--build", "b",
                                 "--json", str(file)]) == 0
        server.shutdown()
    assert json.loads(file.read_bytes()) == DONE and answers == []
    keys = [line for head in heads for line in head.splitlines() if line.lower().startswith(b"idempotency-key: ")]
    assert len(keys) == 2 and len(set(keys)) == 1                # the gate was asked for twice, and is one


def test_an_answer_that_drips_ends(monkeypatch):
    monkeypatch.setattr(client, "ANSWER_S", 0.3)

    class Dripping(StreamRequestHandler):
        def handle(self):
            self.request.recv(65536)
            self.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n")
            with suppress(OSError):
                for _ in range(100):
                    self.wfile.write(b" ")
                    threading.Event().wait(0.05)

    with ThreadingTCPServer(("127.0.0.1", 0), Dripping) as server:
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        with pytest.raises(client.NoAnswer, match="not at its end after"):
            client.Server(f"http://127.0.0.1:{server.server_address[1]}", "", patience_s=0).gate(7)
        server.shutdown()


@pytest.mark.parametrize("header", ["0", "Wed, 21 Oct 2026 07:28:00 GMT", "-5", "999999"])
def test_retry_after_makes_nobody_hammer_or_sleep_for_ever(scripted, monkeypatch, header):
    slept = []
    monkeypatch.setattr(client.time, "sleep", slept.append)
    assert ask(scripted((503, {}, {"Retry-After": header}), (200, DONE))) == 0
    assert len(slept) == 1 and 0.7 < slept[0] <= 60


def test_an_error_that_nobody_expected_never_says_slower(scripted, tmp_path):
    """Python ends with 1 after a traceback, and with 120 where standard output is closed."""
    server = scripted((200, {**DONE, "kernels": [{"key": "µ", "verdict": "PASS", "ratio_p50": 10**400}]}))
    command = [sys.executable, str(CLIENT_FILE), "--server", server.url, "--suite", "s", "--build", "b"]
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "PYTHONPATH": ""}, timeout=60)
    assert done.returncode == 3 and "OverflowError" in done.stderr
    fine = scripted((200, {**DONE, "reason": "µs ▲"}))
    command[3] = fine.url
    ascii_only = {**os.environ, "PYTHONPATH": "", "PYTHONIOENCODING": "ascii"}
    done = subprocess.run(command, capture_output=True, text=True, env=ascii_only, timeout=60)
    assert done.returncode == 0 and "?s ?" in done.stdout


def test_the_token_goes_to_the_server_and_nowhere_else(scripted, monkeypatch, capsys):
    server, elsewhere = scripted((200, DONE)), scripted((200, DONE))
    monkeypatch.setenv("RIDGEPOINT_TOKEN", "rp_secret\n")                     # as a file's line
    assert ask(server) == 0 and server.asked[0][3]["Authorization"] == "Token rp_secret"
    redirecting = scripted((307, {}, {"Location": elsewhere.url + "/api/gates/"}))
    assert ask(redirecting) == 3 and elsewhere.asked == []
    capsys.readouterr()
    monkeypatch.setenv("RIDGEPOINT_TOKEN", "rp_secret rp_secret")
    assert ask(elsewhere) == 3 and elsewhere.asked == []
    told = capsys.readouterr().err
    assert "the token holds a space" in told and "rp_secret" not in told
    for address in ("https://me:rp_secret@guard.example", "https://rp_secret@[::1", "https://x.example:port", "https://x.example/ä"):
        assert client.main(["--server", address, "--suite", "s", "--build", "b"]) == 3
        told = capsys.readouterr().err
        assert "write an address like" in told and "rp_secret" not in told


@pytest.mark.parametrize(("gate", "code"), [
    ({"exit_code": 2, "status": "stopped", "verdict": ""}, 2), ({"exit_code": 3, "status": "failed", "verdict": ""}, 3),
    ({"exit_code": 9, "verdict": "PASS"}, 3), ({"exit_code": True, "verdict": "PASS"}, 3)])
def test_exit_codes_are_the_four(scripted, gate, code):
    assert ask(scripted((200, {**DONE, **gate}))) == code


def test_it_follows_until_the_end_or_its_own_limit(scripted, capsys):
    going = {**DONE, "exit_code": None, "status": "measuring", "verdict": "", "progress": {"says": "12 of 65 runs"}}
    server = scripted((201, going), (200, going), (200, DONE))
    assert ask(server) == 0
    assert [each[1].partition("?")[0] for each in server.asked] == ["/api/gates/", "/api/gates/7/", "/api/gates/7/"]
    assert capsys.readouterr().err.count("12 of 65 runs") == 1                # said once
    assert ask(scripted((200, going)), "--timeout", "0") == 2
    assert "goes on, ask again with --gate 7" in capsys.readouterr().err
    assert ask(scripted((200, going)), "--start-only") == 0 and capsys.readouterr().out == "7\n"


def test_what_is_asked_is_what_was_given(scripted, tmp_path, monkeypatch):
    server = scripted((200, DONE))
    configs = tmp_path / "configs.json"
    configs.write_text('{"softmax": {"BM": 1}}')
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    monkeypatch.setenv("GITHUB_SHA", SHA)
    monkeypatch.setenv("GITHUB_REF_NAME", "main")
    assert client.main(["--server", server.url, "--suite", "s", "--fresh-runs", "7", "--configs", str(configs),
                             "--gpu", "NVIDIA H200"]) == 0
    assert json.loads(server.asked[0][2]) == {"suite": "s", "build": SHA, "branch": "main", "runs": 7,
                                              "configs": {"softmax": {"BM": 1}}, "environment": {"gpu": "NVIDIA H200"}}


@pytest.mark.parametrize(("text", "says"), [
    (b"", "holds no run"), (b'{"us": [1]}\n{"us": [NaN]}', "line 2: NaN is no JSON"), (b"[1]", "line 1: not an object"),
    (b'{"a": 1}\n{"a":', "line 2"), (b"\x1f\x8bnot gzip", "runs"), (b'{"us": [1e999]}', "cannot be written as JSON"),
    (b"[" * 100_000, "line 1"), (b'{"us": "\xff"}', "line 1")])
def test_a_file_that_is_no_runs_file_is_an_error_with_its_line(scripted, tmp_path, capsys, text, says):
    path = tmp_path / "runs.jsonl"
    path.write_bytes(text)
    server = scripted((200, DONE))
    assert ask(server, "--runs", str(path)) == 3
    assert says in capsys.readouterr().err and server.asked == []


@pytest.mark.parametrize(("more", "says"), [
    (["--github", "x"], "whole sha"), (["--github", "x", "--head-sha", "abc"], "whole sha"),
    (["--junit", "/"], "/: cannot be written"), (["--markdown", "/nowhere/x"], "/nowhere/x: cannot be written")])
def test_what_cannot_be_written_is_said_before_a_gpu_is_asked_for(scripted, capsys, more, says):
    server = scripted((200, DONE))
    assert ask(server, *more) == 3 and server.asked == []
    assert says in capsys.readouterr().err


def test_a_verdict_stands_whatever_becomes_of_its_reports(scripted, tmp_path, capsys):
    slower = {**DONE, "verdict": "SLOWER", "exit_code": 1}
    for gate, code in ((slower, 1), (DONE, 3)):
        assert ask(scripted((200, gate), (500, b"oops")), "--junit", str(tmp_path / "x")) == code
        told = capsys.readouterr()
        assert gate["verdict"] in told.out and "error: 500" in told.err


@pytest.mark.parametrize("argv", [["--nonsense"], [], ["--server", "guard.example", "--suite", "s", "--build", "b"],
                                  ["--server", "http://x.example", "--suite", "s"]])
def test_a_wrong_command_line_is_an_error_and_never_undecided(argv, capsys):
    assert client.main(argv) == 3


def test_names_cannot_steer_a_terminal(scripted, capsys):
    kernel = {"key": "a\x1b[31mb\nc", "verdict": "SLOWER", "reason": "\x9b31m", "ratio_p50": 0.9999, "ci": [0.99, "x"]}
    ask(scripted((200, {**DONE, "verdict": "SLOWER", "exit_code": 1, "kernels": [kernel, 5]})))
    out = capsys.readouterr().out
    assert "\x1b" not in out and "\x9b" not in out and "+0.0 %" in out and "-0.0" not in out


def test_a_cancelled_pipeline_stops_its_gate(scripted):
    going = {**DONE, "exit_code": None, "status": "measuring", "verdict": ""}
    server = scripted((200, going))
    process = subprocess.Popen([sys.executable, str(CLIENT_FILE), "--server", server.url, "--suite", "s",
                                "--build", "b"], stderr=subprocess.PIPE, env={**os.environ, "PYTHONPATH": ""})
    while not any(path.startswith("/api/gates/7/") for _, path, _, _ in list(server.asked)):
        assert process.poll() is None
    process.send_signal(signal.SIGTERM)
    _, told = process.communicate(timeout=30)
    assert process.returncode == 3 and b"gate 7 was stopped" in told
    assert server.asked[-1][:2] == ("POST", "/api/gates/7/stop/")


# ---- manage.py gate over rows ----

@pytest.mark.django_db
def test_the_command_asks_over_rows_as_the_client_does_over_http(tmp_path, capsys):
    Suite.objects.create(name="serving", kind="uploaded", device="")

    def gate(build, file, *more):
        with pytest.raises(SystemExit) as ended:
            call_command("gate", "--suite", "serving", "--build", build, "--runs", file, *WHERE, *more)
        return ended.value.code

    assert gate("b1", runs_file(tmp_path / "b1.gz", range(1, 11))) == 0
    assert gate("b2", runs_file(tmp_path / "b2.gz", range(11, 16), 1.1), "--junit", str(tmp_path / "gate.xml")) == 1
    assert "▲ SLOWER" in capsys.readouterr().out
    assert ET.parse(tmp_path / "gate.xml").getroot().get("failures") == "1"
    assert gate("b2", runs_file(tmp_path / "b2.gz", range(11, 16), 1.1), "--json") == 1
    assert json.loads(capsys.readouterr().out)["kernels"][0]["op"] == "softmax"
    assert gate("b3", str(tmp_path / "missing")) == 3 and "missing" in capsys.readouterr().err
    with pytest.raises(SystemExit) as ended:
        call_command("gate", "--suite", "nobody", "--build", "b", "--json")
    assert ended.value.code == 3 and "no such suite" in capsys.readouterr().err
