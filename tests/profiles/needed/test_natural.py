"""The cause is named, its gain is what removing it saved, and the twin is never accused of it."""

from __future__ import annotations

import gc
import weakref
from pathlib import Path

import numpy as np
import pytest

from profiles import ingest
from profiles.analysis.core.frame import frame_of
from profiles.analysis.core.intervals import Intervals
from profiles.analysis.trace.lead import causes_with_lead, lead_of_trace, needed_with_lead
from profiles.analysis.trace.needed.needs import exclusive_ns, needs_of
from profiles.analysis.trace.needed.simulate import Change, Recording
from profiles.analysis.trace.needed.topic import shown_claims
from profiles.analysis.trace.time.result import time_result
from profiles.ingest.trace import Trace
from tests.profiles.needed.natural import DATA, ILLS, MORE, SAVED_MS, Ill, frame, needs, replayed

WITHIN = 0.25                       # of what was saved
FILES = sorted({each.file for each in ILLS} | {each.twin for each in ILLS if each.twin} | {"natural/item_each_token.json.gz"})


@pytest.mark.parametrize("ill", ILLS, ids=lambda ill: ill.file.rpartition("/")[2])
def test_the_lead_is_the_cause_with_what_its_removal_saved(ill: Ill) -> None:
    claim = lead_of_trace(frame(ill.file))
    assert claim is not None and claim.kind.name == ill.kind
    steps = sum(gpu.steps for gpu in needs(ill.file).gpus)
    least, most = (ns / steps / 1e6 for ns in claim.gain_ns)
    middle = (claim.takes_ns - sum(claim.stays_ns) / 2) / steps / 1e6
    assert least <= ill.saved_ms <= most or abs(middle - ill.saved_ms) <= WITHIN * ill.saved_ms, (least, middle, most)


@pytest.mark.parametrize("ill", [each for each in ILLS if each.twin], ids=lambda ill: ill.twin.rpartition("/")[2])
def test_the_twin_is_not_accused_of_it(ill: Ill) -> None:
    assert ill.kind not in {claim.kind.name for claim in shown_claims(needs(ill.twin))}


@pytest.mark.parametrize("case", MORE)
def test_what_is_said_of_more_habits_and_twins(case: str) -> None:
    leads, said = MORE[case]
    file = f"natural/more/{case}.json.gz"
    claims = {claim.kind.name: claim for claim in shown_claims(needs(file))}
    assert set(claims) - {"passes"} == said
    claim = lead_of_trace(frame(file))
    assert (claim.kind.name if claim else "") == leads
    if claim is not None and case in SAVED_MS and leads != "passes":
        steps = sum(gpu.steps for gpu in needs(file).gpus)
        least, middle, most = (ns / steps / 1e6 for ns in (claim.gain_ns[0], claim.gone_ns, claim.gain_ns[1]))
        assert least <= SAVED_MS[case] <= most or abs(middle - SAVED_MS[case]) <= WITHIN * SAVED_MS[case], (least, middle, most)


def test_a_trap_is_not_accused() -> None:
    """`.item()` after each token of a run that the host holds back saves nothing: the host leads, and nothing else is said."""
    result = causes_with_lead(frame("natural/item_each_token.json.gz"))
    assert result.numbers["lead"]["cause"] in ("host_launch", "small_kernels", "host_code")
    assert {claim.kind.name for claim in shown_claims(needs("natural/item_each_token.json.gz"))} <= {"passes"}


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.rpartition("/")[2])
def test_parts_add_up_and_the_recording_played_unchanged_is_itself(file: str) -> None:
    assert needs(file).gpus
    for gpu in needs(file).gpus:
        assert sum(gpu.parts.values()) == gpu.wall_ns and min(gpu.parts.values()) >= 0
    assert Recording(frame(file)).saved_ns(Change()) == 0
    for claim in needs(file).claims:
        assert 0 <= claim.gain_ns[0] <= claim.gain_ns[1] and 0 <= claim.stays_ns[0] <= claim.stays_ns[1] <= claim.takes_ns


def test_the_least_time_is_that_of_a_count_by_hand() -> None:
    """Products of a prefill of 4 × 2048 tokens in two layers, attention, and the head for four rows on an H200."""
    tokens, hidden, heads, kv, size, mlp, vocabulary = 8192, 4096, 32, 8, 128, 14336, 128256
    layer = 2 * tokens * hidden * (2 * heads * size + 2 * kv * size + 3 * mlp) + 2 * 2 * 4 * heads * (2048 * 2049 // 2) * size
    flop, peak = 2 * layer, 989.4e12
    needed = needs("recorded/logits_of_all_tokens.json.gz").gpus[0]
    step_ms = needed.parts["needed"] / needed.steps / 1e6
    assert 0.97 <= needed.flop / needed.steps / flop <= 1.03
    head_ms = 1e3 * 2 * vocabulary * hidden / 4.8e12
    assert abs(step_ms - (1e3 * flop / peak + head_ms)) <= 0.08 * step_ms, (step_ms, 1e3 * flop / peak + head_ms)


def test_what_a_frame_was_asked_goes_with_it() -> None:
    """Answers hold the frame that they are of: kept apart from it, no frame would ever go."""
    trace = ingest.read(str(DATA / "natural/keys_repeated_decode_compiled.json.gz"))
    assert isinstance(trace, Trace)
    mine = frame_of(trace)
    assert lead_of_trace(mine) is lead_of_trace(mine) and mine.results
    watched = weakref.ref(mine)
    del mine
    gc.collect()
    assert watched() is None


def test_a_step_is_as_long_as_on_the_time_page() -> None:
    for file in ("recorded/logits_of_all_tokens.json.gz", "natural/scores_written_out.json.gz"):
        gpu = needs(file).gpus[0]
        rows = time_result(frame(file)).numbers["steps"]["rows"]
        assert list(gpu.step_ns) == [row["dur_ns"] for row in rows] and gpu.wall_ns == sum(gpu.step_ns)


def test_time_is_shared_out_as_a_count_by_hand() -> None:
    """Two kernels overlap and one lies between two steps, of which it counts what is inside."""
    start, end = np.array([10, 15, 45, 90]), np.array([20, 30, 70, 95])
    window = Intervals(np.array([0, 60]), np.array([50, 100]))
    assert exclusive_ns(start, end, window).tolist() == [10, 10, 5 + 10, 5]


def test_the_leading_finding_stands_once() -> None:
    mine = frame("natural/experts_in_a_loop.json.gz")
    causes, needed = causes_with_lead(mine), needed_with_lead(mine)
    assert causes.numbers["lead"]["text"] + "." == causes.answer
    assert not [each for each in causes.findings if each.numbers.get("leads")]
    assert [each.rule for each in needed.findings if each.numbers.get("leads")] == ["pieces"] == [needed.findings[0].rule]
    assert "cause_host_launch" not in {each.rule for each in causes.findings}       # it is why the host is late


# What kernels, their names and their order tell of a habit in a replayed graph; None: the twin, and what only operators tell.
REPLAYED = {
    "scores_written_out": "scores_in_memory", "scores_written_out__without": None, "more/scores_in_vit": "scores_in_memory",
    "more/scores_in_vit__without": None, "more/scores_in_training": "scores_in_memory",
    "more/scores_in_whisper": "scores_in_memory", "optimizer_tensor_by_tensor": "tensor_by_tensor",
    "optimizer_tensor_by_tensor__without": None, "images_channels_first": "layouts", "images_channels_first__without": None,
    "keys_repeated_decode_compiled": "repeated_keys", "more/keys_repeated_in_decode": "repeated_keys",
    "more/keys_repeated_in_decode__without": None, "more/dropout_at_inference": "training_mode",
    "more/logits_of_gpt2_prompts": None, "more/weights_cast_each_step": None, "more/adapters_not_merged": None}


@pytest.mark.parametrize("case", REPLAYED)
def test_a_habit_in_a_replayed_graph_is_named_where_kernels_tell_it(case: str, tmp_path: Path) -> None:
    found = needs_of(replayed(f"natural/{case}.json.gz", tmp_path))
    said = {claim.kind.name for claim in shown_claims(found)} - {"passes"}
    kind = REPLAYED[case]
    assert said - ({"layouts"} if case == "more/scores_in_vit__without" else set()) == ({kind} if kind else set())
    if kind == "scores_in_memory":
        claim, = (each for each in found.claims if each.kind.name == kind)
        eager, = (each for each in needs(f"natural/{case}.json.gz").claims if each.kind.name == kind)
        assert not claim.certain and 0.4 * eager.gone_ns < claim.gone_ns < 1.2 * eager.gone_ns


def test_a_trap_in_a_replayed_graph_says_its_condition(tmp_path: Path) -> None:
    """Group norms are told by their kernels, so that layouts around them are not called a gain for sure."""
    found = needs_of(replayed("natural/more/unet_channels_first.json.gz", tmp_path))
    layouts, = (claim for claim in found.claims if claim.kind.name == "layouts")
    assert not layouts.certain and "group norm" in layouts.found[0].condition


@pytest.mark.parametrize(("file", "said"), [
    ("natural/more/contiguous_for_nothing.json.gz",
     "The kernels themselves are the limit: most is lost below its ceiling in `nvjet_sm90_tst_320x128_64x3_1x2_h_bz_coopB_TNT` "
     "(8192 × 14336 × 4096), 1.42 ms of a step's 12.1 ms."),
    ("natural/keys_repeated_decode_graph.json.gz", "Keys and values are copied before attention"),
    ("recorded/launch_queue_full.json.gz", "")])
def test_where_nothing_need_go_the_slowest_kernel_is_named_with_what_to_do(file: str, said: str) -> None:
    result = causes_with_lead(frame(file))
    assert result.answer.startswith(said) and result.numbers["lead"]["text"] + "." == result.answer
    leads = [each for each in (*result.findings, *needed_with_lead(frame(file)).findings) if "leads" in each.numbers]
    assert len(leads) == 1 and leads[0].title + "." == result.answer
    if "contiguous" in file:
        assert leads[0].advice.startswith("Tune it for these sizes, or try `torch.compile")
        assert leads[0].kernel.startswith("nvjet_sm90_tst_320x128")
    assert ("themselves are the limit: most" in result.answer) is ("contiguous" in file)


@pytest.mark.parametrize(("file", "why"), [
    ("natural/keys_repeated_decode_graph.json.gz", "a replayed graph holds no shapes, record a step without it"),
    ("natural/keys_repeated_decode_eager.json.gz", "record with `record_shapes=True`"),
    ("corpus/nsys/nways_jacobi_gh200_gpu_metrics_40ms.sqlite.gz", "record with torch.profiler and `record_shapes=True`")])
def test_what_would_tell_the_least_time_is_said(file: str, why: str) -> None:
    assert f"what it needs is not known: {why}" in needed_with_lead(frame(file)).answer
