"""The pytest plugin in real processes of pytest: what is measured, kept, sent, and judged by the gate through the API."""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings as django_settings
from django.urls import reverse

from tuner.gate import pytest_plugin
from tuner.gate.suites.records import read_records
from tuner.models import KernelRun, Suite
from webapp.models import ApiToken

pytestmark = pytest.mark.process

PLUGIN = Path(pytest_plugin.__file__)
TESTS = """
import os, time
import pytest

def work(n):
    end = time.perf_counter() + n * 1e-6 * float(os.environ.get("SLOWER", "1"))
    while time.perf_counter() < end:
        pass

@pytest.mark.parametrize("n", [100, 200])
def test_scale(ridgepoint, n):
    found = ridgepoint.measure(lambda: work(n), name="scale", dtype="fp32", flop=2 * n, bytes=8.0 * n, metrics={"waste": 0.5})
    assert found.median_us is None or found.median_us > n / 2

@pytest.mark.ridgepoint(samples=12, tag="marked")
def test_plain(ridgepoint):
    calls = []
    ridgepoint.measure(lambda: work(50), setup=lambda: calls.append(1))
    assert calls
"""
WRONG = """
import os, pytest
def test_fails(ridgepoint):
    ridgepoint.measure(lambda: None, name="fails")
    assert False

@pytest.fixture
def broken():
    yield
    raise RuntimeError("teardown")

def test_teardown(ridgepoint, broken):
    ridgepoint.measure(lambda: None, name="teardown")

@pytest.mark.xfail
def test_expected(ridgepoint):
    ridgepoint.measure(lambda: None, name="expected")
    assert False

def test_twice(ridgepoint):
    ridgepoint.measure(lambda: None, name="same")
    ridgepoint.measure(lambda: None, name="same")

def test_fine(ridgepoint):
    ridgepoint.measure(lambda: None, name="fine")
"""


def run(folder: Path, *options: str, text: str = TESTS, environ: dict[str, str] | None = None) -> tuple[int, str]:
    """Run pytest over a test file with the plugin as a team has it: one file on the path."""
    (folder / "ridgepoint_pytest.py").write_bytes(PLUGIN.read_bytes())
    (folder / "test_kernels.py").write_text(text)
    (folder / "pytest.ini").write_text("[pytest]\n")
    env = {"PATH": os.environ["PATH"], "HOME": str(folder), "PYTHONPATH": str(folder), "CUDA_VISIBLE_DEVICES": "",
           "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "TMPDIR": str(folder), **(environ or {})}
    ended = subprocess.run([sys.executable, "-m", "pytest", "-p", "ridgepoint_pytest", "-q", *options], cwd=folder, env=env,
                           stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=300)
    return ended.returncode, ended.stdout + ended.stderr


def written(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_without_an_option_each_function_is_called_once(tmp_path: Path) -> None:
    code, said = run(tmp_path)
    assert code == 0 and "3 passed" in said and "ridgepoint" not in said.replace("ridgepoint_pytest", "")


def test_each_process_is_a_run_in_the_form_that_the_gate_takes(tmp_path: Path) -> None:
    out = tmp_path / "runs.jsonl"
    code, said = run(tmp_path, "--ridgepoint-out", str(out), "--ridgepoint-device", "cpu", "--ridgepoint-runs", "3")
    assert code == 0 and "9 measurements: 3 kernels, 3 processes" in said, said
    records = read_records(out.read_bytes())
    assert len({each.run for each in records}) == 3 and not any(each.rejected for each in records)
    scale = [each for each in records if each.op == "scale"]
    assert {each.shape["n"] for each in scale} == {100, 200}
    assert all(len(each.us) == 50 and min(each.us) >= 99 for each in scale)
    assert scale[0].words["gpu"] == "cpu" and scale[0].words["dtype"] == "fp32"
    assert {"flop": 200.0, "bytes": 800.0, "waste": 0.5, "device": "cpu"}.items() <= scale[0].facts.items()
    plain = next(each for each in records if each.op == "test_kernels.py::test_plain")
    assert len(plain.us) == 12 and plain.words["tag"] == "marked"


def test_without_a_gpu_a_test_is_skipped_with_the_reason(tmp_path: Path) -> None:
    """Without torch, and with one that finds no GPU: a stand-in, for the real one takes 4 s to say so."""
    (tmp_path / "torch.py").write_text("raise ImportError('No module named torch')")
    out = tmp_path / "runs.jsonl"
    code, said = run(tmp_path, "--ridgepoint-out", str(out), "-rs")
    assert code == 0 and "3 skipped" in said and "no CUDA device here: --ridgepoint-device cpu" in said and written(out) == []
    (tmp_path / "torch.py").write_text(FAKE_TORCH.replace("lambda: True", "lambda: False"))
    assert run(tmp_path, "--ridgepoint-out", str(out), "--ridgepoint-device", "auto")[0] == 0
    assert {each["gpu"] for each in written(out)} == {"cpu"}


FAKE_TORCH = """
import time

int8, asked = "int8", []
class _Properties:
    name, uuid, L2_cache_size = "NVIDIA Fake", "1234", 50 << 20
class _Event:
    def __init__(self, enable_timing): pass
    def record(self): self.at = time.perf_counter()
    def elapsed_time(self, other): return (other.at - self.at) * 1e3
class _Buffer:
    def zero_(self): asked.append("flush")
def empty(size, dtype, device):
    asked.append(size)
    return _Buffer()
class version: cuda = "13.0"
class cuda:
    Event = _Event
    is_available = staticmethod(lambda: True)
    current_device = staticmethod(lambda: 0)
    get_device_properties = staticmethod(lambda index: _Properties)
    synchronize = staticmethod(lambda: asked.append("wait"))
"""
ON_CUDA = TESTS + """
def test_flushes(ridgepoint):
    import torch
    torch.asked.clear()
    ridgepoint.measure(lambda: work(20), name="flushed", samples=25)
    assert torch.asked[0] == 100 << 20 and torch.asked.count("flush") == 25 and torch.asked[-1] == "wait"
    torch.asked.clear()
    ridgepoint.measure(lambda: work(20), name="warm", flush=False)
    assert "flush" not in torch.asked
    torch.asked.clear()
    torch.cuda.get_device_properties(0).L2_cache_size = 0
    ridgepoint.measure(lambda: work(20), name="unknown", samples=10)
    assert torch.asked[0] == 256 << 20
"""


def test_on_a_gpu_samples_are_between_events_with_the_cache_flushed(tmp_path: Path) -> None:
    """A stand-in for torch: its events are clocks."""
    (tmp_path / "torch.py").write_text(FAKE_TORCH)
    (tmp_path / "triton.py").write_text("__version__ = '3.7.1'")
    tool = tmp_path / "bin" / "nvidia-smi"
    tool.parent.mkdir()
    tool.write_text('#!/bin/sh\necho "1980, 3201, 38, 108.56, 580.159"\n')
    tool.chmod(0o755)
    out = tmp_path / "runs.jsonl"
    code, said = run(tmp_path, "--ridgepoint-out", str(out), text=ON_CUDA,
                     environ={"PATH": f"{tool.parent}:{os.environ['PATH']}"})
    assert code == 0, said
    records = {each.op: each for each in read_records(out.read_bytes())}
    assert {"gpu": "NVIDIA Fake", "gpu_uuid": "GPU-1234", "cuda": "13.0", "triton": "3.7.1", "driver": "580.159"}.items() <= (
        records["flushed"].words.items())
    assert (len(records["flushed"].us), len(records["warm"].us), records["warm"].sm_clock_mhz) == (25, 50, 1980.0)
    assert (records["flushed"].facts["l2_flushed"], records["warm"].facts["l2_flushed"]) == (True, False)


def test_what_a_test_measured_counts_where_it_passed(tmp_path: Path) -> None:
    out = tmp_path / "runs.jsonl"
    code, said = run(tmp_path, "--ridgepoint-out", str(out), "--ridgepoint-device", "cpu", "--ridgepoint-runs", "2", text=WRONG)
    assert code == 1 and [each["op"] for each in written(out)] == ["fine", "fine"], said
    assert "is measured by test_kernels.py::test_twice too: give name, shape or tag" in said
    interrupting = TESTS + "\ndef test_stop():\n    raise KeyboardInterrupt\n"
    out.unlink()
    code, said = run(tmp_path, "--ridgepoint-out", str(out), "--ridgepoint-device", "cpu", text=interrupting)
    assert code == 2 and "interrupted: no runs are written or sent" in said and not out.exists()


def test_workers_of_xdist_measure_one_at_a_time_and_the_controller_writes(tmp_path: Path) -> None:
    out = tmp_path / "runs.jsonl"
    code, said = run(tmp_path, "-p", "xdist", "-n", "2", "--ridgepoint-out", str(out), "--ridgepoint-device", "cpu",
                     "--ridgepoint-runs", "2")
    records = written(out)
    assert code == 0 and len(records) == 6 and 2 <= len({each["run"] for each in records}) <= 3, said
    each_run = [{(one["op"], str(one["shape"])) for one in records if one["run"] == name} for name in {r["run"] for r in records}]
    assert set.union(*each_run) == {("scale", "{'n': 100}"), ("scale", "{'n': 200}"), ("test_kernels.py::test_plain", "{}")}


@pytest.mark.parametrize(("options", "words"), [
    (["--ridgepoint-url", "https://guard.example"], "needs --ridgepoint-suite and --ridgepoint-commit"),
    (["--ridgepoint-url", "file:///etc/passwd", "--ridgepoint-suite", "s", "--ridgepoint-commit", "c"], "write an address like"),
    pytest.param(["--ridgepoint-url", "https://me:pw@x.example", "--ridgepoint-suite", "s", "--ridgepoint-commit", "c"],
                 "write an address", marks=pytest.mark.deep_only),
    (["--ridgepoint-runs", "99"], "1 to 50"),
    pytest.param(["--ridgepoint-samples", "1"], "10 to 20,000", marks=pytest.mark.deep_only),
])
def test_options_that_cannot_be_are_named_before_anything_runs(tmp_path: Path, options: list[str], words: str) -> None:
    code, said = run(tmp_path, *options)
    assert code == 4 and words in said and "passed" not in said


class Scripted(HTTPServer):
    """A server that answers with these statuses in turn."""

    def __init__(self, *answers: tuple[int, bytes]) -> None:
        self.answers, self.asked = list(answers), list[tuple[str, dict[str, str], bytes]]()
        script = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                script.asked.append((self.path, dict(self.headers), body))
                status, said = script.answers.pop(0)
                self.send_response(status)
                self.send_header("Location", "http://127.0.0.1:1/stolen")
                self.end_headers()
                self.wfile.write(said)

            def log_message(self, *args: Any) -> None:
                pass

        super().__init__(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.serve_forever, daemon=True).start()


def test_runs_are_sent_with_the_token_again_after_a_bad_moment_and_never_to_elsewhere(tmp_path: Path) -> None:
    def send(*answers: tuple[int, bytes]) -> tuple[int, str, Scripted]:
        server = Scripted(*answers)
        code, said = run(tmp_path, "--ridgepoint-url", f"http://127.0.0.1:{server.server_port}/", "--ridgepoint-suite", "ker nels",
                         "--ridgepoint-commit", "abc", "--ridgepoint-device", "cpu", environ={"RIDGEPOINT_TOKEN": "rp_secret"})
        server.shutdown()
        server.server_close()
        return code, said, server

    code, said, server = send((503, b""), (201, b'{"stored": 3, "known": 0, "kernels": []}'))
    assert code == 0 and "sent to ker nels: 3 stored, 0 known" in said and "rp_secret" not in said
    path, headers, body = server.asked[1]
    assert path == "/api/runs/?suite=ker+nels&build=abc" and headers["Authorization"] == "Token rp_secret"
    assert len(gzip.decompress(body).splitlines()) == 3
    code, said, server = send((400, b'{"error": "no suite of this name"}'))
    assert code == 1 and "3 passed" in said and "answers 400" in said and "no suite of this name" in said and len(server.asked) == 1
    code, said, server = send((307, b""))
    assert code == 1 and "the server redirects to http://127.0.0.1:1/stolen" in said and len(server.asked) == 1


def send_build(server: str, folder: Path, token: str, commit: str, slower: str = "1", runs: int = 6) -> str:
    code, said = run(folder, "--ridgepoint-url", server, "--ridgepoint-suite", "kernels", "--ridgepoint-commit", commit,
                     "--ridgepoint-device", "cpu", "--ridgepoint-runs", str(runs),
                     environ={"RIDGEPOINT_TOKEN": token, "SLOWER": slower})
    assert code == 0, said
    return said


@pytest.fixture
def token(alice: Any) -> str:
    Suite.objects.create(name="kernels", kind="uploaded", device="")
    return str(ApiToken.objects.create(alice, name="ci", scope="write")[1])


@pytest.mark.django_db(transaction=True, available_apps=django_settings.INSTALLED_APPS)
def test_a_server_takes_what_the_plugin_sends(live_server: Any, tmp_path: Path, token: str, alice: Any, api: Any) -> None:
    assert "sent to kernels: 6 stored" in send_build(live_server.url, tmp_path, token, "before", runs=2)
    suite = Suite.objects.get()
    assert KernelRun.objects.filter(kernel__suite=suite).count() == 6 and suite.kernels.count() == 3
    handed = api(alice).get(reverse("api-gate-client", args=["ridgepoint_pytest.py"]))
    assert handed.content == PLUGIN.read_bytes() and "ridgepoint_pytest.py" in handed["Content-Disposition"]


@pytest.mark.deep_only          # of sending: the test above; of verdicts over uploaded runs: test_gates_api.py, test_gates.py
@pytest.mark.django_db(transaction=True, available_apps=django_settings.INSTALLED_APPS)
def test_from_a_test_file_to_a_verdict(live_server: Any, tmp_path: Path, token: str, alice: Any, api: Any) -> None:
    assert "sent to kernels: 18 stored" in send_build(live_server.url, tmp_path, token, "before")
    send_build(live_server.url, tmp_path, token, "same")
    send_build(live_server.url, tmp_path, token, "after", "1.5")
    suite = Suite.objects.get()
    assert KernelRun.objects.filter(kernel__suite=suite).count() == 54 and suite.kernels.count() == 3
    verdicts = {}
    for build in ("same", "after"):
        made = api(alice).post(reverse("api-gates"), {"suite": "kernels", "build": build, "against": "before"}, format="json")
        assert made.status_code in (200, 201), made.json()
        gate = api(alice).get(reverse("api-gate", args=[made.json()["id"]])).json()
        verdicts[build] = {each["key"]: each["verdict"] for each in gate["kernels"]}
    assert set(verdicts["after"].values()) == {"SLOWER"}, verdicts
    assert "SLOWER" not in verdicts["same"].values(), verdicts
