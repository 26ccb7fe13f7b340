"""A pasted kernel file: its row, its page, its API, the worker that compiles it behind walls, and files that mean harm."""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings
from django.test import Client
from django.urls import reverse

from profiles.base.refused import Refused
from tests.tuner.bring.cuda_call_files import SOFTMAX, SOFTMAX_CALL
from tests.tuner.bring.cuda_files import SCALE_ADD
from tests.tuner.bring.files import ADD, ADD_ONE, HELION, MATMUL
from tests.warm.parent import forks_behind_walls
from tuner.bring.checks import answer, selectors, services
from tuner.bring.cuda.check import has_compiler
from tuner.models import KernelCheck
from webapp.models import AuditEntry
from workers import jobs
from workers.core import sandboxed
from workers.row_kinds import ROW_KINDS
from workers.tune.check import BOUNDS, run

pytestmark = pytest.mark.django_db
behind_walls = pytest.mark.skipif(bool(sandboxed.why_not()), reason=f"no sandbox here: {sandboxed.why_not()}")
with_nvrtc = pytest.mark.skipif(not has_compiler(), reason="cuda-core and NVRTC are not installed")
in_threads = pytest.mark.django_db(transaction=True)        # the worker's own threads look at the row
SMALL = sandboxed.Bounds(wall_s=90, cpu_s=60, memory_mb=2048, data_mb=2048, processes=256, room_mb=128, files=2000, file_mb=64)


@pytest.fixture(scope="module")
def forked() -> Iterator[None]:
    """Checks are forks of a warm parent, as in a worker that has one (that a new process checks as well: own/test_own.py)."""
    with forks_behind_walls():
        yield


def made(text: str, owner: Any, **more: Any) -> KernelCheck:
    return services.check_create(text, owner=owner, **more)


def compiled(text: str, owner: Any, bounds: sandboxed.Bounds = SMALL, **more: Any) -> KernelCheck:
    check = made(text, owner, **more)
    run(check.pk, "here", bounds=bounds)
    check.refresh_from_db()
    return check


# what the text says


def test_what_the_text_says_is_there_at_once_and_nothing_of_it_ran(olga: Any, tmp_path: Path) -> None:
    check = made(f"{ADD}\nopen({str(tmp_path / 'ran')!r}, 'w')\n", olga, shape="n_elements=1000", dtype="fp16")
    assert not list(tmp_path.iterdir())
    kernel, = check.result["operators"]
    assert (check.status, check.file, check.shape) == ("waiting", "kernel.py", {"n_elements": 1000})
    assert kernel["name"] == "add_kernel" and kernel["size"] == 25 and kernel["compiled"] == []
    adapter, = check.adapters
    assert adapter["file"] == "kernel_ridgepoint.py" and "from kernel import add_kernel" in adapter["text"]
    assert adapter["space"]["params"][0] == {"name": "BLOCK_SIZE", "values": [256, 512, 1024, 2048, 4096]} and adapter["to_do"]


def test_cuda_and_a_script_and_helion_are_read_too(olga: Any) -> None:
    check = made(SCALE_ADD, olga)
    assert check.file == "kernel.cu" and check.result["operators"][0]["kind"] == "cuda"
    assert "CudaOperator" in check.adapters[0]["text"]
    script = f"import kernel_tuner\nkernel_tuner.tune_kernel('vector_add', '''{VECTOR_ADD}''', 1000, [], " \
             "{'block_size_x': [32, 64]})\n"
    check = made(script, olga, file="tune.py")
    assert check.result["operators"][0]["kind"] == "kernel_tuner" and check.adapters[0]["beside"]["file"] == "tune.cu"
    check = made(HELION, olga)
    assert "an adapter is written for" in check.adapters[0]["why"]


VECTOR_ADD = "__global__ void vector_add(float *c, float *a, float *b, int n) { int i = blockIdx.x * block_size_x + threadIdx.x; " \
             "if (i < n) { c[i] = a[i] + b[i]; } }"


ENDLESS = MATMUL.replace("for bm in (64, 128)", "for a in range(4096) for b in range(4096) for c in range(4096) if c < 0 "
                                                "for bm in (64, 128)")


@pytest.mark.parametrize(("fields", "field", "words"), [
    ({"text": "  "}, "text", "paste"), ({"text": "x = "}, "text", "no Python"), ({"text": "x = 1"}, "text", "holds no kernel"),
    ({"text": "#" * 300_000}, "text", "at most 262,144"), ({"text": ADD, "file": "../x.py"}, "file", "a name like"),
    ({"text": ADD, "file": "x.sh"}, "file", "a name like"), ({"text": ADD, "shape": "M=x"}, "shape", "NAME=NUMBER"),
    ({"text": ADD, "dtype": "int4"}, "dtype", "one of"), ({"text": ADD, "shape": {"M": -1}}, "shape", "NAME=NUMBER"),
    ({"text": ENDLESS}, "text", "too much"),
])
def test_what_cannot_be_checked_says_why(olga: Any, fields: dict[str, Any], field: str, words: str) -> None:
    with pytest.raises(Refused, match=words) as refused:
        services.check_create(**fields, owner=olga)
    assert list(refused.value.fields) == [field] and not KernelCheck.objects.exists()


def test_the_newest_are_kept(olga: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(services, "KEPT", 2)
    pks = [made(SCALE_ADD, olga).pk for _ in range(4)]
    assert sorted(KernelCheck.objects.values_list("pk", flat=True)) == pks[2:]
    assert AuditEntry.objects.filter(kind="kernel check", action="made").count() == 4


# who may


def test_owners_check_and_others_only_look(api: Any, olga: Any, alice: Any, bob: Any) -> None:
    body = {"text": ADD, "file": "add.py", "shape": {"n_elements": 1000}}
    for person in (alice, bob):
        assert api(person).post("/api/operators/check/", body, format="json").status_code == 403
        assert api(person).post("/api/operators/space/", {"params": {"A": [1]}}, format="json").status_code == 403
    answered = api(olga).post("/api/operators/check/", body, format="json")
    assert answered.status_code == 201 and answered.json()["result"]["file"] == "add.py"
    pk = answered.json()["id"]
    assert api(bob).get(f"/api/operators/check/{pk}/").json()["adapters"] == answered.json()["adapters"]
    assert api(alice).post(f"/api/operators/check/{pk}/stop/").status_code == 403
    assert api(olga).post(f"/api/operators/check/{pk}/stop/").json()["status"] == "stopped"
    assert [each["id"] for each in api(bob).get("/api/operators/check/").json()["results"]] == [pk]


def test_a_file_is_sent_as_a_part_of_a_form(api: Any, olga: Any, tmp_path: Path) -> None:
    path = tmp_path / "scale.cu"
    path.write_text(SCALE_ADD)
    with path.open() as file:
        answered = api(olga).post("/api/operators/check/", {"upload": file, "shape": "n=1000"})
    assert answered.status_code == 201 and answered.json()["file"] == "scale.cu"
    refused = api(olga).post("/api/operators/check/", {"text": "x", "dtype": "int4"}, format="json")
    assert refused.status_code == 400 and "dtype" in json.dumps(refused.json())


def test_a_space_is_counted_and_the_adapter_follows(api: Any, olga: Any) -> None:
    check = made(ADD, olga)
    body = {"params": {"BLOCK_SIZE": "64, 128", "num_warps": [1, 2], "num_stages": "1"},
            "constraints": ["BLOCK_SIZE * num_warps <= 128"], "check": check.pk, "kernel": "add_kernel"}
    told = api(olga).post("/api/operators/space/", body, format="json").json()
    assert (told["size"], told["valid"], told["default_breaks"]) == (4, 3, "BLOCK_SIZE * num_warps <= 128")
    assert told["constraints"][-1] == {"reason": "BLOCK_SIZE * num_warps <= 128", "expression": "BLOCK_SIZE * num_warps <= 128",
                                       "left_out": 1}
    assert 'params={"BLOCK_SIZE": (64, 128), "num_warps": (1, 2), "num_stages": (1,)}' in told["adapter"]
    wrong = api(olga).post("/api/operators/space/", {**body, "params": {"BLOCK_SIZE": ""}}, format="json")
    assert wrong.json() == {"fields": {"BLOCK_SIZE": "0 values; give 1 to 64"}, "size": None, "valid": None, "adapter": None}
    assert api(olga).post("/api/operators/space/", {"params": [1]}, format="json").status_code == 400
    assert api(olga).post("/api/operators/space/", {"params": {"A": [1, 2]}}, format="json").json()["adapter"] is None


def test_the_listed_space_of_an_autotuner_stays_its_own_until_it_is_edited(olga: Any) -> None:
    check = made(MATMUL, olga)
    params = {each["name"]: ", ".join(map(str, each["values"])) for each in check.adapters[0]["space"]["params"]}
    assert services.count_space(params, [], check=check, kernel="mm")["adapter"] == check.adapters[0]["text"]
    assert "params=" in services.count_space({**params, "BM": "32"}, [], check=check, kernel="mm")["adapter"]


# the page


@pytest.fixture
def owner(client: Client, olga: Any, sign_in_mode: None) -> Client:
    client.force_login(olga)
    return client


def test_the_page_shows_what_is_understood(owner: Client) -> None:
    answered = owner.post(reverse("kernel-check-new"), {"text": ADD, "file": "add.py", "shape": "n_elements=4096", "dtype": "bf16"})
    page = owner.get(answered["Location"]).content.decode()
    for words in ("add_kernel", "BLOCK_SIZE", "256, 512, 1024", "No compile or gpu worker is running", "manage.py worker compile",
                  "Waiting for a worker", "configurations can run", "TritonOperator", "n_elements=4096"):
        assert words in page, words
    assert "add.py" in owner.get(reverse("kernel-check-new")).content.decode()
    pk = int(re.findall(r"\d+", answered["Location"])[0])
    owner.post(reverse("kernel-check-stop", args=[pk]))
    assert "Stopped" in owner.get(answered["Location"]).content.decode()


def test_a_refused_form_keeps_what_was_typed(owner: Client) -> None:
    answered = owner.post(reverse("kernel-check-new"), {"text": "x = '<b>'", "file": "add.py", "shape": "M=y"})
    page = answered.content.decode()
    assert answered.status_code == 400 and "x = &#x27;&lt;b&gt;&#x27;" in page and "expected NAME=NUMBER" in page


def test_only_owners_are_offered_the_form(client: Client, alice: Any, sign_in_mode: None) -> None:
    client.force_login(alice)
    assert "check-form" not in client.get(reverse("kernel-check-new")).content.decode()
    assert client.post(reverse("kernel-check-new"), {"text": ADD}).status_code == 403


# the worker


def test_a_check_that_nobody_holds_is_woken_for_a_worker_that_can(olga: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    check = made(SCALE_ADD, olga)
    assert ROW_KINDS["check"].queue(check) == "compile"
    monkeypatch.setattr(jobs, "workers", lambda: [{"queues": ["gpu"], "tools": {"triton": {"version": "3"}}}])
    assert ROW_KINDS["check"].queue(check) == "gpu" and selectors.ability() == {"able": True, "why": ""}
    monkeypatch.setattr(jobs, "workers", lambda: [{"queues": ["compile"], "tools": {"triton": {"missing": "x"}}}])
    assert "has Triton" in selectors.ability()["why"]


def test_an_answer_is_read_like_an_upload(olga: Any) -> None:
    good = made(ADD, olga).result
    assert answer.read_operators(good) == good["operators"]
    for change in ({"kind": "x"}, {"size": -1}, {"parameters": 3}, {"compiled": [{}] * 500}, {"name": None},
                   {"pruned": {"x": 1.5}}):
        with pytest.raises(Refused):
            answer.read_operators({"operators": [{**good["operators"][0], **change}]})
    for told in ({}, [], {"operators": 3}, {"operators": [3]}, None):
        with pytest.raises(Refused):
            answer.read_operators(told)


def test_what_is_done_before_samples_are_compiled_is_said(owner: Client, olga: Any) -> None:
    check = services.check_claim(made(ADD, olga).pk, "here")
    assert check is not None
    services.check_step(check, "here", "compiling the host's part", 240.0)
    for wrong in ((3, 240.0), ("x", -1), ("x", None), ("x", 1e9)):
        services.check_step(check, "here", *wrong)
    address = f"/api/operators/check/{check.pk}/"
    step = owner.get(address).json()["step"]
    assert step["what"] == "compiling the host's part" and step["most_s"] == 240.0 and step["since"]
    page = owner.get(f"/tune/operators/check/{check.pk}/").content.decode()
    assert "Compiling the host&#x27;s part: started" in page and "at most 240 s" in page
    services.check_progress(check, "here", [1, 9])
    assert owner.get(address).json()["step"] is None
    services.check_done(check, "here", {"operators": check.result["operators"]})
    check.refresh_from_db()
    assert check.status == "done" and "step" not in check.result


@pytest.mark.deep_only          # of a call's kernel: test_called.py
@behind_walls
@pytest.mark.torch
@in_threads
def test_samples_are_compiled_behind_walls(olga: Any, forked: None) -> None:
    check = compiled(ADD_ONE, olga)
    assert (check.status, check.error) == ("done", None)
    assert check.compiled == check.samples == 3
    assert {line["gpu"] for line in check.result["operators"][0]["compiled"]} == {"sm_80", "sm_90", "sm_100"}
    assert all(line["registers"] > 0 and line["occupancy_pct"] for line in check.result["operators"][0]["compiled"])


@behind_walls
@with_nvrtc
@in_threads
def test_so_is_cuda(olga: Any, forked: None) -> None:
    check = compiled(SCALE_ADD, olga)
    lines = check.result["operators"][0]["compiled"]
    assert check.status == "done" and len(lines) == 9 and all(line["registers"] for line in lines)


@pytest.mark.deep_only          # PyTorch's headers take a compiler a minute
@behind_walls
@with_nvrtc
@pytest.mark.torch
@in_threads
def test_a_call_of_cuda_with_torch_is_made_behind_walls(olga: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    monkeypatch.setattr(services, "check_step", lambda check, worker, what, most_s: said.append(what))
    check = compiled(SOFTMAX, olga, BOUNDS, call=SOFTMAX_CALL)
    assert check.status == "done", check.error
    assert check.result["operators"][0]["recorded"]["grid"] == [8192] and check.adapters[0]["called"]
    assert [each.partition(" with")[0] for each in said] == [
        "compiling PyTorch's headers, once for this version", "compiling the host's part", "making the call, and again"]
    assert (Path(settings.HOME) / "host-headers").is_dir()


@in_threads
def test_where_no_namespace_can_be_made_it_is_refused(olga: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sandboxed, "why_not", lambda: "this host lets no sandbox be made: unshare: Operation not permitted")
    check = compiled(ADD, olga)
    assert check.status == "failed" and "Operation not permitted" in check.error["what"] and "The sandbox" in check.error["hint"]
    assert check.result["operators"][0]["size"] == 25
    ran: list[bool] = []
    monkeypatch.setattr(sandboxed, "run", lambda *given, walls, **more: ran.append(walls) or sandboxed.Ending("x", 1))
    monkeypatch.setenv(sandboxed.WITHOUT, "1")
    compiled(ADD, olga)
    assert ran == [False]


@behind_walls
@in_threads
def test_a_stop_ends_the_process_at_once(olga: Any) -> None:
    check = made(f"{ADD}\nwhile True: pass\n", olga)
    worker = threading.Thread(target=run, args=(check.pk, "here"), kwargs={"bounds": SMALL})
    worker.start()
    while KernelCheck.objects.get(pk=check.pk).status == "waiting":
        time.sleep(0.05)
    services.check_stop(check)
    began_s = time.monotonic()
    worker.join(20)
    assert not worker.is_alive() and time.monotonic() - began_s < 20
    assert KernelCheck.objects.get(pk=check.pk).status == "stopped"


HARM = {
    "fork": "import os\nwhile True:\n    try:\n        os.fork()\n    except OSError:\n        pass\n",
    "endless": "while True: pass\n",
    "memory": "held = []\nwhile True: held.append(bytearray(64 << 20))\n",
    "printing": "while True: print('x' * 100000)\n",
    "disk": "import os\nfor at in range(10**6):\n    open(f'/sandbox/{at}', 'wb').write(bytes(1 << 20))\n",
    "exit": "import os\nos._exit(0)\n",
    "kill": "import os, signal\nos.kill(os.getppid(), signal.SIGKILL)\nos.kill(1, signal.SIGKILL)\nos.killpg(0, signal.SIGKILL)\n",
}


@behind_walls
@pytest.mark.torch
@in_threads
@pytest.mark.parametrize("harm", ["memory", *(pytest.param(each, marks=pytest.mark.deep_only) for each in HARM
                                              if each != "memory")])        # their walls: tests/workers/core/test_sandboxed.py
def test_a_file_that_means_harm_is_contained(olga: Any, harm: str, forked: None) -> None:
    check = compiled(ADD + HARM[harm], olga, SMALL if harm == "memory" else sandboxed.Bounds(**{**vars(SMALL), "wall_s": 20}))
    kernel = check.result["operators"][0]
    problems = [each["what"] for each in kernel["problems"] if not each["missing"]]
    assert check.status in ("failed", "done") and (check.error or problems), harm
    assert harm != "memory" or "MemoryError" in problems[0], (check.error, problems)      # the file's, torch was imported
    assert kernel["compiled"] == [] and kernel["size"] == 25


@behind_walls
@pytest.mark.torch
@in_threads
def test_a_file_sees_no_secret_and_reaches_nobody(
        olga: Any, settings: Any, monkeypatch: pytest.MonkeyPatch, forked: None) -> None:
    monkeypatch.setenv("RIDGEPOINT_SECRET_KEY", "a secret of this installation")
    text = f"""
import os, socket
seen = [name for name in os.environ if "URL" in name or "SECRET" in name or "RIDGEPOINT_HOME" in name]
for place in ({str(settings.HOME)!r}, {str(Path.home())!r} + "/.ssh", "/etc/shadow", "/var", "/run"):
    seen += [place] if os.path.exists(place) else []
for address in (("127.0.0.1", 22), ("1.1.1.1", 53)):
    try:
        socket.create_connection(address, 1)
        seen.append(address)
    except OSError:
        pass
raise RuntimeError(f"seen: {{seen}}")
"""
    check = compiled(ADD + text, olga)
    assert "seen: []" in check.result["operators"][0]["problems"][0]["what"]


@behind_walls
@pytest.mark.torch
@in_threads
def test_a_forged_answer_brings_no_adapter_and_no_markup(owner: Client, olga: Any, forked: None) -> None:
    forged = {"operators": [{**made(ADD, olga).result["operators"][0], "name": "<script>alert(1)</script>"}],
              "adapters": [{"kernel": "add_kernel", "text": "import os"}]}
    write = f"os.write(os.open('/proc/1/fd/1', os.O_WRONLY), {json.dumps(forged)!r}.encode() + b'\\n')"
    text = f"{ADD}\nimport os\n{write}\nos.kill(1, 9)\n"
    check = compiled(text, olga)
    assert "TritonOperator" in check.adapters[0]["text"]
    assert "<script>alert" not in owner.get(reverse("kernel-check", args=[check.pk])).content.decode()


@pytest.mark.deep_only          # of what bounds the process: test_sandboxed.py; of a compile: test_check.py
@behind_walls
@pytest.mark.torch
@in_threads
def test_a_compile_without_end_is_ended(olga: Any, forked: None) -> None:
    endless = "\nimport time\nadd_kernel.warmup = lambda *given, **more: time.sleep(600)\n"
    check = compiled(ADD + endless, olga, sandboxed.Bounds(**{**vars(SMALL), "wall_s": 15}))
    assert check.status == "failed" and check.error["what"] == "it took longer than 15 s"


def test_the_bounds_are_those_of_the_document() -> None:
    text = (Path(__file__).parents[3] / "docs/bring.md").read_text()
    for number in (f"{BOUNDS.wall_s:.0f} s", f"{BOUNDS.memory_mb // 1024} GiB", f"{BOUNDS.processes} processes", "256 kB",
                   f"{services.KEPT} newest", sandboxed.WITHOUT):
        assert number in text, number
