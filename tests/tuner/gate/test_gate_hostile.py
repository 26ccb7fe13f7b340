"""What nobody sends by accident: every address of the tuner answers it with what is wrong, and none with a server error.

Kernels that a build has no line of: red until somebody says that they were meant to go, wherever a verdict is read.
"""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.urls import reverse
from django.utils import timezone

from profiles.base.refused import Refused
from tests.tuner.gate.builds.test_levels import H200, at, gate, runs
from tuner.cache.exchange import export_selectors
from tuner.cache.exchange import services as exchange_services
from tuner.cache.formats import fused_moe, triton_text
from tuner.cache.formats.document import FormatError
from tuner.cache.serve import services as served_services
from tuner.gate.client import gate_request, make_parser
from tuner.gate.reports import REPORTS, github
from tuner.gate.verdicts import decide_services, selectors, services
from tuner.jobs import create_services, quarantine
from tuner.models import BaselineChange, CachedConfig, Gate, Quarantine, ServedCount, SnapshotView, Suite

pytestmark = pytest.mark.django_db
HALF, DIGITS, HUGE = "\ud800", "9" * 5000, 10**400
SHAPE = {"R": 4096, "C": 4096}
TUNE = {"operator": "softmax", "shape": SHAPE, "dtype": "bf16", "device": "gpu"}
SERVED = {"snapshot": "", "gpu": "g", "toolkit": "t", "host": "h"}
ROW = {"operator": "softmax", "dtype": "bf16", "bucket": "R=1", "rule": "default", "entry": None, "launches": 1}
FOUND = {"kernel": "m.k", "name": "k", "shape": {"M": 1}, "config": {"BM": 1}, "median_ms": 1.0, "dtypes": ["bf16"], "variant": {},
         "timings": [], "source_hash": "x", "tried": 1, "failed": 0}


def made(owner: Any) -> Any:
    return create_services.tune_create(owner=owner, **TUNE, strategy="random", budget_trials=10, budget_seconds=60.0)


def served(**wrong: Any) -> Any:
    return "/api/configs/served/", {**SERVED, "served": [{**ROW, **wrong}]}


def listened(**wrong: Any) -> Any:
    return "/api/configs/listened/", {"gpu": "g", "toolkit": "t", "host": "h", "found": [{**FOUND, **wrong}]}


@pytest.mark.parametrize(("path", "body"), [
    ("/api/tune/", {**TUNE, "first": [{"a": "\0"}]}), ("/api/tune/", {**TUNE, "first": [{"a": HALF}]}),
    ("/api/tune/", {**TUNE, "first": [{HALF: 1}]}), ("/api/tune/", {**TUNE, "only": [{"a\0": 1}]}),
    ("/api/tune/", {**TUNE, "only": [{"a": 10**1500}]}), ("/api/tune/", {**TUNE, "shape": {**SHAPE, HALF: 1}}),
    ("/api/tune/groups/", {"name": "x", "shapes": [TUNE], "device": "gpu:" + "x" * 130, "effort": "quick"}),
    ("/api/tune/", {**TUNE, "shape": {"R": HUGE, "C": 1}}), ("/api/tune/", {**TUNE, "seed": HUGE}),
    served(operator=HALF), served(launches=HUGE), served(entry=HUGE),
    listened(kernel=HALF), listened(source_hash=HALF), listened(config={"BM": HUGE}), listened(config={"BM": HALF}),
    listened(config={"BM": "\0"}), listened(tried=1e300), listened(tried=HUGE), listened(tried=-5), listened(variant={"a": HALF}),
    listened(dtypes=[HALF]), listened(median_ms=HUGE), listened(shape={f"d{'x' * 50}{i}": 2**39 for i in range(12)})])
def test_what_is_sent_is_refused_with_a_reason(api: Any, alice: Any, path: str, body: Any) -> None:
    answer = api(alice).post(path, json.dumps(body).replace("1e+300", "1e999"), content_type="application/json")
    assert answer.status_code == 400
    assert answer.json()["error"]


@pytest.mark.parametrize(("name", "data", "fields"), [
    ("E=8,N=256,device_name=NVIDIA_H200.json", {"0" * 11 + "1" + "9" * 5000: {"BLOCK_SIZE_M": 1}}, {"shape": "K=2048 topk=8"}),
    ("E=8,N=256,device_name=NVIDIA_H200.json", {"1": {"BLOCK_SIZE_M": "\0"}, "triton_version": "\0"}, {"shape": "K=2048 topk=8"}),
    ("a.json", {"block_sizes": [1, 2, 3], "num_warps": "\0"}, {}), ("a.json", {"block_sizes": [1, 2, 3], "num_warps": HALF}, {}),
    ("a.json", {"block_sizes": [1, 2, 3], HALF: 1}, {}), ("a.json", {"config": HALF, "key": {"fields": {}}}, {"format": "helion"}),
    ("a.json", {"configs_timings": [[{"kwargs": [1, 2]}, 1.0]]}, {}), ("a.json", {"configs_timings": [[{"kwargs": 3}, 1.0]]}, {}),
    ("a.json", {"configs_timings": [[{"kwargs": {"a": 1}}, HUGE]]}, {}), ("\u4e00" * 200 + ".json", {"results": []}, {}),
    ("a.json", {"results": [{"configuration": {"a": 1}, "measurements": [{"name": "time", "value": HUGE}]}]}, {}),
    ("a.json", {"tune_params_keys": ["a"], "cache": {"1": {"a": 1, "time": HUGE, "times": [HUGE]}}}, {"format": "kernel-tuner"}),
    ("a.json", {"gpu": "g", "shapes": [{"shape": {"x]\nimport os": 1}, "rows": [{"config": {"a": 1}, "median_ms": 1.0}]}]},
     {"format": "t4", "shape": ""}),
    ("a.py", 'triton.Config({"a": "\0"}, num_warps=4)', {}),
    ("a.py", 'triton.Config({"a": 1})', {"shape": " ".join(f"d{i}=999999999999999" for i in range(14))})])
def test_a_hostile_file_is_refused_and_leaves_nothing(api: Any, alice: Any, name: str, data: Any, fields: dict[str, str]) -> None:
    text = data if isinstance(data, str) else json.dumps(data)
    sent = {"operator": "foo", "gpu": "g", "shape": "M=1", **fields, "file": SimpleUploadedFile(name, text.encode())}
    answer = api(alice).post("/api/configs/import/", sent)
    assert answer.status_code == 400, answer.content
    assert not CachedConfig.objects.exists()


@pytest.mark.parametrize(("name", "data", "fields"), [
    ("\u4e00" * 200 + ".json", {"results": [{"configuration": {"a": 1}, "times": {"runtimes": [1.0]}}]}, {"format": "t4"}),
    ("a.json", {"config": '{"num_warps": 4}', "key": {"fields": {"hardware": "g\0\ud800\nx", "backend": "\0"}}},
     {"gpu": "", "format": "helion"}),
    ("a.json", {"tune_params_keys": ["a"], "cache": {"1": {"a": 1, "time": 1.0}}, "kernel_name": "\0", "device_name": "\0g"}, {})])
def test_what_a_row_cannot_hold_does_not_reach_it(api: Any, alice: Any, name: str, data: Any, fields: dict[str, str]) -> None:
    sent = {"operator": "foo", "gpu": "g", "shape": "M=1", **fields, "file": SimpleUploadedFile(name, json.dumps(data).encode())}
    assert api(alice).post("/api/configs/import/", sent).status_code == 201
    assert CachedConfig.objects.get().gpu.isprintable()


@pytest.mark.parametrize("text", ["Config(#", 'Config("', "Config([", "Config( "])
def test_calls_that_nothing_closes_do_not_take_the_square_of_the_file(text: str) -> None:
    began = time.process_time()
    with pytest.raises(FormatError):
        triton_text.read((text * 15_000).encode(), "a.py")
    assert time.process_time() - began < 5          # 160 kB took 16 s, and a file may have 8 MiB


def test_pages_and_addresses(client: Any, api: Any, alice: Any) -> None:
    job = made(alice)
    shape = {"M": 8, "E": 8, "N": 64, "K": 64}
    CachedConfig.objects.create(operator="grouped_matmul", dtype="bf16", shape=shape, gpu="g", config={})
    client.force_login(alice)
    for path in ("/api/configs/best/?operator=softmax&gpu=x&R=--5&C=1", f"/api/configs/export/?as=vllm&K={DIGITS}&topk={DIGITS}"):
        assert client.get(path).status_code == 400
    assert client.get(f"/cache/export/?as=vllm&K={DIGITS}").status_code == 302
    for entry in (DIGITS, "x"):
        assert client.post("/cache/revalidate/", {"entry": entry}).status_code == 404
    assert client.post(f"/tune/{job.pk}/extend/", {"trials": "9" * 400}).status_code == 302
    assert api(alice).post(f"/api/tune/{job.pk}/extend/", {"trials": HUGE}, format="json").status_code == 200
    job.refresh_from_db()
    assert (job.budget_trials, job.budget_seconds) == (100_000, 7 * 24 * 3600)


def test_launches_beyond_what_a_row_counts_stay_at_the_most(api: Any, alice: Any) -> None:
    body = {**SERVED, "served": [{**ROW, "launches": 10**15}] * 2000}
    for _ in range(6):
        assert api(alice).post("/api/configs/served/", body, format="json").status_code == 200
    assert ServedCount.objects.get().launches == 2**63 - 1


def test_an_entry_whose_parameter_is_a_list_is_not_measured_again(client: Any, alice: Any) -> None:
    config = {"BM": [16], "BN": 64, "BK": 64, "GM": 1, "num_warps": 4, "num_stages": 5}
    entry = CachedConfig.objects.create(operator="matmul", dtype="bf16", shape={"M": 512, "N": 512, "K": 512}, config=config,
                                        gpu="g", state="unverified", origin="import")
    client.force_login(alice)
    assert client.post("/cache/revalidate/", {"entry": str(entry.pk)}).status_code == 302
    assert b"BM is neither a number" in client.get(f"/cache/{entry.pk}/").content


def test_who_may_only_read_leaves_no_row_for_each_name_that_is_asked_for(api: Any, bob: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr(served_services, "MAX_VIEWS", 3)
    for number in range(6):
        answer = api(bob, "read").get("/api/configs/snapshot/", {"gpu": f"x{number}"})
        assert (answer.status_code, answer.json()["gpu"]) == (200, f"x{number}")
    assert SnapshotView.objects.count() == 3


def test_a_file_for_thousands_of_shapes_is_refused_whole(api: Any, alice: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exchange_services, "MAX_SHAPES", 3)
    config = {"BLOCK_SIZE_M": 16, "BLOCK_SIZE_N": 64, "BLOCK_SIZE_K": 64, "GROUP_SIZE_M": 1, "num_warps": 4, "num_stages": 5}
    text = json.dumps({str(batch): config for batch in range(1, 6)}).encode()
    sent = {"file": SimpleUploadedFile("E=8,N=256,device_name=NVIDIA_H200.json", text), "shape": "K=2048 topk=8"}
    assert "at most 3 at once" in api(alice).post("/api/configs/import/", sent).json()["error"]
    assert not CachedConfig.objects.exists()


def test_what_is_in_force_stands_before_what_was_lifted() -> None:
    common = {"operator": "matmul", "dtype": "bf16", "config": {}, "capability": "9.0", "toolkit": "", "reason": "crash"}
    for name, lifted in (("a", timezone.now()), ("b", None), ("c", timezone.now())):
        Quarantine.objects.create(signature=name, lifted=lifted, **common)
    assert [row.signature for row in quarantine.quarantine_list()] == ["b", "c", "a"]


def test_a_recorded_time_leaves_where_it_is_asked_for_with_its_label(api: Any, alice: Any) -> None:
    """vLLM's and SGLang's files have no room for a word: who reads one cannot tell."""
    CachedConfig.objects.create(operator="softmax", dtype="bf16", shape=SHAPE, config={"BLOCK": 1024, "num_warps": 4}, gpu="g",
                                median_ms=0.5, recorded="recorded on NVIDIA H200")
    (text,) = export_selectors.export_entries("triton", {}, recorded=True).files.values()
    assert "0.5 ms recorded on NVIDIA H200" in text
    with pytest.raises(FormatError, match="ask for recordings"):
        export_selectors.export_entries("triton", {})
    answers = [api(alice).get("/api/configs/export/", {"as": "triton", **asked}) for asked in ({}, {"recorded": 1})]
    assert [answer.status_code for answer in answers] == [400, 200] and answers[1].content.decode() == text


def test_no_gpu_s_name_leads_a_file_out_of_its_folder(api: Any, alice: Any) -> None:
    config = {"BM": 16, "BN": 64, "BK": 64, "GM": 1, "num_warps": 4, "num_stages": 5}
    CachedConfig.objects.create(operator="grouped_matmul", dtype="bf16", shape={"M": 8, "E": 8, "N": 64, "K": 64}, config=config,
                                gpu='../../x\r\nSet-Cookie: "a"', toolkit="cuda 13.0, triton 3.6.0", shape_bucket="M=8")
    for kind in ("vllm", "sglang"):
        files = export_selectors.export_entries(kind, {"topk": "8"}).files
        assert not any("/../" in f"/{path}" for path in files)
        assert api(alice).get("/api/configs/export/", {"as": kind, "topk": "8"}).status_code == 200
    assert fused_moe.device_name("a/b c", vllm=False) == "a_b_c"


ALL = {"softmax": 40.0, "matmul": 90.0, "add": 12.0}
LEFT = {"softmax": 40.0, "matmul": 90.0}


@pytest.fixture
def suite() -> Suite:
    return Suite.objects.create(name="nightly", kind=Suite.Kind.UPLOADED, device="")


@pytest.fixture
def vanished(suite: Suite) -> Gate:
    """The gate of b2, which has no line of a kernel that b0 and b1 have."""
    gate(suite, 0, ALL)
    gate(suite, 1, ALL)
    return gate(suite, 2, LEFT)


def test_a_kernel_that_vanishes_is_red_everywhere(vanished: Gate) -> None:
    document = selectors.gate_document(vanished)
    assert (vanished.verdict, document["exit_code"]) == ("NO DATA", 2)
    gone = next(each for each in document["kernels"] if each["verdict"] == "NO DATA")
    assert "1 of 3 kernels without data: add N=64: b1 has runs of it" in vanished.reason
    assert gone["key"] == "add N=64" and gone["gone"] and "b1 has runs of it and this build has not" in gone["reason"]
    junit = REPORTS["junit"].make(document).decode()
    assert 'name="add N=64"' in junit and 'errors="1"' in junit and "--allow-gone" in junit
    assert github.check_run(document, head_sha="a" * 40)["conclusion"] == "action_required"
    assert "add N=64" in REPORTS["md"].make(document).decode()


def test_a_build_that_is_slower_too_says_what_is_gone_in_the_same_line(suite: Suite) -> None:
    for hour in range(2):
        gate(suite, hour, ALL)
    found = gate(suite, 2, {"softmax": 44.0, "matmul": 90.0})
    assert found.verdict == "SLOWER" and found.reason.endswith("; gone since the build before: add N=64")
    assert found.reason in REPORTS["md"].make(selectors.gate_document(found)).decode().replace("\\", "")


def test_it_stays_red_until_somebody_accepts_it(suite: Suite, vanished: Gate, alice: Any) -> None:
    for hour in (3, 4, 5):
        assert gate(suite, hour, LEFT).verdict == "NO DATA", "the baseline has forgotten it; the gate before has not"
    last = decide_services.accept_gone(Gate.objects.get(build__name="b5"), by=alice)
    assert last.verdict == "PASS"
    change = BaselineChange.objects.get(action="gone")
    assert (change.kernel.key, change.build.name, change.author) == ("add N=64", "b5", alice)
    assert gate(suite, 6, LEFT).verdict == "PASS"
    with pytest.raises(Refused, match="none of its kernels is gone"):
        decide_services.accept_gone(last, by=alice)
    assert gate(suite, 7, ALL).verdict == "PASS", "it is back"
    assert gate(suite, 8, LEFT).verdict == "NO DATA", "and gone again: that is another matter"


def test_the_option_lets_a_build_go_and_says_so(suite: Suite, vanished: Gate) -> None:
    allowed = gate(suite, 3, LEFT, allow_gone=True)
    assert allowed.verdict == "PASS" and "gone, as --allow-gone says: add N=64" in allowed.report["notes"]
    assert gate(suite, 4, LEFT).verdict == "NO DATA", "a request speaks for its own build"
    asked = gate_request(make_parser().parse_args(["--suite", "s", "--build", "b", "--allow-gone"]))
    assert asked["allow_gone"] is True


def test_the_page_and_the_api_accept_it(vanished: Gate, client: Any, alice: Any) -> None:
    client.force_login(alice)
    page = client.get(reverse("gate", args=[vanished.pk])).content.decode()
    assert "Accept 1 gone kernel" in page
    answer = client.post(reverse("gate-gone", args=[vanished.pk]))
    assert answer.status_code == 302
    vanished.refresh_from_db()
    assert vanished.verdict == "PASS"
    assert "Accept 1 gone" not in client.get(reverse("gate", args=[vanished.pk])).content.decode()
    again = client.post(reverse("api-gate-gone", args=[vanished.pk]))
    assert again.status_code == 409


def test_processes_that_leave_a_kernel_out_are_said(suite: Suite) -> None:
    gate(suite, 0, ALL)
    gate(suite, 1, ALL)
    lines = [each for each in runs(ALL, 2) if each["op"] != "add" or each["run"] in ("0", "1", "2")]
    found = services.create_gate(suite, "b2", at=at(2), environment=H200, records=lines)
    add = found.kernels.get(kernel__op="add")
    assert found.verdict == "AMBIGUOUS" and "2 of 5 processes have no line of it (the first: 3)" in add.reason
    alone = [{**each, "run": f"{each['op']} {each['run']}"} for each in runs(ALL, 3)]
    assert services.create_gate(suite, "b3", at=at(3), environment=H200, records=alone).verdict == "PASS", "a process a kernel"


def test_a_suite_whose_kernels_are_all_renamed_says_which_are_gone(suite: Suite, alice: Any) -> None:
    for hour in range(2):
        gate(suite, hour, ALL)
    renamed = {f"{name}_v2": us for name, us in ALL.items()}
    found = gate(suite, 2, renamed)
    said = {row.kernel.op: row for row in found.kernels.select_related("kernel")}
    assert found.verdict == "NO DATA" and {op for op, row in said.items() if row.facts.get("gone")} == set(ALL)
    assert gate(suite, 3, renamed).verdict == "NO DATA", "still nobody said that they were meant to go"
    accepted = decide_services.accept_gone(Gate.objects.get(build__name="b3"), by=alice)
    assert not any(row.facts.get("gone") for row in accepted.kernels.all())
    assert gate(suite, 4, renamed).verdict == "PASS"


def test_one_kernel_under_another_name_type_or_shape_is_gone_and_new(suite: Suite) -> None:
    for hour in range(2):
        gate(suite, hour, ALL)
    for hour, change in ((2, {"op": "Add"}), (3, {"dtype": "fp16"}), (4, {"shape": {"N": 65}}), (5, {"tag": "x"})):
        lines = [{**each, **(change if each["op"] == "add" else {})} for each in runs(ALL, hour)]
        found = services.create_gate(suite, f"b{hour}", at=at(hour), environment=H200, records=lines)
        rows = found.kernels.filter(verdict="NO DATA").select_related("kernel")
        told = {row.kernel.key: bool(row.facts.get("gone")) for row in rows}
        assert found.verdict == "NO DATA" and told["add N=64"] and len(told) == 2 and sum(told.values()) == 1
        found.build.delete()


def test_a_kernel_without_a_good_run_is_no_pass(suite: Suite) -> None:
    for hour in range(2):
        gate(suite, hour, ALL)
    for hour, bad in ((2, None), (3, []), (4, [float("nan")]), (5, [0.0] * 5)):
        lines = [{**each, **({"us": bad} if each["op"] == "add" else {})} for each in runs(ALL, hour)]
        found = services.create_gate(suite, f"b{hour}", at=at(hour), environment=H200, records=lines)
        assert found.verdict == "NO DATA" and found.kernels.get(kernel__op="add").verdict == "NO DATA"
        found.build.delete()
