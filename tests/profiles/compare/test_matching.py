"""Renamed kernels find each other, with the evidence said; what has no counterpart is left alone."""

from __future__ import annotations

import numpy as np
import pytest

from profiles.analysis.compare.matching import Kernel, match


def side(*names: str, threads: int = 4096) -> list[Kernel]:
    """Kernels of a sequence of launches."""
    return [Kernel(name, np.flatnonzero(np.array(names) == name), threads) for name in dict.fromkeys(names)]


def pairs(old, new):
    return {(each.old, each.new): each for each in match(old, new)}


def test_the_same_name_is_certain_whatever_else_there_is():
    found = pairs(side("a", "b", "a"), side("b", "a"))
    assert {key: each.confidence for key, each in found.items()} == {("a", "a"): "certain", ("b", "b"): "certain"}


def test_a_library_version_with_other_tiles_is_the_same_family():
    old = side("sm80_xmma_gemm_f16f16_f16f32_f32_tn_n_tilesize128x128x32_stage4_warpsize2x2x1", "softmax_kernel")
    new = side("sm90_xmma_gemm_f16f16_f16f32_f32_tn_n_tilesize256x128x64_stage3_warpgroupsize1x1x1", "softmax_kernel")
    found = pairs(old, new)[old[0].name, new[0].name]
    assert found.confidence == "high" and "family cuBLAS GEMM" in found.how


def test_another_implementation_at_the_same_place_is_found_with_less_confidence():
    before, gemm, after = "layer_norm_kernel", "sm90_xmma_gemm_f16f16_f16f32_f32_tn_n_tilesize128x128x64", "gelu_kernel"
    old, new = side(*(before, gemm, after) * 4), side(*(before, "my_triton_matmul_kernel", after) * 4)
    found = pairs(old, new)[gemm, "my_triton_matmul_kernel"]
    assert found.confidence == "medium" and "100 % of its launches" in found.how and "operation matmul" in found.how


def test_place_alone_is_low_confidence():
    old, new = side(*("a_kernel", "foo", "b_kernel") * 4), side(*("a_kernel", "bar", "b_kernel") * 4)
    assert pairs(old, new)["foo", "bar"].confidence == "low"


def test_other_work_elsewhere_is_not_comparable():
    old, new = side("a_kernel", "foo", "b_kernel"), side("a_kernel", "b_kernel", "bar", "bar")
    assert set(pairs(old, new)) == {("a_kernel", "a_kernel"), ("b_kernel", "b_kernel")}


def test_two_of_a_family_are_told_apart_by_place():
    one, two = "triton_poi_fused_add_0", "triton_poi_fused_add_5"
    new_one, new_two = "triton_poi_fused_add_3", "triton_poi_fused_add_8"
    old, new = side(*("x", one, "y", two, "z") * 3), side(*("x", new_one, "y", new_two, "z") * 3)
    found = pairs(old, new)
    assert found[one, new_one].confidence == found[two, new_two].confidence == "high"
    swapped = pairs(old, side(*("x", new_two, "y", new_one, "z") * 3))
    assert (one, new_two) in swapped and (two, new_one) in swapped


def test_each_kernel_is_in_one_pair_at_most():
    old = side(*[f"triton_poi_fused_mul_{k}" for k in range(30)], "anchor")
    new = side("anchor", *[f"triton_poi_fused_mul_{k}" for k in range(40, 60)])
    found = match(old, new)
    assert len({each.old for each in found}) == len({each.new for each in found}) == len(found) == 21


@pytest.mark.deep_only
@pytest.mark.slow
def test_thousands_of_names_are_matched_by_family_alone():
    old = [Kernel(f"kernel_{k:x}_void<{k}>", np.array([k])) for k in range(3000)]
    new = [Kernel(f"other_{k:x}_void<{k}>", np.array([k])) for k in range(3000)]
    assert len(match(old, new)) <= 3000
