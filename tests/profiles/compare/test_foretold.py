"""Two traces compared say whether the step shrank as foretold, what it needs at least, and which causes changed."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest

from profiles.analysis.compare.step import StepChange, step_change
from profiles.analysis.core.sentences import time_text
from profiles.analysis.trace.lead import causes_with_lead, needed_with_lead
from profiles.analysis.trace.needed.topic import needed_result
from tests.profiles.needed.natural import frame, needs

N, MORE = "natural/", "natural/more/"
# recording -> the kind that went, by how much the recorded step shrank, ms
SHRANK = {
    f"{N}experts_in_a_loop": ("pieces", 71.2), f"{N}images_channels_first": ("layouts", 24.7),
    f"{N}optimizer_tensor_by_tensor": ("tensor_by_tensor", 4.53), f"{N}scores_written_out": ("scores_in_memory", 13.3),
    f"{MORE}adapters_not_merged": ("adapters", 3.22), f"{MORE}keys_repeated_in_decode": ("repeated_keys", 4.89),
    f"{MORE}mask_built_in_each_layer": ("causal_mask", 5.76), f"{MORE}scores_in_vit": ("scores_in_memory", 19.2),
    f"{MORE}weights_cast_each_step": ("remade_weights", 0.90), f"{MORE}weights_dequantised_each_step": ("remade_weights", 1.39)}


@cache
def documents(file: str) -> tuple[dict[str, Any], dict[str, Any]]:
    return needed_with_lead(frame(file)).numbers, causes_with_lead(frame(file)).numbers


def changed(old: str, new: str) -> StepChange:
    (needed_a, causes_a), (needed_b, causes_b) = documents(old), documents(new)
    made = step_change([needed_a], [needed_b], [causes_a], [causes_b])
    assert made is not None
    return made


@pytest.mark.parametrize("name", SHRANK)
def test_the_step_shrank_as_foretold(name: str) -> None:
    step = changed(f"{name}.json.gz", f"{name}__without.json.gz")
    kind, shrank_ms = SHRANK[name]
    assert [each.kind for each in step.foretold if not each.came] == [kind]
    assert -step.delta_ns / 1e6 == pytest.approx(shrank_ms, rel=0.01) and step.outcome == "as foretold"
    assert step.answer.count("Foretold") == 1 and f"was {time_text(-step.delta_ns)} less" in step.outcome_text
    assert sum(part.old_ns for part in step.parts) == pytest.approx(step.old_ns, abs=1)


def test_the_other_way_round_it_grew_as_foretold() -> None:
    step = changed(f"{N}scores_written_out__without.json.gz", f"{N}scores_written_out.json.gz")
    assert step.outcome == "as foretold" and "ms more, was 13.3 ms more" in step.outcome_text and "New: attention's" in step.answer


def test_what_else_changed_is_no_part_of_what_was_foretold() -> None:
    """The compiled step still repeats its keys: nothing was foretold of compiling, and no kind went."""
    step = changed(f"{N}keys_repeated_decode_eager_shapes.json.gz", f"{N}keys_repeated_decode_compiled.json.gz")
    assert step.outcome == "" and step.outcome_text == "" and "oretold" not in step.answer


def test_a_step_that_shrank_by_less_says_so() -> None:
    old, new = documents(f"{N}scores_written_out.json.gz"), documents(f"{N}scores_written_out__without.json.gz")
    gpu = new[0]["gpus"][0]
    slowed = {**new[0], "gpus": [{**gpu, "wall_ns": gpu["wall_ns"] + gpu["steps"] * 8_000_000}]}
    step = step_change([old[0]], [slowed])
    assert step is not None and step.outcome == "less than foretold" and step.causes == []


def test_causes_are_those_of_both_accounts_a_step() -> None:
    step = changed(f"{N}experts_in_a_loop.json.gz", f"{N}experts_in_a_loop__without.json.gz")
    old = documents(f"{N}experts_in_a_loop.json.gz")[1]
    assert sum(cause.old_ns for cause in step.causes) == pytest.approx(old["wall_ns"] / old["steps"], rel=1e-6)
    assert [cause.name for cause in step.changed_causes][:2] == ["host_launch", "small_kernels"]


def test_the_tail_behind_the_last_step_is_said_wherever_its_share_is() -> None:
    file = "h200/kineto_layer.json.gz"
    gpu, = needs(file).gpus
    result = needed_result(frame(file), needs(file))
    assert gpu.tail_ns == gpu.wall_ns - sum(gpu.step_ns) > 2_000_000
    assert "The last step holds 2." in result.answer and "on the CPU; the mean of 4 steps holds it." in result.answer
    assert result.numbers["gpus"][0]["tail_ns"] == gpu.tail_ns
    even = needed_result(frame(f"{N}scores_written_out.json.gz"), needs(f"{N}scores_written_out.json.gz"))
    assert even.numbers["gpus"][0]["tail_ns"] == 0 and "tail" not in even.answer
    step = changed(file, f"{N}scores_written_out.json.gz")
    assert step.old_tail_ns == gpu.tail_ns and step.new_tail_ns == 0 and "ran on behind its end on the CPU" in step.answer
