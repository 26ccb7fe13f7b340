"""A program reads what a change did from the same result as page and API: the step first, then causes, operations, kernels."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from profiles.topics.services import document_of
from profiles.topics.table import topic_of
from tests.profiles.compare.test_compare_steps import ingested
from tests.webapp.agents.conftest import Site, Told, call

pytestmark = [pytest.mark.servers, pytest.mark.django_db(transaction=True)]


def test_what_a_change_did_is_said_as_the_compare_api_says_it(
        site: Site, alice: Any, token_of: Callable[..., str], api: Callable[..., Any], tmp_store: Any) -> None:
    old, new = ingested("natural/scores_written_out.json.gz"), ingested("natural/scores_written_out__without.json.gz")
    for profile in (old, new):
        document_of(profile, topic_of("causes"))
    told = api(alice).get("/api/compare/", {"a": old.pk, "b": new.pk}).json()
    token = token_of(alice, "read")
    found = call(site.mcp, token, "compare_profiles", {"old": old.pk, "new": new.pk, "limit": 3})
    assert found["answer"] == told["answer"]
    assert found["answer"].startswith("A step takes 29.5 ms → 16.2 ms (−45 %); its work needs 8.")
    step = found["step"]
    assert step["old_ns"] == told["step"]["old_ns"] and step["outcome"] == "as foretold"
    assert [each["kind"] for each in step["foretold"]] == ["scores_in_memory"]
    assert sum(part["new_ns"] for part in step["parts"]) == pytest.approx(step["new_ns"], abs=1)
    assert [row["name"] for row in found["causes"]] == [row["name"] for row in told["step"]["causes"][:3]]
    assert found["causes"][0]["name"] == "memory_traffic" and found["causes"][0]["delta_ns"] < -13e6
    assert [row["what"] for row in found["operations"]] == [row["what"] for row in told["operations"][:3]]
    assert found["operations"][0]["kind"] == "attention" and found["operations"][0]["verdict"] == "less_work"
    assert len(found["kernels"]) == 3 and found["kernel_verdicts"] == told["kernel_verdicts"]
    refused = call(site.mcp, token, "compare_profiles", {"old": old.pk, "new": 2_000_000_000})
    assert isinstance(refused, Told) and "no ready profile" in refused


def test_what_a_step_needs_is_said_as_the_analysis_says_it(
        site: Site, alice: Any, token_of: Callable[..., str], api: Callable[..., Any], tmp_store: Any) -> None:
    profile = ingested("h200/kineto_layer.json.gz")
    numbers = api(alice).get(f"/api/profiles/{profile.pk}/analysis/needed/").json()["numbers"]
    found = call(site.mcp, token_of(alice, "read"), "get_step", {"profile": profile.pk, "limit": 3})
    assert found["state"] == "made" and found["answer"].startswith("A step takes 1.94 ms; its work needs 921 µs at least")
    assert found["needed_pct"] == numbers["needed_pct"] and found["gpus"][0]["parts"] == numbers["gpus"][0]["parts"]
    assert [kind["kind"] for kind in found["avoidable"]] == [kind["kind"] for kind in numbers["kinds"]]
    first = found["slow_kernels"][0]
    assert first["tune"] == {"operator": "matmul", "M": 2048, "N": 11008, "K": 4096, "dtype": "fp16"} and first["lost_ns"] > 0
    assert [row["name"] for row in found["ranges"]] == ["ProfilerStep", "mlp", "attention"]
    assert found["ranges"][0]["least_ns"] == numbers["gpus"][0]["parts"]["needed"] and len(found["layer_parts"]) == 3
