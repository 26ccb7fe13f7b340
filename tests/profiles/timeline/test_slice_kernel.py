"""What one launch leads to: its stack, its place among the launches, counters elsewhere, filled-in capture and tune forms."""

from __future__ import annotations

from urllib.parse import parse_qs, urlsplit

import pytest
from django.urls import reverse

from profiles import ingest
from profiles.analysis.core.frame import frame_of
from profiles.analysis.core.tunable import TUNED_OPS, TYPES, is_problem, tunable
from profiles.analysis.trace.merge import merge
from profiles.ingest.trace import Category, Trace
from profiles.models import KernelStat, LaunchCounters, Profile
from tests.builders import trace
from tests.profiles.ingest.corpus import H200
from tests.profiles.timeline.test_timeline_api import profile_of
from tuner.tuning.operators import OPERATORS

pytestmark = pytest.mark.django_db


@pytest.fixture
def get(client):
    def call(name: str, *arguments, **query):
        return client.get(reverse(f"api-{name}", args=arguments), query).json()
    return call


STEP = """
python (1) / main: train.py(3): step@python 0-100 | aten::linear 2-30 ext=6 | aten::addmm 5-20 ext=7 \
detail={"Input\\u0020Dims":[[64],[32,128],[128,64],[],[]],"Input\\u0020type":["c10::BFloat16","c10::BFloat16","c10::BFloat16"]} | \
cudaLaunchKernel 8-10 corr=1 ext=7 | aten::relu 40-44 ext=8 | cudaLaunchKernel 41-42 corr=2 ext=8 | cudaLaunchKernel 50-51 corr=3
GPU 0 / stream 7: gemm_k<float*>(int) 12-20 corr=1 ext=7 | relu_k 45-50 corr=2 ext=8 | gemm_k<int>(int) 52-60 corr=3 | \
gemm_k<float*>(int) 62-70 corr=4 | other_gemm_k 71-72
"""


def one(get, pk: int, name: str, which: int = 0, **query) -> dict:
    return get("slices", pk, q=name, **query)["slices"][which]


def test_a_stack_is_what_is_around_the_launch(get):
    profile = profile_of(trace(STEP))
    kernel = get("slice", profile.pk, one(get, profile.pk, "gemm_k<float")["id"])
    assert [frame["name"] for frame in kernel["stack"]] == ["cudaLaunchKernel", "aten::addmm", "aten::linear", "train.py(3): step"]
    operator = get("slice", profile.pk, one(get, profile.pk, "aten::addmm")["id"])
    assert [frame["name"] for frame in operator["stack"]] == ["aten::linear", "train.py(3): step"]
    assert get("slice", profile.pk, one(get, profile.pk, "gemm_k<float", 1)["id"])["stack"] == []


def test_arrows_lead_from_operator_to_call_to_kernel(get):
    profile = profile_of(trace(STEP))
    wanted = [("launch", "cudaLaunchKernel", "gemm_k<float*>(int)"), ("operator", "aten::addmm", "cudaLaunchKernel")]
    for name in ("gemm_k<float", "aten::addmm", "cudaLaunchKernel"):
        told = get("slice", profile.pk, one(get, profile.pk, name)["id"])
        assert sorted((a["kind"], a["from"]["name"], a["to"]["name"]) for a in told["arrows"]) == wanted, name
    outer = get("slice", profile.pk, one(get, profile.pk, "aten::linear")["id"])        # launched by what is inside it
    assert [(link["role"], link["name"]) for link in outer["links"]] == [
        ("launches", "gemm_k<float*>(int)"), ("calls", "cudaLaunchKernel")]


# ids as they are: none on kernels of one version, on those of another the call's, which an operator has as its own; 0 is none
IDS = """
python (1) / main: aten::linear 2-30 ext=6 | aten::addmm 5-20 ext=9 | cudaLaunchKernel 8-10 corr=9 | aten::relu 40-44 ext=10 | \
cudaLaunchKernel 41-42 corr=10 | aten::add 60-80 ext=0 | hipGetDevice 62-63 corr=0 | cudaLaunchKernel 70-71 corr=6
GPU 0 / stream 7: gemm 12-20 corr=9 ext=10 | relu 45-50 corr=10 | copy 75-78 corr=0 ext=0 | add 80-82 corr=6 ext=6
"""


def test_the_operator_of_a_kernel_is_around_its_call_whatever_its_ids(get):
    recorded = trace(IDS)
    profile = profile_of(recorded)
    frame = frame_of(recorded)
    expected = {"gemm": "aten::addmm", "relu": "aten::relu", "copy": None, "add": "aten::add"}
    assert {frame.text(row): frame.text(int(frame.operator[row])) if frame.operator[row] >= 0 else None
            for row in frame.kernels.tolist()} == expected
    rows = get("selection", profile.pk, start=0, end=10**9, by="name,operator", where="category:0")["rows"]
    assert {row["name"]: row["operator"] for row in rows} == expected
    for kernel, operator in expected.items():
        told = get("slice", profile.pk, one(get, profile.pk, f"^{kernel}$", mode="regex")["id"])
        assert [link["name"] for link in told["links"] if link["role"] == "operator"] == [operator] * (operator is not None), kernel
    for operator, kernels in {"aten::addmm": ["gemm"], "aten::relu": ["relu"], "aten::linear": ["gemm"]}.items():
        told = get("slice", profile.pk, one(get, profile.pk, operator)["id"])
        assert [link["name"] for link in told["links"] if link["role"] == "launches"] == kernels, operator


def test_of_many_launches_the_nearest_to_the_view_are_told(get):
    lanes = " | ".join(f"k{i} {100 + 2 * i}-{101 + 2 * i} corr=1" for i in range(300))
    profile = profile_of(trace(f"python (1) / main: cudaGraphLaunch 5-8 corr=1\nGPU 0 / stream 7: {lanes}"))
    call = one(get, profile.pk, "cudaGraphLaunch")["id"]
    told = get("slice", profile.pk, call, start=600_000, end=620_000)
    starts = [link["start_ns"] for link in told["links"]]
    assert told["link_counts"] == {"launches": 300} and len(starts) == 100 == len(told["arrows"])
    assert starts == sorted(starts) and min(starts) >= 500_000 and max(starts) <= 715_000


def test_a_launch_knows_its_place_and_its_forms(get):
    profile = profile_of(trace(STEP), build="4f2c1e", model="gpt")
    told = get("slice-kernel", profile.pk, one(get, profile.pk, "gemm_k<float", 1)["id"])
    assert (told["index"], told["matching"], told["bare_name"]) == (1, 2, "gemm_k")       # gemm_k<int> comes between
    assert parse_qs(urlsplit(told["capture"]).query) == {
        "tool": ["ncu"], "kernel": ["gemm_k"], "launch_skip": ["2"], "launch_count": ["1"], "build": ["4f2c1e"], "model": ["gpt"],
        "profile": [str(profile.pk)]}                                                            # the form asks for its program
    assert told["tune"]["url"] is None and "fp32" in told["tune"]["why"]                      # gemm_k<float>
    relu = get("slice-kernel", profile.pk, one(get, profile.pk, "relu_k")["id"])
    assert relu["tune"] == {"operator": "", "url": None, "why": relu["tune"]["why"]} and "No operator" in relu["tune"]["why"]


def test_counters_of_the_same_kernel_are_told_those_of_the_build_first(get):
    profile = profile_of(trace(STEP), build="b2")
    for build in ("b1", "b2"):
        other = Profile.objects.create(name=f"counters {build}", status="ready", kind="counters", build=build, file_name="f",
                                       upload_key="k")
        stat = KernelStat.objects.create(
            profile=other, name="relu_k", short_name="relu_k", category="compute", bound="memory", launches=1, total_ns=8000,
            mean_ns=8000, p50_ns=1, p95_ns=1, min_ns=1, max_ns=1, share_pct=100)
        assert not LaunchCounters.objects.filter(kernel=stat).exists()
    told = get("slice-kernel", profile.pk, one(get, profile.pk, "relu_k")["id"])["counters"]
    shown = [(each["build"], each["same_build"], each["bound"]) for each in told]
    assert shown == [("b2", True, "memory"), ("b1", False, "memory")]


def test_a_recording_fills_the_tune_form(get):
    recorded = ingest.read(H200 / "kineto_train.json.gz")
    assert isinstance(recorded, Trace)
    profile = profile_of(recorded)
    kernel = one(get, profile.pk, "nvjet_sm90")
    told = get("slice-kernel", profile.pk, kernel["id"])
    asked = parse_qs(urlsplit(told["tune"]["url"]).query)
    assert asked["operator"] == ["matmul"] and asked["dtype"] == ["bf16"] and {"M", "N", "K"} <= set(asked), told["tune"]
    launches = sum(row["name"] == kernel["name"] and row["start_ns"] < kernel["start_ns"] for row in recorded.slices.to_pylist()
                   if row["category"] == Category.COMPUTE)
    assert told["index"] == launches


@pytest.mark.parametrize(("kernel", "operator", "arguments", "shape"), [
    ("nvjet_hsh", "aten::mm", {"Input Dims": [[8, 16], [16, 32]]}, {"M": 8, "N": 32, "K": 16}),
    ("cutlass_gemm", "aten::addmm", {"Input Dims": "[[32], [8, 16], [16, 32], [], []]"}, {"M": 8, "N": 32, "K": 16}),
    ("ampere_gemm", "aten::linear", {"Input Dims": [[2, 8, 16], [32, 16], [32]]}, {"M": 16, "N": 32, "K": 16}),
    ("gemm", "aten::bmm", {"Input Dims": [[4, 8, 16], [4, 16, 32]]}, {}),
    ("softmax_warp_forward", "aten::_softmax", {"Input Dims": [[2, 4, 128], [], []]}, {"R": 8, "C": 128}),
    ("vectorized_layer_norm_kernel", "aten::native_layer_norm",
     {"Input Dims": [[512, 1024], []], "Concrete Inputs": ["", "[1024]"]}, {"R": 512, "C": 1024}),
    ("void vllm::rms_norm_kernel<c10::Half>", "_C::rms_norm", {"Input Dims": [[4, 8, 1024]] * 2 + [[1024], []]},
     {"R": 32, "C": 1024}),
    ("void vllm::fused_add_rms_norm_kernel<c10::Half, 8>", "_C::fused_add_rms_norm",
     {"Input Dims": [[32, 1024]] * 2 + [[1024], []]}, {"R": 32, "C": 1024}),
    ("void vllm::act_and_mul_kernel<c10::Half, silu_and_mul>", "_C::silu_and_mul", {"Input Dims": [[16, 512], [16, 1024]]},
     {"R": 16, "C": 512}),
    ("flash_fwd_kernel", "aten::_scaled_dot_product_flash_attention",
     {"Input Dims": [[2, 8, 256, 64]] * 3, "Concrete Inputs": ["", "", "", "0.", "True"]},
     {"B": 2, "H": 8, "N": 256, "D": 64, "causal": 1}),
    ("void at::native::sbtopk::gatherTopK<c10::Half, unsigned int, 2>", "aten::topk",
     {"Input Dims": [[4, 8, 256], [], [], [], []], "Concrete Inputs": ["", "6", "-1", "True", "True"]},
     {"R": 32, "C": 256, "K": 6}),
    ("gatherTopK", "aten::topk", {"Input Dims": [[8, 256]], "Concrete Inputs": ["", "6", "0", "True", "True"]}, {}),
    ("gatherTopK", "aten::topk", {"Input Dims": [[8, 256]], "Concrete Inputs": ["", "6", "1", "False", "True"]}, {}),
    ("embedding_kernel", "aten::embedding", {"Input Dims": [[1000, 64], [2, 8], [], [], []]}, {"T": 16, "V": 1000, "C": 64}),
    ("void vllm::rotary_embedding_kernel<c10::Half, true>(long*)", "_C::rotary_embedding",
     {"Input Dims": [[16], [16, 512], [16, 128], [], [4096, 128], []], "Concrete Inputs": ["", "", "", "128", "", "True"]},
     {"T": 16, "H": 4, "D": 128}),
    ("sm90_xmma_fprop_implicit_gemm_f16f16_f16f32_f32_nhwckrsc_nhwc", "aten::cudnn_convolution",
     {"Input Dims": [[2, 64, 56, 48], [32, 64, 3, 3]], "Concrete Inputs": ["", "", "[1, 1]", "[2, 2]", "[1, 1]", "1", "False"]},
     {"B": 2, "H": 56, "W": 48, "C": 64, "F": 32, "KS": 3, "S": 2, "P": 1}),
    ("sm90_xmma_fprop_implicit_gemm_f16f16_f16f32_f32_nhwckrsc_nhwc", "aten::convolution",
     {"Input Dims": [[2, 64, 56, 48], [32, 32, 3, 3]],
      "Concrete Inputs": ["", "", "", "[2, 2]", "[1, 1]", "[1, 1]", "False", "[0, 0]", "2"]}, {}),
    ("xent_rows", "aten::cross_entropy_loss", {"Input Dims": [[16, 1000], [16]]}, {"R": 16, "C": 1000}),
    ("gemm", "aten::mm", {"Input Dims": [[8, "x"], None]}, {}), ("gemm", "aten::mm", {"Input Dims": "]["}, {}),
])
def test_shapes_of_operators(kernel, operator, arguments, shape):
    made = tunable(kernel, [("cudaLaunch", {}), (operator, {**arguments, "Input type": ["c10::Half"] * 3})])
    assert made.shape == shape and (made.dtype == "fp16" if shape else made.why)


GEMV = ("void gemv2T_kernel_val<int, int, double, double, double, double, 128, 16, 4, 4, false, false, "
        "cublasGemvParamsEx<int, cublasGemvTensorStridedBatched<double const>, double> >(cublasGemvParamsEx<int, double>)")
QUERY = {"Input Dims": [[2, 8, 512, 64]], "Input type": ["c10::Half"]}
BPROP = "cudnn_generated_fort_native_sdpa_sm90_flash_bprop_wgmma_f16_knob_26_64x64x64_1x4x1"
NORM = "void at::native::(anonymous namespace)::vectorized_layer_norm_kernel<float, float, false>(int, float, float const*)"
ROWS = {"Input Dims": [[512, 1024], [], [1024], [1024], []], "Concrete Inputs": ["", "[1024]", "", "", "1e-05"]}


@pytest.mark.parametrize(("kernel", "around", "why"), [
    (GEMV, [], "fp64"),
    (GEMV, [("aten::mm", {"Input Dims": [[64, 512], [512, 1]], "Input type": ["double", "double"]})], "fp64"),
    (NORM, [], "fp32"),
    (BPROP, [("aten::_scaled_dot_product_cudnn_attention_backward", QUERY)], "backward pass"),
    ("flash_kernel", [("aten::_scaled_dot_product_flash_attention_backward", QUERY)], "backward pass"),
    ("softmax_warp_backward<c10::BFloat16>", [], "backward pass"),
    ("layer_norm_grad_input_kernel_vectorized<c10::BFloat16>", [], "backward pass"),
    (NORM, [("aten::native_layer_norm", {**ROWS, "Input type": ["float", "ScalarList", "float", "float", "Scalar"]})], "fp32"),
    ("gemm", [("aten::mm", {"Input Dims": [[8, 16], [16, 32]], "Input type": ["c10::BFloat16", "c10::Half"]})], "bf16 and fp16"),
    ("cudnn_convolve_implicit_gemm_f16", [], "conv"),
])
def test_no_operator_stands_in_for_another_type_or_operation(kernel, around, why):
    made = tunable(kernel, around)
    assert (made.operator, made.shape) == ("", {}) and why in made.why


def test_the_arguments_type_goes_before_the_names():
    """A float accumulator in the name of a kernel that reads bf16; what only a weight's type would say does not count."""
    types = {"Input type": ["c10::BFloat16", "ScalarList", "float", "float", "Scalar"]}
    made = tunable(NORM, [("aten::native_layer_norm", {**ROWS, **types})])
    assert (made.operator, made.shape, made.dtype) == ("layernorm", {"R": 512, "C": 1024}, "bf16")


def test_an_unknown_type_is_no_problem_to_tune():
    made = tunable("gemm", [("aten::mm", {"Input Dims": [[8, 16], [16, 32]]})])
    fields = {"operator": made.operator, **made.shape, "dtype": made.dtype}
    assert made.shape and made.why and not is_problem(fields) and is_problem({**fields, "dtype": "bf16"})
    assert not is_problem({"operator": "matmul", "dtype": "bf16"}) and not is_problem({**fields, "dtype": "fp64"})


def test_types_are_those_that_the_operators_take():
    assert {name: set(TYPES[name]) for name in TUNED_OPS} == {name: set(OPERATORS[name].dtypes) for name in TUNED_OPS}


AHEAD = """
python (1) / main: ProfilerStep#0 0-100 | cudaLaunchKernel 10-12 corr=1 | cudaLaunchKernel 20-22 corr=2 | \
ProfilerStep#1 100-200 | cudaLaunchKernel 110-112 corr=3
GPU 0 / stream 7: a 30-60 corr=1 | b 120-150 corr=2 | c 210-230 corr=3 | d 150-155
"""


@pytest.mark.parametrize("ranks", [1, 2])
def test_a_kernel_has_the_step_that_launched_it_and_the_one_in_which_it_began(get, ranks):
    """Of two ranks with steps at other times: each kernel is in its own rank's steps."""
    apart = [(f"{rank}.json", trace(AHEAD, rank=rank, base_ns=95_000 * rank)) for rank in range(ranks)]
    profile = profile_of(merge(apart) if ranks > 1 else apart[0][1])
    wanted = {"a": ("ProfilerStep#0", "ProfilerStep#0"), "b": ("ProfilerStep#0", "ProfilerStep#1"), "c": ("ProfilerStep#1", None),
              "d": (None, "ProfilerStep#1")}
    rows = get("selection", profile.pk, start=0, end=10**9, by="name,step_launched,step_ran", where="category:0")["rows"]
    assert {row["name"]: (row["step_launched"], row["step_ran"]) for row in rows} == wanted
    assert {row["count"] for row in rows} == {ranks}
    for name, (launched, ran) in wanted.items():
        told = get("slice", profile.pk, one(get, profile.pk, f"^{name}$", mode="regex")["id"])
        assert (told["step_launched"], told["step_ran"]) == (launched, ran), name
