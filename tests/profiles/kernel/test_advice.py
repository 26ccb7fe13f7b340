"""Advice: every planted cause leads its kernel's list, mended kernels are left alone, a later build closes what was taken up."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Callable
from dataclasses import asdict
from functools import cache

import pytest
from django.core.files.base import ContentFile
from django.core.management import call_command
from django.core.management.base import CommandError
from django.test import Client

from profiles.advice.services import decisions_check
from profiles.analysis.kernel import counters, findings_counters, findings_source, rules, source_kernel
from profiles.analysis.kernel.advising import tensor_products
from profiles.analysis.kernel.advising.advice import advise
from profiles.analysis.kernel.advising.causes import CAUSES
from profiles.analysis.kernel.advising.gains import Ours, headroom
from profiles.families.services import family_merge
from profiles.ingest.trace import Rule
from profiles.models import AdviceDecision, Profile
from profiles.topics.services import topic_make
from profiles.topics.table import topic_of
from profiles.upload.services import profile_create, profile_ingest
from tests.profiles.ingest.corpus import DATA
from tests.profiles.kernel import reports
from tests.profiles.pages.test_pages import page, ready, text

CAUSES_DATA = DATA / "causes"
# What tests/gpu/causes.cu planted -> the cause that must come first.
FIRST = {
    "uncoalesced_copy": "uncoalesced", "bank_conflict_transpose": "bank_conflicts", "divergent_branches": "divergence",
    "spilling_registers": "spills", "low_occupancy": "occupancy", "small_grid": "small_grid", "tail_wave": "tail",
    "atomic_contention": "atomics", "barrier_heavy": "barriers", "accidental_double": "double", "pointer_chase": "latency",
}
LIMITED = {"memory_twin": "bandwidth", "compute_twin": "pipe"}      # no fault: what they wait for


# What tests/gpu/faults/triton_kernels.py planted in kernels of Triton; two have no fault.
TRITON = {
    "add_near_roof": "bandwidth", "contended_atomics": "atomics", "strided_loads": "uncoalesced", "few_programs": "small_grid",
    "spilled_registers": "spills", "divisions": "double", "product_large_tiles": "pipe",
    "product_small_tiles": "tensor_products", "product_one_stage": "tensor_products",
}


@cache
def read(build: str):
    """The report with its findings, of the counters and of lines and SASS, and its launches with their facts."""
    report = reports.read(f"causes/{build}.ncu-rep.zst")
    return (findings_counters.find(report), findings_source.find(report),
            [(launch, counters.launch_facts(launch)) for launch in report.launches])


def advice_in(build: str, *, source: bool = True, said: Callable[[Rule], bool] = lambda rule: True):
    """The advice about each kernel; without what lines and SASS say, and of NVIDIA's rules those that are `said`."""
    of_counters, of_source, launches = read(build)
    ours = defaultdict(list)
    for found in (*of_counters, *(of_source if source else [])):
        worth = None if "nvidia_estimate_pct" in found.numbers else found.worth_ns
        ours[found.kernel].append(Ours(found.rule, found.title, found.advice, worth,
                                       findings_source.most_pct(found.rule, found.numbers)))
    out = {}
    for launch, facts in launches:
        nvidia = rules.merge_launch_rules([(facts.duration_ns, [asdict(rule) for rule in launch.rules if said(rule)])])
        out[launch.kernel.split("(")[0]] = advise(counters.combine_launches([facts]), facts.duration_ns, ours[launch.kernel],
                                                  nvidia)
    return out


@pytest.fixture(scope="module")
def planted():
    return advice_in("causes_planted")


@pytest.fixture(scope="module")
def mended():
    return advice_in("causes_mended")


@pytest.mark.slow
@pytest.mark.parametrize("kernel", FIRST)
def test_the_planted_cause_comes_first(planted, kernel):
    first = planted[kernel][0]
    assert first.cause == FIRST[kernel], [each.cause for each in planted[kernel]]
    assert first.evidence and first.fix and first.gain_ns and first.said_by
    if kernel != "pointer_chase":
        assert first.confidence == "high" and "Ridgepoint" in first.said_by and any("NVIDIA" in each for each in first.said_by)


@pytest.mark.slow
def test_the_planted_cause_comes_first_in_kernels_of_triton():
    assert {kernel: listed[0].cause for kernel, listed in advice_in("triton_planted").items()} == TRITON


def test_a_kernel_without_a_fault_is_told_what_it_waits_for(planted):
    for kernel, cause in LIMITED.items():
        assert planted[kernel][0].cause == cause and planted[kernel][0].no_gain, [each.cause for each in planted[kernel]]


@pytest.mark.slow
def test_the_order_does_not_hang_on_who_says_it():
    """A kernel of another language (Triton) has other lines and other stalls: one atomic for many threads, no stall while draining.
    Without what its lines say, or without NVIDIA's word for the waiting, the counters still put the cause first."""
    def loads_only(rule: Rule) -> bool:                               # no drain, no barrier
        return rule.identifier != "CPIStall" or "Scoreboard" in rule.title
    apart = (advice_in("causes_planted", source=False), advice_in("causes_planted", said=loads_only),
             advice_in("causes_planted", source=False, said=loads_only))
    for found in apart:
        assert {kernel: found[kernel][0].cause for kernel in (*FIRST, *LIMITED)} == {**FIRST, **LIMITED}
    alone = advice_in("causes_planted", said=lambda rule: False)             # a capture without rules
    wrong = [kernel for kernel in (*FIRST, *LIMITED) if alone[kernel][0].cause != {**FIRST, **LIMITED}[kernel]]
    assert wrong == ["pointer_chase"]                                 # 132 blocks of one warp: too few as well


def test_each_advice_has_a_gain_or_says_why_not(planted, mended):
    for each in (each for found in (planted, mended) for listed in found.values() for each in listed):
        assert (each.gain_ns is not None) != bool(each.no_gain), each
        assert each.gain_ns is None or each.gain_ns <= each.gain_most_ns * (1 + 1e-9), each
        assert "estimate" in each.gain_source or each.gain_most_ns is None, each
        assert each.cause != "roof"


@pytest.mark.slow
def test_what_leaves_the_work_as_it_is_wins_at_most_the_distance_to_the_roof():
    report = reports.read("h200/buildB.ncu-rep.zst")
    launch = next(each for each in report.launches if each.kernel == "layernorm_row")
    facts = counters.launch_facts(launch)
    nvidia = rules.merge_launch_rules([(facts.duration_ns, [asdict(rule) for rule in launch.rules])])
    room = headroom(facts, facts.duration_ns)
    found = {each.cause: each for each in advise(facts, facts.duration_ns, [], nvidia)}
    same_work = {cause.key for cause in CAUSES if cause.same_work}
    assert {"tail", "occupancy"} <= same_work & set(found) and room.left_pct == pytest.approx(100 - facts.point.roof_pct)
    assert all(found[cause].gain_ns <= room.left_ns * (1 + 1e-9) for cause in same_work & set(found) if found[cause].gain_ns)
    # and a tail at most the block slots that stay empty, where NVIDIA counts all of the last wave: half of this kernel
    assert found["tail"].gain_ns == pytest.approx(facts.duration_ns * facts.occupancy.tail_loss_pct / 100)


@pytest.mark.slow
def test_slow_products_say_which_side_the_counters_support():
    report = reports.read("h200/buildB.ncu-rep.zst")
    slow = max((counters.launch_facts(each) for each in report.launches if each.kernel == "matmul"),
               key=lambda each: each.duration_ns)
    said = {side.name: side.supported for side in tensor_products.sides(slow)}
    assert said["pipeline depth"] is True and said["tile"] is None and said["alignment"] is None
    assert tensor_products.is_below_ceiling(slow) and tensor_products.gain_pct(slow)[0] == pytest.approx(
        100 * (1 - slow.point.flop_s / slow.point.compute_roof / 0.6))
    fast = reports.read("h200/full.ncu-rep.zst").launches[0]
    assert not tensor_products.is_below_ceiling(counters.launch_facts(fast))
    assert tensor_products.tile_of("nvjet_sm90_tst_256x128_64x4_1x2_h_bz_coopA_NNT") == (256, 128)


@pytest.mark.parametrize(("name", "algorithm", "tensor"), [
    ("cudnn::cnn::implicit_convolve_sgemm<float, float, 128, 5, 5, 3>(int, int)", "implicit GEMM", False),
    ("cudnn_infer_ampere_scudnn_winograd_128x128_ldg1_ldg4_relu_tile148t_nt_v1", "Winograd", False),
    ("void fft2d_r2c_32x32<float, false, 1u, false>(float2*, float const*)", "FFT", False),
    ("sm80_xmma_fprop_implicit_gemm_tf32f32_tf32f32_f32_nhwckrsc_nhwc_tilesize128x128x16_stage4", "implicit GEMM", True),
    ("void cudnn::cnn::conv2d_grouped_direct_kernel<false, true>(cudnnTensorStruct)", "direct", False),
])
def test_what_a_convolutions_name_says(name, algorithm, tensor):
    assert tensor_products.convolution_of(name) == tensor_products.Convolution(algorithm, tensor)


def test_other_names_are_no_convolutions():
    names = ("ampere_sgemm_128x64_tn", "regular_fft<4096u, EPT<16u>>", "softmax_row")
    assert not any(tensor_products.convolution_of(name) for name in names)


def test_mended_kernels_have_none_of_it(mended):
    for kernel, cause in FIRST.items():
        if kernel not in ("pointer_chase", "tail_wave"):           # the first is unchanged, the second still has one block per SM
            assert cause not in [each.cause for each in mended[kernel]], kernel
    assert "tail" not in [each.cause for each in mended["tail_wave"]]


def test_equal_times_and_opposite_fixes(planted):
    """memory_twin and compute_twin take 65 µs each; one waits for DRAM, the other for the arithmetic pipe."""
    memory, compute = ({each.cause for each in planted[name]} for name in ("memory_twin", "compute_twin"))
    assert "latency" in memory and "pipe" not in memory and "pipe" in compute and "latency" not in compute


def test_estimates_are_the_lowest_that_anybody_states(planted):
    best = planted["uncoalesced_copy"][0]
    assert best.gain_ns < best.gain_most_ns and best.gain_pct == pytest.approx(77, abs=1)
    assert planted["tail_wave"][0].gain_ns == pytest.approx(46_000, rel=0.05)              # mended, it takes 45.4 µs less


def test_every_rule_has_one_cause_and_every_cause_its_words():
    ours = [rule for cause in CAUSES for rule in cause.ours]
    nvidia = [rule for cause in CAUSES for rule in cause.nvidia]
    assert len(set(ours)) == len(ours) and len(set(nvidia)) == len(nvidia) and len({cause.key for cause in CAUSES}) == len(CAUSES)
    assert all(cause.title and (cause.ours or cause.nvidia or cause.seen) for cause in CAUSES)
    known = {f"source.{name}" for name in (*source_kernel.ADVICE, "wait")}
    known |= {f"counters.{name}" for name in findings_counters.RULES}
    known -= {"counters.nvidia", "counters.bound"}                 # NVIDIA's own, from the rules themselves; and a measure
    assert known <= set(ours)


@pytest.fixture
def taken_up(tmp_store, sign_in_mode, alice):
    """The report with planted causes, two of its pieces of advice taken up and one dismissed."""
    raw = (CAUSES_DATA / "causes_planted.ncu-rep.zst").read_bytes()
    profile = profile_ingest(profile_create(owner=alice, file=ContentFile(raw, name="planted.ncu-rep.gz"), build="1").pk, "test")
    client = Client()
    client.force_login(alice)
    for name, cause, state in (("uncoalesced_copy", "uncoalesced", "taken"), ("pointer_chase", "latency", "assigned"),
                               ("divergent_branches", "divergence", "dismissed")):
        kernel = profile.kernels.get(short_name__startswith=name)
        answer = client.post(f"/profiles/{profile.pk}/kernels/{kernel.pk}/advice/", {
            "cause": cause, "state": state, "note": f"look at {name}", "assignee": "alice" if state == "assigned" else ""})
        assert answer.status_code == 302, answer.content
    return profile


@pytest.mark.django_db
def test_what_was_taken_up_is_closed_by_a_later_build(taken_up, alice):
    kernel = taken_up.kernels.get(short_name__startswith="uncoalesced_copy")
    shown = text(page(alice, f"/profiles/{taken_up.pk}/kernels/{kernel.pk}/"))
    assert "Taken up by alice" in shown and "“look at uncoalesced_copy”" in shown and "Not measured yet." in shown
    raw = (CAUSES_DATA / "causes_mended.ncu-rep.zst").read_bytes()
    same = profile_ingest(profile_create(owner=alice, file=ContentFile(raw, name="same.ncu-rep.gz"), build="1").pk, "test")
    assert decisions_check(same.pk) == 0                             # of the same build: no change to judge
    later = profile_ingest(profile_create(owner=alice, file=ContentFile(raw, name="mended.ncu-rep.gz"), build="2").pk, "test")
    assert decisions_check(later.pk) == 2
    found = {each.cause: each for each in AdviceDecision.objects.all()}
    good, bad = found["uncoalesced"], found["latency"]
    assert good.outcome == "verified" and good.gain_pct == pytest.approx(83.2, abs=0.3) and good.still_there is False
    assert good.gain_low_pct < good.gain_pct < good.gain_high_pct and "instructions" in good.why
    assert bad.outcome == "undecided" and abs(bad.gain_pct) < 3      # one launch a side: its noise holds both answers
    assert found["divergence"].outcome == ""                         # dismissed: nobody measures it
    shown = text(page(alice, f"/profiles/{taken_up.pk}/kernels/{kernel.pk}/"))
    assert "Verified by mended.ncu-rep.gz @ 2" in shown and "cause gone" in shown
    listed = text(page(alice, "/advice/"))
    assert "1 verified and 0 refuted" in listed and "83" in listed
    AdviceDecision.objects.update(outcome="", base_profile=None, base_kernel=None)
    assert "Its profile is deleted." in text(page(alice, f"/profiles/{taken_up.pk}/kernels/{kernel.pk}/"))


@pytest.mark.django_db
def test_no_gain_is_refuted(tmp_store, sign_in_mode, alice, bob):
    """Build B's softmax is slower than A's: whoever took advice up on A and delivered B is refuted, with the reason."""
    old = ready("buildA.ncu-rep.zst", build="A")
    kernel = old.kernels.get(short_name="softmax_row")
    client = Client()
    client.force_login(alice)
    url = f"/api/profiles/{old.pk}/kernels/{kernel.pk}/advice/"
    cause = client.get(url).json()["advice"][0]["cause"]
    assert client.post(url, {"cause": cause, "state": "taken"}, content_type="application/json").status_code == 201
    new = ready("buildB.ncu-rep.zst", build="B")
    decisions_check(new.pk)
    decision = AdviceDecision.objects.get()
    assert decision.outcome == "refuted" and decision.gain_pct < -150 and "warps in flight" in decision.why
    assert re.search(r"▲ \d+ % longer", text(page(alice, f"/profiles/{old.pk}/kernels/{kernel.pk}/")))

    for body, what in (({"cause": "nonsense", "state": "taken"}, "no advice nonsense"),
                       ({"cause": cause, "state": "assigned"}, "whom"),
                       ({"cause": cause, "state": "assigned", "assignee": "nobody"}, "nobody called nobody"),
                       ({"cause": cause}, "state")):
        refused = client.post(url, body, content_type="application/json")
        assert refused.status_code == 400 and what in refused.content.decode(), body
    assert len(client.get("/api/advice/?show=refuted").json()["decisions"]) == 1
    assert b"refuted" in client.get("/api/advice/?format=csv").content
    reader = Client()
    reader.force_login(bob)
    assert reader.post(url, {"cause": cause, "state": "taken"}, content_type="application/json").status_code == 403
    assert client.delete(f"/api/advice/{decision.pk}/").status_code == 204 and not AdviceDecision.objects.exists()


@pytest.mark.django_db
def test_a_finding_of_a_whole_run_can_be_decided_too(tmp_store, sign_in_mode, alice):
    profile: Profile = ready("kineto_train.json.gz", build="b1", model="mlp")
    topic_make(profile, topic_of("causes"))
    client = Client()
    client.force_login(alice)
    url = f"/profiles/{profile.pk}/advice/"
    assert client.post(url, {"cause": "cause_host_launch", "state": "dismissed", "note": "as planned"}).status_code == 302
    decision = AdviceDecision.objects.get()
    assert (decision.family, decision.model, decision.cause, decision.note) == (None, "mlp", "cause_host_launch", "as planned")
    shown = text(page(alice, f"/profiles/{profile.pk}/"))
    assert "Dismissed by alice" in shown and "“as planned”" in shown
    sheet = client.get("/api/advice/", {"format": "csv"}).content.decode()
    assert f',"{decision.created.isoformat()}","' in sheet          # a date, not JSON of one
    for wrong in ({"cause": "\0", "state": "taken"}, {"cause": "\0", "state": "reopen"},
                  {"cause": "cause_host_launch", "state": "assigned", "assignee": "\0"}):
        assert client.post(url, wrong).status_code == 302            # no text of PostgreSQL holds a NUL
    assert AdviceDecision.objects.get().state == "dismissed"
    assert client.post(url, {"cause": "cause_host_launch", "state": "reopen"}).status_code == 302
    assert not AdviceDecision.objects.exists()


@pytest.mark.django_db
def test_commands_say_the_same(tmp_store, alice, capsys):
    old, new = ready("buildA.ncu-rep.zst", build="A"), ready("buildB.ncu-rep.zst", build="B")
    call_command("advice", str(new.pk), "--kernel", "softmax")
    said = capsys.readouterr().out
    assert "softmax_row: 253 µs" in said and "1. Too little parallelism, " in said and "high confidence" in said
    call_command("advice", str(new.pk), "--json")
    assert len(json.loads(capsys.readouterr().out)) == 4
    call_command("compare", "A", "B", "--builds")
    said = capsys.readouterr().out
    assert said.count("slower  ") == 3 and said.count("faster  ") == 1 and "warps in flight per scheduler" in said
    call_command("compare", str(old.pk), str(new.pk), "--json")
    assert json.loads(capsys.readouterr().out)["verdicts"]["slower"] == 3
    for wrong in (("advice", "999999"), ("advice", str(new.pk), "--kernel", "nonsense"), ("compare", "1", "x")):
        with pytest.raises(CommandError):
            call_command(*wrong)


@pytest.mark.django_db
def test_a_decision_stays_with_its_kernel_when_families_merge(tmp_store, sign_in_mode, alice):
    old = ready("buildA.ncu-rep.zst", build="A")
    kernel, other = old.kernels.get(short_name="softmax_row"), old.kernels.get(short_name="layernorm_row")
    client = Client()
    client.force_login(alice)
    url = f"/api/profiles/{old.pk}/kernels/{kernel.pk}/advice/"
    cause = client.get(url).json()["advice"][0]["cause"]
    assert client.post(url, {"cause": cause, "state": "taken"}, content_type="application/json").status_code == 201
    family_merge(kernel.family, other.family, by=alice)
    kernel.refresh_from_db()
    assert kernel.family_id == other.family_id
    assert next(each for each in client.get(url).json()["advice"] if each["cause"] == cause)["decision"]["state"] == "taken"
    new = ready("buildB.ncu-rep.zst", build="B")
    assert decisions_check(new.pk) == 1 and AdviceDecision.objects.get().outcome == "refuted"
