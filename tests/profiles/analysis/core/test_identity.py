"""Which names are one kernel: the same through versions, templates, tiles and demanglers; different where the work is."""

from __future__ import annotations

import time

import pytest

from profiles.analysis.core.identity import identity

ATEN = "void at::native::"
ADD_OLD = (ATEN + "vectorized_elementwise_kernel<4, at::native::AddFunctor<float>, at::detail::Array<char*, 3> >"
           "(int, at::native::AddFunctor<float>, at::detail::Array<char*, 3>)")
ADD_NEW = (ATEN + "vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>, std::array<char*, 3ul> >"
           "(int, at::native::CUDAFunctor_add<float>, std::array<char*, 3ul>)")
ADD_STRIDED = (ATEN + "elementwise_kernel<128, 2, at::native::gpu_kernel_impl<at::native::CUDAFunctor_add<float> >"
               "(at::TensorIteratorBase&, at::native::CUDAFunctor_add<float> const&)::{lambda(int)#1}>(int, "
               "at::native::gpu_kernel_impl<at::native::CUDAFunctor_add<float> >(at::TensorIteratorBase&)::{lambda(int)#1})")
ADD_NCU = (ATEN + "vectorized_elementwise_kernel<(int)4, at::native::CUDAFunctorOnSelf_add<float>, std::array<char *, "
           "(unsigned long)2>>(int, T2, T3)")
ADD_MANGLED = ("_ZN2at6native29vectorized_elementwise_kernelILi4ENS0_15CUDAFunctor_addIfEESt5arrayIPcLm3EEEEviT0_T1_")
ADD_BF16 = ADD_NEW.replace("<float>", "<c10::BFloat16>")


def test_one_operation_is_one_kernel_however_it_is_compiled() -> None:
    """PyTorch 1.9 and 2.x, vectorised and strided, in place and not, as ncu writes it and mangled."""
    keys = {identity(name).key for name in (ADD_OLD, ADD_NEW, ADD_STRIDED, ADD_NCU, ADD_MANGLED)}
    assert len(keys) == 1
    assert identity(ADD_OLD).label == "elementwise add · fp32"
    assert identity(ADD_BF16).label == "elementwise add · bf16"


@pytest.mark.parametrize(("names", "label", "op"), [
    (["nvjet_tst_192x192_64x4_2x1_v_bz_coopB_TNN", "nvjet_sm90_tst_256x128_64x4_1x2_h_bz_coopA_bias_TNT",
      "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64_warpgroupsize1x1x1_execute_segment_k_off_kernel__5x_cublas",
      "ampere_bf16_s16816gemm_bf16_128x256_ldg8_f2f_stages_64x3_tn"], "cuBLAS GEMM · bf16", "matmul"),
    (["nvjet_sm90_hsh_192x192_64x4_2x1_v_bz_coopB_bias_TNN", "ampere_fp16_s16816gemm_fp16_64x64_ldg8_f2f_stages_64x6_nn",
      "volta_h884gemm_64x128_ldg8_nn"], "cuBLAS GEMM · fp16", "matmul"),
    (["ampere_sgemm_32x128_nt", "volta_sgemm_64x32_sliced1x4_tn"], "cuBLAS GEMM · fp32", "matmul"),
    (["ncclKernel_AllReduce_RING_LL_Sum_float(ncclDevComm*, unsigned long, ncclWork*)",
      "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
      "ncclDevKernel_AllReduce_Sum_f32_TREE_LL(ncclDevKernelArgsStorage<4096ul>)"], "NCCL AllReduce · fp32", "communication"),
    (["triton_poi_fused_add_cos_sin_0", "triton_poi_fused_add_cos_sin_17"], "triton_poi_fused_add_cos_sin", "elementwise"),
    (["matmul_kernel_0d1d2d3de4de", "matmul_kernel"], "matmul_kernel", "matmul"),
    (["void cub::DeviceScanKernel<cub::DeviceScanPolicy<long>::Policy800, long>(long)",
      "void at_cuda_detail::cub::DeviceScanKernel<at_cuda_detail::cub::DeviceScanPolicy<long, std::plus<long>>::Policy900>(T1)",
      "void cub::CUB_200802_800_NS::DeviceScanKernel<long>(long*)"], "cub::DeviceScanKernel · int64", "scan"),
    (["volta_scudnn_128x64_relu_small_nn_v1", "cudnn_infer_ampere_scudnn_128x64_relu_xregs_large_nn_v1",
      "void implicit_convolve_sgemm<float, float, 1024, 6, 7, 3, 3, 5, 1, false, true, true>(int, int)"],
     "cuDNN convolution, forward · fp32", "convolution"),
    (["void (anonymous namespace)::softmax_warp_forward<float, float, float, 10, true, false>(float*, int)",
      "void at::native::<unnamed>::softmax_warp_forward<float, float, float, (int)6, (bool)0, (bool)0>(T2 *, const T1 *, int)"],
     "softmax_warp_forward · fp32", "softmax"),
    (["input_transpose_fusion.kd", "input_transpose_fusion_1.kd"], "input_transpose_fusion", "copy"),
])
def test_names_of_one_kernel(names: list[str], label: str, op: str) -> None:
    found = {(identity(name).label, identity(name).op) for name in names}
    assert found == {(label, op)}


@pytest.mark.parametrize(("left", "right"), [
    (ADD_NEW, ADD_BF16),
    (ADD_NEW, ADD_NEW.replace("CUDAFunctor_add", "MulFunctor")),
    ("nvjet_sm90_tst_128x128_64x6_2x1_v_bz_NNT", "nvjet_sm90_hsh_128x128_64x6_2x1_v_bz_NNT"),
    ("ncclKernel_AllReduce_RING_LL_Sum_float(a)", "ncclKernel_Broadcast_RING_LL_Sum_int8_t(a)"),
    ("void cudnn::cnn::wgrad_alg0_engine<float, 128, 5>(int)", "void cudnn::detail::dgrad_engine<float, 512, 6>(int)"),
    ("void softmax_warp_forward<float>(float*)", "void softmax_warp_backward<float>(float*)"),
    ("flash_fwd_kernel<traits<cutlass::half_t>>(p)", "flash_bwd_kernel<traits<cutlass::half_t>>(p)"),
    ("matmul_kernel", "matmul_kernel_persistent"), ("esmm_shmem_multi(int)", "esmm_shmem_multi2(int)"),
])
def test_different_work_is_different_kernels(left: str, right: str) -> None:
    assert identity(left).key != identity(right).key


@pytest.mark.parametrize("name", ["", " ", "\x00", "_Z", "_ZN", "<<<<", "f(" * 2_000, "a" * 100_000, "_Z99999999999999999999x",
                                  "void <unnamed>::(", "::::", "\ud800x", "\N{INFORMATION SEPARATOR ONE}", "_Z" + "1a" * 5_000,
                                  "x<" * 3_000 + ">" * 3_000, "lambda(" * 2_000, "_" * 3_000 + "1" * 3_000])
def test_any_text_has_a_bounded_identity(name: str) -> None:
    found = identity(name)
    assert 0 < len(found.function) <= 160 and len(found.key) <= 200
    assert found == identity(name)


def test_names_made_to_be_slow_are_not() -> None:
    """Each pattern meets a name on which it starts over and over; a profile may hold 5,000 of them."""
    began = time.process_time()
    parts = ("sdpa_", "flash_", "cudnn", "cutlass_tensorop_", "cutlass::", "conv", "winograd", "ampere_", "cublas", "nccl", "_1",
             "_0d1d", "__0x", "lambda(", "at::native::", "x<", "a::", "CUB_", "triton_poi", "_Z1a", "12", "Functor", "launch_(",
             " [clone")
    for part in parts:
        identity(part * (100_000 // len(part)))
        identity("void f<" + part * 20_000 + ">(int)")
    assert time.process_time() - began < 5.0
