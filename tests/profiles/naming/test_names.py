"""Labels that tell kernels apart: of every kernel name of the corpus, and of the libraries whose names are known."""

from __future__ import annotations

import gzip
import random
import time
from collections import defaultdict

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from profiles.analysis.core.identity import identity
from profiles.ingest.naming.demangle import demangle
from profiles.ingest.naming.names import short_name, short_names
from tests.profiles.ingest.corpus import DATA

MOST = 80


def recorded() -> dict[str, list[str]]:
    """File -> the names of its kernels: tests/data/README.md says from where."""
    sets: dict[str, list[str]] = defaultdict(list)
    with gzip.open(DATA / "kernel_names.txt.gz", "rt", encoding="utf-8") as lines:
        for line in lines:
            file, _, name = line.rstrip("\n").partition("\t")
            sets[file].append(name)
    return dict(sets)


RECORDED = recorded()
EVERY = sorted({name for names in RECORDED.values() for name in names})


@pytest.mark.parametrize("names", [*RECORDED.values(), EVERY], ids=[*RECORDED, "all of them"])
def test_kernels_of_a_profile_never_read_the_same(names: list[str]) -> None:
    labels = short_names(names)
    assert list(labels) == sorted(set(names))
    assert len(set(labels.values())) == len(labels)
    assert all(0 < len(label) <= MOST and label.strip() == label for label in labels.values())
    shuffled = random.Random(7).sample(names, len(names))
    assert short_names(shuffled) == labels


def test_a_digest_is_the_last_resort() -> None:
    """No profile of the corpus needs one: what differs is shown."""
    shown = [label for names in RECORDED.values() for label in short_names(names).values()]
    assert len(shown) > 1_000 and not [label for label in shown if "~" in label]


CLOVER = ("void clover::par_ranged2d_kernel<PdV_kernel(bool, int, clover::Buffer2D<double>&)::{lambda(int, int)#1}>"
          "(clover::Range2d, PdV_kernel(bool, int, clover::Buffer2D<double>&)::{lambda(int, int)#1})")
COPY = ("void at::native::elementwise_kernel<128, 2, at::native::gpu_kernel_impl_nocast<at::native::direct_copy_kernel_cuda("
        "at::TensorIteratorBase&)::{lambda()#3}::operator()() const::{lambda()#7}::operator()() const::{lambda(float)#1}>("
        "at::TensorIteratorBase&, at::native::direct_copy_kernel_cuda(at::TensorIteratorBase&)::{lambda()#3}::operator()() const"
        "::{lambda()#7}::operator()() const::{lambda(float)#1} const&)::{lambda(int)#1}>(int, at::native::gpu_"
        "kernel_impl_nocast)")
COPY_NCU = ("void at::native::elementwise_kernel<(int)128, (int)2, void at::native::gpu_kernel_impl_nocast<at::"
            "native::direct_copy_"
            "kernel_cuda(at::TensorIteratorBase &)::[lambda() (instance 3)]::operator ()() const::[lambda() ("
            "instance 7)]::operator "
            "()() const::[lambda(float) (instance 1)]>(at::TensorIteratorBase &, const T1 &)::[lambda(int) ("
            "instance 1)]>(int, T3)")
COPY_MANGLED = ("_ZN2at6native18elementwise_kernelILi128ELi2EZNS0_22gpu_kernel_impl_nocastIZZZNS0_23direct_copy_"
                "kernel_cudaERNS_18Tensor"
                "IteratorBaseEENKUlvE1_clEvENKUlvE5_clEvEUlfE_EEvS4_RKT_EUliE_EEviT1_")
UNSTOCK = "thrust::cuda_cub::__uninitialized_fill::functor<thrust::device_ptr<float>, float>"
GEMM_2 = ("void cutlass::Kernel<cutlass::gemm::kernel::Gemm<cutlass::gemm::threadblock::MmaMultistage<cutlass::"
          "gemm::GemmShape<128, 128, "
          "32>, cutlass::transform::threadblock::PredicatedTileAccessIterator<cutlass::MatrixShape<128, 32>, cutlass::half_t>, "
          "cutlass::half_t, cutlass::layout::RowMajor, 4>, cutlass::epilogue::threadblock::Epilogue<cutlass::"
          "gemm::GemmShape<128, 128, 32>, "
          "1, cutlass::epilogue::thread::LinearCombinationRelu<cutlass::half_t, 8, float> >, false> >(Params)")
GEMM_3 = ("void cutlass::device_kernel<cutlass::gemm::kernel::GemmUniversal<cute::tuple<int, int, int, int>, "
          "cutlass::gemm::collective::"
          "CollectiveMma<cutlass::gemm::MainloopSm90TmaGmmaWarpSpecialized<4, cute::tuple<cute::C<2>, cute::C<1>, cute::C<1> >, "
          "cutlass::gemm::KernelTmaWarpSpecializedCooperative>, cute::tuple<cute::C<128>, cute::C<256>, cute::C<"
          "64> >, cutlass::half_t, "
          "cute::tuple<long, cute::C<1>, long> >, cutlass::epilogue::collective::CollectiveEpilogue<int> > >(Params)")
AMREX = ("void amrex::launch_global<256, amrex::ParallelFor<256, int, Advance::step(amrex::MultiFab&, double)::"
         "{lambda(int, int, int)#2}>"
         "(amrex::Gpu::KernelInfo const&, amrex::BoxND<3> const&)::{lambda()#1}>(amrex::ParallelFor<256>)")
RAJA = ("void RAJA::policy::cuda::impl::forall_cuda_kernel<RAJA::policy::cuda::cuda_exec_explicit<RAJA::"
        "iteration_mapping::Direct, "
        "RAJA::cuda::IndexGlobal<(RAJA::named_dim)0, 256, 0>, 1ul, true>, 1ul, RAJA::Iterators::numeric_"
        "iterator<long, long, long*>, "
        "rajaperf::basic::DAXPY::runCudaVariantImpl<256ul>(rajaperf::VariantID)::{lambda(long)#1}, long>(long)")
KOKKOS = ("void Kokkos::Impl::cuda_parallel_launch_local_memory<Kokkos::Impl::ParallelFor<LJ::ForceFunctor<"
          "double, 1>, Kokkos::RangePolicy"
          "<Kokkos::Cuda>, Kokkos::Cuda> >(Kokkos::Impl::ParallelFor<LJ::ForceFunctor<double, 1>, Kokkos::"
          "RangePolicy<Kokkos::Cuda> >)")
SYCL = "main::{lambda(sycl::_V1::handler&)#2}::operator()(sycl::_V1::handler&) const::"
JULIA = ("gpu_fill_kernel_(CompilerMetadata<DynamicSize, DynamicCheck, void, CartesianIndices<1, Tuple<OneTo<Int64> > > >, "
         "CuDeviceArray<Float64, 1, 1>, Float64)")


@pytest.mark.parametrize(("name", "short"), [
    (CLOVER, "clover::par_ranged2d_kernel<PdV_kernel #1>"),
    ("void add_kernel<double>(double const*, double const*, double*)", "add_kernel<double>"),
    (COPY, "elementwise_kernel<128, 2, direct_copy_kernel_cuda #3.7.1>"),
    (COPY_NCU, "elementwise_kernel<128, 2, direct_copy_kernel_cuda #3.7.1>"),
    (COPY_MANGLED, "elementwise_kernel<128, 2, direct_copy_kernel_cuda #3.7.1>"),
    (KOKKOS, "ParallelFor<ForceFunctor<double, 1>>"),
    (RAJA, "RAJA::forall_cuda_kernel<1, DAXPY::runCudaVariantImpl<256> #1, long>"),
    (AMREX, "amrex::ParallelFor<256, int, Advance::step #2>"),
    ("void amrex::launch_global<256, amrex::ParallelFor<256, __nv_dl_wrapper_t<__nv_dl_tag<void (*)(amrex::"
     "MultiFab&), &(fill_phi("
     "amrex::MultiFab&)), 1u>, amrex::Array4<double> > >(amrex::Gpu::KernelInfo const&)::{lambda()#1}>(x)",
     "amrex::ParallelFor<256, fill_phi #1>"),                                       # an extended lambda of nvcc
    (f"typeinfo name for {SYCL}VecAdd", "main::VecAdd"), ("_ZTSZZ4mainENKUlRN4sycl3_V17handlerEE_clES2_E6VecAdd", "main::VecAdd"),
    (f"typeinfo name for sycl::_V1::detail::RoundedRangeKernel<sycl::_V1::item<1, true>, 1, {SYCL}"
     "{lambda(sycl::_V1::item<1, true>)#1}>", "main #2.1"),
    (f"void thrust::cuda_cub::core::_kernel_agent<thrust::cuda_cub::__parallel_for::ParallelForAgent<{UNSTOCK}, unsigned long>, "
     f"{UNSTOCK}, unsigned long>({UNSTOCK}, unsigned long)", "ParallelForAgent<__uninitialized_fill::functor<"
      "device_ptr<float>, float>>"),
    ("void cub::CUB_200802_SM_900_NS::DeviceReduceKernel<cub::CUB_200802_SM_900_NS::DeviceReducePolicy<float, unsigned int, "
     "cub::CUB_200802_SM_900_NS::Sum>::Policy600, float*, unsigned int, cub::CUB_200802_SM_900_NS::Sum, float>(float*)",
     "cub::DeviceReduceKernel<float*, unsigned int, Sum, float>"),
    (GEMM_2, "Gemm<MmaMultistage<128x128x32, half_t>, LinearCombinationRelu<half_t, float>>"),
    (GEMM_3, "GemmUniversal<CollectiveMma<2x1x1, 128x256x64, half_t>, CollectiveEpilogue>"),
    ("void cutlass::Kernel2<cutlass_80_tensorop_bf16_s16816gemm_bf16_128x128_32x5_tn_align8>(T1::Params)",
     "cutlass_80_tensorop_bf16_s16816gemm_bf16_128x128_32x5_tn_align8"),
    ("void vllm::act_and_mul_kernel<c10::BFloat16, &(c10::BFloat16 vllm::silu_kernel<c10::BFloat16>(c10::"
     "BFloat16 const&)), true>(int)",
     "vllm::act_and_mul_kernel<BFloat16, silu_kernel<BFloat16>, true>"),
    ("triton_red_fused__to_copy_add_div_expand_mean_mul_native_layer_norm_native_layer_norm_backward_pow_rsqrt_sum_12",
     "triton_red_fused__…add_div_expand_mean_mul_native_layer_norm_native_layer_…12"),
    ("matmul_kernel_0d1d2d3de4de", "matmul_kernel_0d1d2d3de4de"), ("loop_fusion_12", "loop_fusion_12"),
    ("input_reduce_fusion", "input_reduce_fusion"), ("julia_vadd_4304", "julia_vadd_4304"),
    (JULIA, "gpu_fill_kernel_<CuDeviceArray<Float64, 1, 1>, Float64>"),
    ("_Z15julia_vadd_430413CuDeviceArrayI7Float32Li1ELi1EES_IS0_Li1ELi1EE", "julia_vadd_4304<CuDeviceArray<Float32, 1, 1>>"),
    ("sm80_xmma_gemm_f16f16_f16f32_f32_tn_n_tilesize128x128x32_stage4_warpsize2x2x1_tensor16x8x16_execute_kernel_trt",
     "sm80_xmma_gemm_f16f16_f16f32_f32_tn_n_tilesize128x128x32_stage4_warpsize2x2x1_…"),
    ("cudnn_infer_ampere_scudnn_128x64_relu_xregs_large_nn_v1", "cudnn_infer_ampere_scudnn_128x64_relu_xregs_large_nn_v1"),
    ("nvjet_sm90_tst_128x256_64x4_2x1_v_bz_coopA_NTN", "nvjet_sm90_tst_128x256_64x4_2x1_v_bz_coopA_NTN"),
    ("Cijk_Alik_Bljk_BBS_BH_Bias_HA_S_SAV_UserArgs_MT256x192x64_MI16x16x1_SN_LDSB1_AFC1_AFEM1_AFEM1_ASEM1_CLR1_CADS0_DTVA0_WGM4",
     "Cijk_Alik_Bljk_BBS_BH_Bias_HA_S_SAV_…MT256x192x64_MI16x16x1_SN_LDSB1_AFC1_…WGM4"),
    ("autograd::engine::evaluate_function: AddBackward0", "autograd::engine::evaluate_function: AddBackward0"),
    ("my kernel 3", "my kernel 3"), ("GEMM (M=3, N=4)", "GEMM (M=3, N=4)"),
])
def test_what_a_label_keeps(name: str, short: str) -> None:
    assert short_name(name) == short


def test_siblings_show_what_differs() -> None:
    """36 lambdas, lambda numbers of ATen, an overload, a member of a pair that differs deep down, tiles of flat names."""
    functions = [f"{word}_kernel" for word in ("PdV", "accelerate", "viscosity", "flux_calc", "ideal_gas", "reset_field")]
    clover = [CLOVER.replace("PdV_kernel", function).replace("#1", f"#{number}")
              for function in functions for number in range(1, 7)]
    assert sorted(short_names(clover).values()) == sorted(
        f"clover::par_ranged2d_kernel<{function} #{number}>" for function in functions for number in range(1, 7))
    pair = [COPY, COPY.replace("{lambda()#7}", "{lambda()#11}")]
    assert [short_names(pair)[name].rpartition("#")[2] for name in pair] == ["3.7.1>", "3.11.1>"]
    assert set(short_names(["void f<4>(int*)", "void f<4>(float*)"]).values()) == {"f<4>(int*)", "f<4>(float*)"}
    both = ["void at::native::vectorized_elementwise_kernel<4, at::native::AddFunctor<float>, std::array<char*, 2ul> >(int)",
            "void at::native::vectorized_elementwise_kernel<4, at::native::AddFunctor<float>, std::array<char*, 3ul> >(int)"]
    assert [short_names(both)[name] for name in both] == [
        f"vectorized_elementwise_kernel<4, AddFunctor<float>, array<char*, {size}>>" for size in (2, 3)]
    long = "sm80_xmma_gemm_f16f16_f16f32_f32_tn_n_tilesize128x128x32_stage4_warpsize2x2x1_tensor16x8x16_{}_execute_kernel_trt"
    assert [label for label in short_names([long.format("aligna4"), long.format("aligna8")]).values()
            if "aligna" not in label] == []
    beyond = ["f<" + "g<" * 60 + "int" + ">" * 61, "f<" + "g<" * 60 + "long" + ">" * 61]     # deeper than anything is read
    assert len(set(short_names(beyond).values())) == 2


def test_a_set_leaves_the_labels_of_others_alone() -> None:
    """Only names that read the same get more: what a kernel is called does not change with unrelated kernels."""
    names = EVERY[::3]
    labels = short_names(names)
    changed = [name for name in names if labels[name] != short_name(name)]
    reads = defaultdict(list)
    for name in names:
        reads[short_name(name)].append(name)
    assert all(len(reads[short_name(name)]) > 1 for name in changed)


@pytest.mark.parametrize(("mangled", "readable"), [
    (COPY_MANGLED, None),
    ("_ZN3cub18DeviceReduceKernelINS_18DeviceReducePolicyIfiNS_3SumEE9Policy600EPfiS2_fEEvT0_PT3_T1_",
     "void cub::DeviceReduceKernel<cub::DeviceReducePolicy<float, int, cub::Sum>::Policy600, float*, int, cub::Sum, float>"
     "(float*, float*, int)"),
    ("_Z1fIJifEEvDpT_", "void f<int, float>(int, float)"), ("_Z1fPFviE", "f(void (*)(int))"),
    ("_Z1fRA4_Ki", "f(int const (&) [4])"),
    ("_ZN1SaSERKS_", "S::operator=(S const&)"), ("_Z1fILin3ELb1ELm7EEvv", "void f<-3, true, 7ul>()"),
    ("_ZN12_GLOBAL__N_11fEv", "(anonymous namespace)::f()"), ("_Z1fDF16bDv4_f", "f(std::bfloat16_t, float __vector(4))"),
])
def test_mangled_names_are_demangled(mangled: str, readable: str | None) -> None:
    found = demangle(mangled)
    assert found == readable if readable else short_name(found) == short_name(COPY)


def test_every_mangled_name_of_the_corpus_is_demangled() -> None:
    mangled = [name for name in EVERY if name.startswith("_Z")]
    assert len(mangled) > 10 and all("(" in demangle(name) for name in mangled)
    assert {identity(name).key for name in (COPY, COPY_NCU, COPY_MANGLED)} == {identity(COPY).key}


HOSTILE = ("<", "f<", "a::", "(", ")", "{lambda(", "_", "a<b,", "[lambda(", "'lambda'(", "operator<", "(int)1", "->", "_Z1f", "a_",
           "A<B>::",
           "(anonymous namespace)::", "Cijk_A1_", "a b ", "&(",
           "__nv_dl_wrapper_t<__nv_dl_tag<")


def test_names_made_to_be_slow_are_not() -> None:
    began = time.process_time()
    for part in HOSTILE:
        for name in (part * (100_000 // len(part)), f"void f<{part * 30_000}>(int)"):
            assert 0 < len(short_name(name)) <= MOST
    backs = ["S1_", *(f"S{digit}_" for digit in "23456789ABCDEFGHIJ")]
    doubling = "_Z1f1A1PIS_S_E" + "".join(f"S0_I{back}{back}E" for back in backs)
    assert demangle(doubling) == ""                                 # its text would double with every reference
    for part in ("1a", "I1aI", "P", "N1a", "Z1fvE", "UlvE_", "Dp", "S_", "T_", "XadL_Z"):
        demangle(f"_Z1f{part * (15_000 // len(part))}")
    assert time.process_time() - began < 5.0


@settings(max_examples=200, deadline=None)
@given(st.lists(st.text(alphabet="ab<>(){}[],:&*# _1Z~…", max_size=60), max_size=12))
def test_any_names_have_labels_that_differ(names: list[str]) -> None:
    labels = short_names(names)
    assert set(labels) == set(names) and len(set(labels.values())) == len(labels)
    assert all(0 < len(label) <= MOST for label in labels.values())


@pytest.mark.parametrize(("names", "labels"), [
    ([CLOVER, CLOVER.replace("PdV", "accelerate"), CLOVER.replace("#1", "#2")],
     ["clover::par_ranged2d_kernel PdV_kernel #1 · fp64", "clover::par_ranged2d_kernel accelerate_kernel #1 · fp64",
      "clover::par_ranged2d_kernel PdV_kernel #2 · fp64"]),
    ([CLOVER.replace("clover::Buffer2D<double>&", "int")], ["clover::par_ranged2d_kernel PdV_"
     "kernel #1"]),      # int is no element
    ([KOKKOS, AMREX, RAJA], ["ParallelFor ForceFunctor · fp64", "amrex::ParallelFor #1 Advance::step #2 · fp64",
                             "RAJA::policy::cuda::impl::forall_cuda_kernel DAXPY::runCudaVariantImpl #1"]),
    (["void store<2048l, 4, false, long>(P)", "pointer_chase(int const*, int*, int)"], ["store", "pointer_chase"]),
    (["void at::native::elementwise_kernel_manual_unroll<128, 8, at::native::gpu_kernel_impl_nocast<at::native::"
      "CUDAFunctor_add<c10::"
      "BFloat16> >(at::TensorIteratorBase&)::{lambda(int, bool)#1}>(int)"], ["elementwise add · bf16"]),
    ([f"typeinfo name for {SYCL}VecAdd"], ["main::VecAdd"]),
])
def test_families_tell_functors_and_lambdas_apart(names: list[str], labels: list[str]) -> None:
    assert [identity(name).label for name in names] == labels
