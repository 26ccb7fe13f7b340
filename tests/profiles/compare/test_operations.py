"""Operations matched by what they compute: recordings on an H200 beside their twins, and every nanosecond in one row."""

from __future__ import annotations

import pytest

from profiles.analysis.compare.operations import Operation, Work, compare_operations
from profiles.compare.operation_selectors import operation_lines, operations_answer
from profiles.ingest.naming.names import short_name
from tests.profiles.compare.operations import compared, side

N, MORE = "natural/", "natural/more/"
TWINS = [(f"{N}{name}.json.gz", f"{N}{name}__without.json.gz") for name in (
    "experts_in_a_loop", "images_channels_first", "optimizer_tensor_by_tensor", "scores_written_out")] + [
    (f"{MORE}{name}.json.gz", f"{MORE}{name}__without.json.gz") for name in (
        "adapters_not_merged", "keys_repeated_in_decode", "mask_built_in_each_layer", "scores_in_vit", "weights_cast_each_step",
        "weights_dequantised_each_step")] + [
    ("recorded/logits_of_all_tokens.json.gz", f"{N}logits_of_all_tokens__without.json.gz"),
    (f"{N}keys_repeated_decode_eager_shapes.json.gz", f"{N}keys_repeated_decode_compiled.json.gz"),
    (f"{N}keys_repeated_decode_eager.json.gz", f"{N}keys_repeated_decode_graph.json.gz"),
    ("h200/kineto_train.json.gz", "h200/kineto_layer.json.gz")]


def ms(work: Work) -> float:
    return round(work.ns / 1e6, 2)


@pytest.mark.parametrize(("old", "new"), TWINS, ids=lambda file: file.rpartition("/")[2].partition(".")[0])
def test_kinds_add_up_to_the_kernels_and_operations_to_their_kind(old, new):
    (a, made_a, _), (b, made_b, _) = side(old), side(new)
    rows = compare_operations(a, b, [*made_a.operations, *made_b.operations])
    for which, table in (("old", a), ("new", b)):
        assert sum(getattr(row, which).ns for row in rows) == table["dur_ns"].to_numpy().sum()
        assert sum(getattr(row, which).launches for row in rows) == len(table)
        for row in rows:
            assert sum(getattr(part, which).ns for part in row.parts) == getattr(row, which).ns
            assert sum(getattr(part, which).launches for part in row.parts) == getattr(row, which).launches


def test_attention_written_out_is_the_attention_of_the_fused_kernel():
    kinds, kernels = compared(*TWINS[3])
    attention = kinds["attention"]
    assert (ms(attention.old), ms(attention.new)) == (13.33, 0.55)
    assert (attention.old.launches, attention.new.launches) == (22, 2)
    assert attention.verdict == "less_work" and attention.new.flop / attention.old.flop == pytest.approx(0.5, abs=0.01)    # causal
    assert all(row.verdict == "unchanged" for name, row in kinds.items() if name in ("products", "norms", "rotary", "activations"))
    assert kernels.verdicts()["slower"] == 0


def test_experts_one_by_one_are_the_products_of_the_grouped_ones():
    kinds, kernels = compared(*TWINS[0])
    products = kinds["products"]
    assert (ms(products.old) * 3, ms(products.new) * 3) == pytest.approx((5.22, 2.95), abs=0.03)
    assert products.verdict == "faster" and products.new.flop == pytest.approx(products.old.flop, rel=0.01)
    experts = next(part for part in products.parts if part.what == "gate and up projections 1536×2048")
    assert (experts.old.launches, experts.new.launches, experts.verdict) == (112, 4, "faster")
    assert kinds["indexing"].verdict == "fewer_launches" and kinds["indexing"].delta_ns == pytest.approx(-2.25e6, rel=0.02)
    row = max(kernels.rows, key=lambda row: row.change_pct or 0.0)
    assert row.verdict == "other_work" and row.work_change_pct > 1000           # was "slower, +3655 %"


@pytest.mark.parametrize(("twin", "kind", "verdict", "old_ms", "new_ms"), [
    (1, "layouts", "fewer_launches", 6.00, 0.08), (1, "norms", "faster", 23.4, 7.12), (2, "optimizer", "less_work", 6.71, 4.02),
    (4, "pointwise", "less_work", 2.17, 0.49), (5, "attention", "faster", 5.48, 0.26), (6, "attention", "less_work", 7.63, 2.26),
    (6, "masks", "gone", 0.36, 0.0), (7, "attention", "faster", 20.1, 1.19), (8, "weights", "gone", 0.77, 0.0),
    (9, "weights", "gone", 2.25, 0.0), (10, "products", "less_work", 19.9, 9.18), (11, "attention", "faster", 5.50, 2.37),
    (11, "rotary", "moved", 0.04, 0.0), (12, "attention", "unchanged", 5.49, 5.52)])
def test_what_became_of_an_operation(twin, kind, verdict, old_ms, new_ms):
    row = compared(*TWINS[twin])[0][kind]
    assert row.verdict == verdict
    assert (ms(row.old), ms(row.new)) == pytest.approx((old_ms, new_ms), rel=0.02, abs=0.006)


def test_a_head_over_fewer_tokens_is_less_work_and_its_kernel_not_faster():
    kinds, kernels = compared(*TWINS[10])
    head = kinds["products"].parts[0]
    assert head.what == "product 128256×4096" and head.verdict == "less_work" and (head.old.launches, head.new.launches) == (1, 1)
    row = kernels.rows[0]
    assert row.verdict == "other_work" and row.work_change_pct == pytest.approx(-99.95, abs=0.05)
    assert {part.verdict for part in kinds["products"].parts[1:]} == {"unchanged"}


def test_a_replayed_graph_is_matched_by_its_kernels():
    kinds, _ = compared(*TWINS[12])
    assert {row.verdict for row in kinds.values()} <= {"unchanged", "unknown_slower", "unknown_faster"}
    assert kinds["pointwise"].old.launches == kinds["pointwise"].new.launches == 58


def test_the_other_way_round_gives_the_mirrored_verdicts():
    mirrored = {"more_work": "less_work", "slower": "faster", "unknown_slower": "unknown_faster", "new": "gone",
                "more_launches": "fewer_launches", "moved": "unmoved", "unchanged": "unchanged", "replaced": "replaced"}
    mirrored |= {b: a for a, b in mirrored.items()}
    for twin in (0, 2, 3, 11):
        there, back = compared(*TWINS[twin])[0], compared(*reversed(TWINS[twin]))[0]
        assert {kind: mirrored[row.verdict] for kind, row in there.items()} == {kind: row.verdict for kind, row in back.items()}


def test_a_recording_beside_itself_is_unchanged():
    kinds, kernels = compared(TWINS[0][0], TWINS[0][0])
    assert {row.verdict for row in kinds.values()} == {"unchanged"} and kernels.verdicts()["other_work"] == 0


def test_titles_and_kernels_are_those_of_both_sides():
    kinds, _ = compared(*TWINS[3])
    titles = [part.what for part in kinds["products"].parts]
    assert "output projection, Q projection 4096×4096" in titles        # of grouped heads the fused side alone can tell them apart
    assert any("sdpa" in short_name(kernel) for kernel in kinds["attention"].new.kernels)


def test_an_operation_that_is_not_known_on_both_sides_says_so():
    assert Operation("products", "", "4096×4096", "product").text != Operation("products", "backward", "4096×4096", "product").text
    kinds, _ = compared(*TWINS[1])
    assert kinds["pooling"].verdict == "unknown_faster" and kinds["pooling"].old.bytes is None and kinds["pooling"].says == ""


def test_a_kernel_of_unknown_work_that_launches_more_threads_is_not_slower():
    _, kernels = compared(*TWINS[0])
    gather = next(row for row in kernels.rows if row.kernel.startswith("vectorized_gather_kernel"))     # `aten::index`
    assert gather.change_pct > 900 and gather.work_change_pct > 900 and gather.verdict == "other_work"
    assert kernels.verdicts()["slower"] == 0


@pytest.mark.parametrize(("file", "shares"), [
    ("kineto_tbplugin_resnet50_v100_1623143089861.pt.trace.json.gz", {"convolutions": 67, "norms": 16, "activations": 8}),
    ("vllm_mi300_decode_full_graph_execution.json.gz", {"products": 77, "attention": 7, "fused": 4}),     # a graph: names alone
    ("sglang_mi300_qwen3-8b_decode.json.gz", {"products": 59, "attention": 22, "norms": 7}),
    ("tracelens_h100_timesformer.json.gz", {"attention": 88, "products": 5})])
def test_kinds_of_traces_that_others_made(file, shares):
    table, *_ = side(f"corpus/kineto/{file}")
    kinds = table["operation"].to_pylist()
    total = table["dur_ns"].to_numpy().sum()
    of_kind: dict[str, float] = {}
    for kind, ns in zip(kinds, table["dur_ns"].to_pylist(), strict=True):
        of_kind[kind.split("\x1f")[0]] = of_kind.get(kind.split("\x1f")[0], 0.0) + 100 * ns / total
    assert {kind: round(of_kind[kind]) for kind in shares} == shares
    assert of_kind.get("other", 0) < 5


def test_the_sentence_says_what_matters():
    rows = list(compared(*TWINS[3])[0].values())
    assert operations_answer(rows) == "Attention 13.3 ms → 551 µs (less work), pointwise 564 µs → 509 µs (same work, faster)."
    assert [line.what for line in operation_lines(rows)][:2] == ["Attention", "Matrix products"]
    assert operations_answer(list(compared(TWINS[0][0], TWINS[0][0])[0].values())) == ""
