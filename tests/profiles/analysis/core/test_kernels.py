"""The kernel table, and names as people read them."""

import numpy as np
import pytest

from profiles import ingest
from profiles.analysis.core.kernels import kernel_table
from profiles.ingest.naming.names import family, is_collective, operator_of, short_name
from profiles.ingest.trace import KERNELS
from tests.builders import trace
from tests.profiles.ingest.corpus import H200, TRUTH
from tuner.tuning.operators import OPERATORS


def test_table_of_a_drawn_trace():
    first, second = kernel_table(trace("""
        p / main: gemm 0-99
        GPU 0 / stream 7: gemm 0-10 regs=32 smem=64 occ=50 | gemm 10-30 regs=32 smem=128 occ=25 | mark@compute 40
        GPU 0 / stream 8: ncclAllReduce 0-5 | Memcpy DtoD 5-50 | gemm@gpu_annotation 0-60
    """))
    assert (first.name, first.launches, first.total_ns, first.mean_ns, first.p50_ns) == ("gemm", 2, 30_000, 15_000, 15_000)
    assert (first.min_ns, first.max_ns, first.p95_ns) == (10_000, 20_000, 19_500)
    assert (first.registers_per_thread, first.smem_bytes, first.category) == (32, 128, "compute")
    assert first.occupancy_pct == pytest.approx((50 * 10 + 25 * 20) / 30)
    assert (second.category, second.share_pct, second.registers_per_thread, second.occupancy_pct) == (
        "communication", pytest.approx(100 * 5 / 35), None, None)


def test_quantiles_are_exact():
    found = ingest.read(H200 / "kineto_train.json.gz")
    rows = [row for row in found.slices.to_pylist() if row["category"] in KERNELS]
    for kernel in kernel_table(found):
        durations = [row["dur_ns"] for row in rows if row["name"] == kernel.name]
        assert kernel.launches == len(durations) and kernel.total_ns == sum(durations)
        assert kernel.p50_ns == pytest.approx(np.quantile(durations, 0.5))
        assert kernel.p95_ns == pytest.approx(np.quantile(durations, 0.95))
    assert sum(kernel.share_pct for kernel in kernel_table(found)) == pytest.approx(100)


def test_no_kernels():
    assert kernel_table(trace("p / main: op 0-1")) == []


@pytest.mark.parametrize(("name", "short"), [
    ("ampere_sgemm_32x32_sliced1x4_tn", "ampere_sgemm_32x32_sliced1x4_tn"),
    ("ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)", "ncclDevKernel_AllReduce_Sum_f32_RING_LL"),
    ("void cudnn::bn_bw_1C11_kernel_new<float, float, float2, 512, true, 1>(float, float)",
     "cudnn::bn_bw_1C11_kernel_new<float, float, float2, 512, true, 1>"),
    ("void at::native::vectorized_elementwise_kernel<4, at::native::AddFunctor<float>, at::detail::Array<char*, 3> >(int, "
     "at::native::AddFunctor<float>, at::detail::Array<char*, 3>)", "vectorized_elementwise_kernel<4, AddFunctor<float>>"),
    ("void (anonymous namespace)::softmax_warp_forward<float, float, float, 10, false, false>(float*, float const*, int)",
     "softmax_warp_forward<float, float, float, 10, false, false>"),
    ("triton_poi_fused_add_cos_sin_0", "triton_poi_fused_add_cos_sin_0"),
    ("operator()(int)", "operator()"), ("", "(no name)"), ("<>", "<>"), (")", ")"),
])
def test_short_names(name, short):
    assert short_name(name) == short


@pytest.mark.parametrize("truth", TRUTH, ids=lambda truth: truth["file"])
def test_short_names_are_short_and_say_something(truth):
    for name in truth["top"]:
        assert 0 < len(short_name(name)) <= 80
        assert family(name)
        assert not short_name(name).startswith("void ")


@pytest.mark.parametrize(("one", "other"), [
    ("void gemm<float, 128>(int)", "void gemm<float, 256>(int, int)"),
    ("ampere_sgemm_32x32_sliced1x4_tn", "ampere_sgemm_128x64_sliced1x4_tn"),
    ("nvjet_sm90_tst_128x256_64x4_2x1_v_bz_coopA_NTN", "nvjet_sm90_tst_256x128_64x4_2x1_v_bz_coopA_NTN"),
    ("Cijk_Alik_Bljk_BBS_BH_Bias_HA_S_SAV_UserArgs_MT256x192x64", "Cijk_Alik_Bljk_BBS_BH_Bias_HA_S_SAV_UserArgs_MT32x32x256"),
])
def test_a_family_outlives_a_rebuild(one, other):
    assert family(one) == family(other)


@pytest.mark.parametrize(("kernel", "operator"), [
    ("nvjet_sm90_tst_128x256_64x4_2x1_v_bz_coopA_NTN", "matmul"), ("Cijk_Alik_Bljk_BBS_BH_Bias_HA_S_SAV", "matmul"),
    ("void (anonymous namespace)::softmax_warp_forward<float, float, float, 10, false, false>(float*)", "softmax"),
    ("void at::native::vectorized_layer_norm_kernel<float, float>(int, float)", "layernorm"),
    ("pytorch_flash::flash_fwd_kernel", "attention"), ("cudnn_generated_fort_native_sdpa_sm90_flash_fprop_wgmma", "attention"),
    ("vectorized_elementwise_kernel", ""),
])
def test_kernels_point_to_operators_that_can_be_tuned(kernel, operator):
    assert operator_of(kernel) == operator and (not operator or operator in OPERATORS)


def test_families_keep_kernels_apart():
    assert family("softmax_kernel") != family("layer_norm_kernel")
    assert family("triton_poi_fused_add_0") != family("triton_poi_fused_mul_0")


@pytest.mark.parametrize(("name", "collective"), [
    ("ncclKernel_AllReduce_RING_LL_Sum_float(ncclDevComm*, unsigned long, ncclWork*)", True),
    ("ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)", True), ("rcclGenericKernel", True),
    ("void vllm::cross_device_reduce_1stage<__nv_bfloat16, 8>()", True), ("mscclKernel_Sum_half_LL_false", True),
    ("void at::native::reduce_kernel<512, 1>()", False), ("gemm", False), ("void cub::DeviceReduceKernel<int>()", False),
])
def test_collectives_by_name(name, collective):
    assert is_collective(name) is collective
