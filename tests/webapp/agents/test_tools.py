"""The tools as a program sees them, with the SDK's own client against the real application."""

from __future__ import annotations

import asyncio
import io
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from django.core.files import File
from django.db import transaction

from profiles.models import Profile
from profiles.upload import services
from tests.tuner.bring.cuda_files import SCALE_ADD
from tests.tuner.bring.files import ADD
from tests.tuner.candidates.files import CHANGED, DIFF, OWN
from tests.tuner.candidates.test_candidates import ANSWER
from tests.webapp.agents.conftest import Site, Told, call, connected
from tests.webapp.test_problem import GPU, SHAPE, finished_job, launches
from tuner.candidates import services as candidate_services
from tuner.jobs.create_services import tune_create
from tuner.models import Candidate, KernelCheck, TuneJob
from webapp.agents.models import AgentCall
from webapp.agents.tools import TOOLS
from workers import jobs

pytestmark = [pytest.mark.servers, pytest.mark.django_db(transaction=True)]
MATMUL = Path(__file__).resolve().parents[2] / "data" / "captured" / "matmul_full.ncu-rep.gz"
PROBLEM = {"operator": "matmul", "shape": SHAPE, "gpu": GPU}

ABSENT = 2_000_000_000        # the id of no row


@pytest.fixture
def counted(alice: Any, tmp_store: Path) -> Profile:
    """A report of Nsight Compute with source counters."""
    profile = services.profile_create(owner=alice, file=File(io.BytesIO(MATMUL.read_bytes()), name=MATMUL.name))
    services.profile_ingest(profile.pk, "test")
    profile.refresh_from_db()
    assert profile.status == "ready", profile.error
    return profile


@pytest.mark.parametrize("mode", ["auto", pytest.param("legacy", marks=pytest.mark.deep_only)])
def test_every_tool_says_what_it_is_for_and_what_it_takes(
        site: Site, alice: Any, token_of: Callable[..., str], mode: str) -> None:
    token = token_of(alice)

    async def ask() -> Any:
        async with connected(site.mcp, token, mode) as client:
            return (await client.list_tools()).tools, client.instructions

    tools, instructions = asyncio.run(ask())
    assert [tool.name for tool in tools] == [tool.name for tool in TOOLS] and len(tools) >= 20
    assert set(re.findall(r"\b(?:list|get|start)_\w+", instructions)) <= {tool.name for tool in tools}
    for tool, row in zip(tools, TOOLS, strict=True):
        assert tool.description and len(tool.description) > 40 and tool.annotations.read_only_hint is not row.writes
        for name, field in tool.input_schema.get("properties", {}).items():
            assert "description" in field, (tool.name, name)


def test_profiles_and_kernels_are_read_as_the_api_says_them(
        site: Site, alice: Any, token_of: Callable[..., str], api: Callable[..., Any]) -> None:
    shape = launches(mean_ns=20_000)
    launches("elementwise", build="b2", mean_ns=5_000, tune={}, op="elementwise")
    token, profile = token_of(alice, "read"), shape.kernel.profile_id
    found = call(site.mcp, token, "list_profiles", {"limit": 1})
    assert found["total"] == 2 and [row["name"] for row in found["profiles"]] == ["train @ b2"]
    assert call(site.mcp, token, "list_profiles", {"q": "b1"})["profiles"][0]["id"] == profile
    kernels = call(site.mcp, token, "list_worst_kernels", {"profile": profile})
    assert kernels["count"] == 1 and kernels["kernels"][0]["id"] == shape.kernel_id and kernels["kernels"][0]["total_ns"] == 200_000
    ranked = call(site.mcp, token, "list_worst_kernels")["kernels"]
    assert [row["family"] for row in ranked][:1] == [
        each["family"] for each in api(alice).get("/api/kernels/").json()["families"]][:1]
    family = call(site.mcp, token, "get_family", {"family": shape.kernel.family_id})
    assert [(row["profile"], row["kernel"]) for row in family["profiles"]] == [(profile, shape.kernel_id)]
    one = call(site.mcp, token, "get_kernel", {"profile": profile, "kernel": shape.kernel_id})
    assert one["kernel"]["total_ns"] == 200_000 and one["roofline"] is None and "start_capture" in one["why"]
    assert f"no kernel {ABSENT}" in call(site.mcp, token, "get_kernel", {"profile": profile, "kernel": ABSENT})
    assert "capture it with ncu" in call(site.mcp, token, "get_source", {"profile": profile, "kernel": shape.kernel_id})["why"]


@pytest.mark.slow
def test_a_kernel_with_counters_comes_with_its_evidence(
        site: Site, alice: Any, token_of: Callable[..., str], counted: Profile, api: Callable[..., Any]) -> None:
    token = token_of(alice, "read")
    row = call(site.mcp, token, "list_worst_kernels", {"profile": counted.pk, "limit": 1})["kernels"][0]
    found = call(site.mcp, token, "get_kernel", {"profile": counted.pk, "kernel": row["id"]})
    advice = api(alice).get(f"/api/profiles/{counted.pk}/kernels/{row['id']}/advice/").json()
    assert [each["cause"] for each in found["advice"]] == [each["cause"] for each in advice["advice"]][:8] and found["advice"]
    assert found["headroom"] == advice["headroom"] and found["bounded"]["kind"] == row["bound"] and found["why"] == ""
    assert found["roofline"]["time_ns"] > 0 and 0 < found["counters"]["occupancy"]["achieved_pct"] <= 100
    assert found["counters"]["stalls"][0]["share_pct"] >= found["counters"]["stalls"][-1]["share_pct"]
    hot = call(site.mcp, token, "get_source", {"profile": counted.pk, "kernel": row["id"], "limit": 3})
    assert len(hot["instructions"]) == 3 and hot["instructions"][0]["samples"] >= hot["instructions"][2]["samples"] > 0


def test_a_problem_its_job_and_what_is_served(site: Site, alice: Any, token_of: Callable[..., str]) -> None:
    token = token_of(alice, "read")
    assert call(site.mcp, token, "get_problem", PROBLEM)["tuned"] == {
        "done": None, "active": None, "jobs": [], "why": "nobody searched it yet"}
    with transaction.atomic():
        shape, job = launches(), finished_job(best_ms=0.02)
    found = call(site.mcp, token, "get_problem", {**PROBLEM, "dtype": "bf16"})
    assert (found["profiled"]["launches"], found["profiled"]["kernels"][0]["kernel"]) == (10, shape.kernel_id)
    assert (found["tuned"]["done"]["job"], found["tuned"]["done"]["speedup"]["default"]) == (job.pk, 1.5)
    assert (found["served"]["rule"], found["guarded"]["suite"], found["regressions"]) == ("exact", None, [])
    assert call(site.mcp, token, "get_served_config", PROBLEM)["rule"] == "exact"
    assert call(site.mcp, token, "get_served_config", {**PROBLEM, "gpu": "NVIDIA A100"})["rule"] == "default"
    assert [each["id"] for each in call(site.mcp, token, "list_jobs", {"operator": "matmul"})["jobs"]] == [job.pk]
    assert call(site.mcp, token, "list_jobs", {"operator": "softmax"})["jobs"] == []
    told = call(site.mcp, token, "get_job", {"job": job.pk})
    assert (told["best_ms"], told["best_config"]["BN"], told["attempts"]) == (0.02, 256, [])
    assert "between 1 and" in call(site.mcp, token, "get_problem", {"operator": "matmul", "shape": {"M": 7}, "gpu": GPU})
    assert "choose one of" in call(site.mcp, token, "get_problem", {"operator": "nothing", "shape": {"M": 7}, "gpu": GPU})


def test_operators_show_their_space(site: Site, alice: Any, token_of: Callable[..., str]) -> None:
    token = token_of(alice, "read")
    assert "softmax" in [row["name"] for row in call(site.mcp, token, "list_operators")["operators"]]
    small, large = (call(site.mcp, token, "get_operator", {"operator": "softmax", "shape": {"R": rows, "C": columns}})
                    for rows, columns in ((8192, 4096), (2048, 32768)))
    assert small["shape"] == {"R": 8192, "C": 4096} and small["valid_configs"] != large["valid_configs"]
    assert {"name", "values"} == set(small["params"][0]) and small["default_config"]
    assert "choose one of" in call(site.mcp, token, "get_operator", {"operator": "../profiles"})


def test_what_was_not_built_says_so(site: Site, alice: Any, token_of: Callable[..., str]) -> None:
    token = token_of(alice, "read")
    able = call(site.mcp, token, "list_capture_targets")
    assert able["targets"] == [] and not able["tools"]["ncu"]["able"] and "gpu worker" in able["tools"]["ncu"]["why"]
    assert call(site.mcp, token, "list_regressions") == {"total": 0, "regressions": []}
    assert call(site.mcp, token, "list_worst_kernels", {"fleet": True})["kernels"] == []
    assert [group["kind"] for group in call(site.mcp, token, "search", {"q": "nothing at all"})["groups"]] == []


def test_a_job_is_started_stopped_and_written_down(site: Site, alice: Any, token_of: Callable[..., str]) -> None:
    token = token_of(alice, name="tuner of ops")
    jobs.connection().flushdb()
    made = call(site.mcp, token, "start_tune_job", {"operator": "softmax", "shape": {"R": 8192, "C": 4096}, "gpu": GPU,
                                                    "budget_trials": 9, "first": [{"num_warps": 4}]})
    job = TuneJob.objects.get(pk=made["job"])
    assert (job.owner, job.budget_trials, job.device, job.first) == (alice, 9, "replay:softmax", [{"num_warps": 4}])
    assert call(site.mcp, token, "stop_job", {"job": job.pk})["status"] == "stopped"
    started = AgentCall.objects.get(tool="start_tune_job")
    assert (started.outcome, started.led_to, started.led_to_id, started.writes, started.gpu_s) == ("ok", "tune", job.pk, True, 0)
    assert (started.token_name, started.person, started.person_name) == ("tuner of ops", alice, "alice") and started.ms > 0
    stopped = AgentCall.objects.get(tool="stop_job")
    assert (stopped.outcome, stopped.writes, stopped.arguments) == ("ok", False, f'{{"job": {job.pk}}}')
    edited = call(site.mcp, token, "start_tune_job", {"operator": "softmax", "shape": {"R": 8192, "C": 4096}, "gpu": GPU,
                                                      "values": {"num_warps": [4, 8]}, "constraints": ["STEPS < 4"],
                                                      "ceiling_pct": 95})
    shown = call(site.mcp, token, "get_job", {"job": edited["job"]})
    assert (shown["space"]["parameters"], shown["ceiling_pct"]) == ({"num_warps": [4, 8]}, 95)
    wrong = call(site.mcp, token, "start_tune_job", {"operator": "softmax", "shape": {"R": 8192, "C": 4096}, "gpu": GPU,
                                                     "constraints": ["STEP < 4"]})
    assert isinstance(wrong, Told) and "space.constraints[0]" in wrong and "STEP is none of" in wrong
    refused = call(site.mcp, token, "start_tune_job", {"operator": "softmax", "shape": {"R": 8192, "C": 4096},
                                                       "device": "replay:matmul"})
    assert isinstance(refused, Told) and "this landscape recorded matmul" in refused
    row = AgentCall.objects.filter(tool="start_tune_job").first()
    assert row is not None and (row.outcome, row.writes, row.led_to) == ("refused", False, "") and "landscape" in row.answer


def test_a_capture_without_a_worker_is_refused_with_the_reason(site: Site, alice: Any, token_of: Callable[..., str]) -> None:
    token = token_of(alice)
    assert "No gpu worker is running" in call(site.mcp, token, "start_capture", {"target": 5, "tool": "ncu"})
    assert "there is no such capture" in call(site.mcp, token, "stop_capture", {"capture": 5})
    assert "there is no such capture" in call(site.mcp, token, "get_capture", {"capture": 5})


def test_other_jobs_are_not_charged(site: Site, alice: Any, token_of: Callable[..., str]) -> None:
    tune_create(owner=alice, operator="matmul", shape=SHAPE, dtype="bf16", device="gpu", strategy="default", effort="quick")
    left = call(site.mcp, token_of(alice), "get_budget")
    assert (left["writes_today"], left["gpu_s_today"], left["project"]["slug"], left["person"]) == (0, 0, "main", "alice")


def test_an_owner_checks_a_kernel_file_and_an_engineer_may_not(
        site: Site, alice: Any, olga: Any, token_of: Callable[..., str]) -> None:
    asked = {"text": SCALE_ADD, "file": "scale.cu", "dtype": "fp32"}
    refused = call(site.mcp, token_of(alice), "check_kernel", asked)
    assert isinstance(refused, Told) and "owner" in refused and not KernelCheck.objects.exists()
    token = token_of(olga, name="writer of kernels")
    made = call(site.mcp, token, "check_kernel", asked)
    check = KernelCheck.objects.get(pk=made["check"])
    assert check.text == SCALE_ADD and made["status"] == "waiting" and made["kernels"][0]["name"] == "scale_add"
    told = call(site.mcp, token, "get_kernel_check", {"check": check.pk})
    assert told["kernels"][0]["size"] == 24 and "CudaOperator" in told["adapters"][0]["text"]
    called = {"text": ADD, "call": "add(randn(4), randn(4))", "siblings": {"near.py": "X = 1\n"}}
    made = call(site.mcp, token, "check_kernel", called)
    assert made["call"] == called["call"] and KernelCheck.objects.get(pk=made["check"]).siblings == {"near.py": "X = 1\n"}
    assert "no worker" in str(call(site.mcp, token, "tune_kernel", {"check": made["check"]})).lower()
    named = call(site.mcp, token, "check_kernel", {"source": "acme-ops==1.2", "path": "acme_ops/add.py"})
    assert named["source"]["name"] == "acme-ops" and named["file"] == "add.py" and not named["kernels"]
    row = AgentCall.objects.get(tool="check_kernel", outcome="ok", led_to_id=check.pk)
    assert (row.led_to, row.led_to_id, row.writes) == ("check", check.pk, True) and SCALE_ADD not in row.arguments


def test_a_program_submits_a_kernel_where_an_owner_allows_it_and_reads_its_verdict(
        site: Site, alice: Any, bob: Any, olga: Any, token_of: Callable[..., str]) -> None:
    token = token_of(alice, name="writer of kernels")
    source = call(site.mcp, token, "get_kernel_source", {"operator": "softmax"})
    assert source["allowed"] is False and source["files"][0]["text"] == OWN.text
    asked = {"operator": "softmax", "text": DIFF, "shape": {"R": 8, "C": 100}, "note": "a sum of its own",
             "config": {"num_warps": 4}}
    refused = call(site.mcp, token, "submit_candidate", asked)
    assert isinstance(refused, Told) and "may not run in this project" in refused and not Candidate.objects.exists()
    assert call(site.mcp, token, "get_budget")["writes_today"] == 0
    candidate_services.permit_set("softmax", True, per_day=2, seconds=120, by=olga)
    assert isinstance(call(site.mcp, token_of(bob), "submit_candidate", asked), Told)
    assert "hunk 1" in call(site.mcp, token, "submit_candidate", {**asked, "text": DIFF.replace("tl.max", "tl.min")})
    made = call(site.mcp, token, "submit_candidate", asked)
    candidate = Candidate.objects.get(pk=made["candidate"])
    assert (candidate.text, candidate.owner, candidate.token_name) == (CHANGED, alice, "writer of kernels") and made["waits"]
    left = call(site.mcp, token, "get_budget")
    assert (left["writes_today"], left["gpu_s_today"]) == (1, 120)
    row = AgentCall.objects.get(tool="submit_candidate", outcome="ok")
    assert (row.led_to, row.led_to_id, row.gpu_s) == ("candidate", candidate.pk, 120) and "tl.store" not in row.arguments
    Candidate.objects.filter(pk=candidate.pk).update(
        status="done", verdict="FASTER", reason="−20.0 % beside the default configuration", answer=ANSWER)
    told = call(site.mcp, token, "get_candidate", {"candidate": candidate.pk, "text": True})
    assert (told["verdict"], told["standing"], told["text"]) == ("FASTER", "measured, not reviewed", CHANGED)
    assert told["rows"][1]["ratio"] == 0.8 and told["compiled"]["registers"] == 28 and told["counters"]["why"]
    call(site.mcp, token, "submit_candidate", {**asked, "parent": candidate.pk})
    listed = call(site.mcp, token, "list_candidates", {"series": candidate.pk})
    assert [each["parent"] for each in listed["candidates"]] == [candidate.pk, None] and listed["candidates"][1]["ratio"] == 0.8
    over = call(site.mcp, token, "submit_candidate", asked)
    assert isinstance(over, Told) and "2 of the 2 candidates of softmax" in over
    assert call(site.mcp, token, "cancel_candidate", {"candidate": listed["candidates"][0]["id"]})["status"] == "cancelled"
    assert "there is no such candidate" in call(site.mcp, token, "get_candidate", {"candidate": ABSENT})
