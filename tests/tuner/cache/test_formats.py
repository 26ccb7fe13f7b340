"""Files of other projects: names and keys that those projects read, hostile files, and both ways."""

import ast
import json
import time
from datetime import UTC, datetime
from pathlib import Path

import pytest

from tuner.cache import formats
from tuner.cache.formats import FORMATS, fused_moe, guess_format, helion, t4, triton_text
from tuner.cache.formats.document import FormatError
from tuner.cache.formats.fused_moe import Name, device_name, parse_name, sglang_name, vllm_name
from tuner.tuning.measure.landscape import Landscape
from tuner.tuning.trial import Measured, Reason, Rejected, config_key

# As they stand in vLLM's and SGLang's source trees (vllm/model_executor/layers/fused_moe/configs, quantization/utils/configs).
VLLM_NAMES = [
    "E=128,N=192,device_name=NVIDIA_H200.json", "E=1,N=14336,device_name=NVIDIA_A100-SXM4-80GB,dtype=int8_w8a16.json",
    "E=128,N=384,device_name=NVIDIA_H200,dtype=fp8_w8a8,block_shape=[128,128].json",
    "E=10,N=512,device_name=Intel(R)_Arc(TM)_Pro_B60_Graphics.json",
    "E=128,N=2048,device_name=NVIDIA_RTX_PRO_6000_Blackwell_Workstation_Edition,dtype=fp8_w8a8,block_shape=[128,128].json",
    "N=2048,K=512,device_name=NVIDIA_H200,dtype=fp8_w8a8,block_shape=[128,128].json"]
SGLANG_NAMES = [
    "E=256,N=256,device_name=NVIDIA_H200,dtype=fp8_w8a8,block_shape=[128, 128].json",
    "E=128,N=768,device_name=NVIDIA_H20,dtype=fp8_w8a8,per_channel_quant=True.json",
    "E=128,N=768,device_name=NVIDIA_H800,dtype=fp8_w8a8,block_shape=[128, 128]_down.json"]
CONFIG = {"BM": 16, "BN": 64, "BK": 64, "GM": 1, "num_warps": 4, "num_stages": 5}


# ---- vLLM and SGLang ----

@pytest.mark.parametrize("name", VLLM_NAMES)
def test_vllm_names_both_ways(name):
    assert vllm_name(parse_name(name)) == name


@pytest.mark.parametrize("name", SGLANG_NAMES)
def test_sglang_names_both_ways(name):
    assert sglang_name(parse_name(name)) == name


@pytest.mark.parametrize("name", [
    "E=1,N=2,K=3,device_name=x.json", "N=2,device_name=x.json", "E=128,N=192.json", "E=-1,N=2,device_name=x.json",
    "E=1,N=2,device_name=x.json.gz", "../../etc/passwd", "E=9999999999,N=2,device_name=x.json", ""])
def test_other_names_are_none(name):
    assert parse_name(name) is None


@pytest.mark.parametrize(("gpu", "vllm", "word"), [
    ("NVIDIA H200", True, "NVIDIA_H200"), ("NVIDIA H200 NVL", True, "NVIDIA_H200"), ("NVIDIA H200 NVL", False, "NVIDIA_H200_NVL"),
    ("NVIDIA H100 80GB HBM3", True, "NVIDIA_H100_80GB_HBM3"), ("GH200/480GB", True, "GH200_480GB")])
def test_devices_are_spelled_as_each_project_does(gpu, vllm, word):
    assert device_name(gpu, vllm) == word


def test_the_text_is_as_vllm_writes_it():
    """The head of vLLM's own E=128,N=176,device_name=NVIDIA_H200.json."""
    first = {"BM": 16, "BN": 32, "BK": 64, "GM": 1, "num_warps": 4, "num_stages": 4}
    assert fused_moe.write({1: first}, "3.6.0") == """{
    "triton_version": "3.6.0",
    "1": {
        "BLOCK_SIZE_M": 16,
        "BLOCK_SIZE_N": 32,
        "BLOCK_SIZE_K": 64,
        "GROUP_SIZE_M": 1,
        "num_warps": 4,
        "num_stages": 4
    }
}
"""


def test_their_kernel_gets_no_parameter_that_it_does_not_have():
    """vLLM and SGLang pass every key of the configuration to the kernel."""
    assert set(fused_moe.to_moe_config({**CONFIG, **fused_moe.PLAIN})) == set(fused_moe.PARAMETERS)
    assert fused_moe.why_not({**CONFIG, **fused_moe.PLAIN}) == ""
    assert "KERNEL=tma" in fused_moe.why_not({**CONFIG, "KERNEL": "tma"})
    assert "SPLIT_K=4" in fused_moe.why_not({**CONFIG, "SPLIT_K": 4})


def test_a_file_says_what_it_is_for():
    name = "E=128,N=384,device_name=NVIDIA_H200,dtype=fp8_w8a8,block_shape=[128,128].json"
    document = formats.read_configs("vllm", fused_moe.write({8: CONFIG}, "3.6.0").encode(), name, dims={"K": 2048, "topk": 4})
    assert (document.operator, document.dtype, document.gpu, document.toolkit) == ("grouped_matmul", "fp8", "NVIDIA H200",
                                                                                    "triton 3.6.0")
    assert document.rows[0].config == {**CONFIG, "KERNEL": "tiles"}
    assert document.rows[0].shape == {"M": 32, "N": 768, "E": 128, "K": 2048}      # both halves of silu-and-mul, 4 experts a token
    down = SGLANG_NAMES[2]
    second = formats.read_configs("sglang", fused_moe.write({8: CONFIG}).encode(), down, dims={"K": 2048, "topk": 4})
    assert second.rows[0].shape == {"M": 32, "N": 2048, "E": 128, "K": 768}
    with pytest.raises(FormatError, match="neither the hidden size nor the experts per token"):
        formats.read_configs("vllm", fused_moe.write({8: CONFIG}).encode(), name)
    linear = formats.read_configs("vllm", fused_moe.write({8: CONFIG}).encode(), VLLM_NAMES[-1])
    assert linear.operator == "fp8_block_matmul" and linear.rows[0].shape == {"M": 8, "N": 2048, "K": 512}


def test_keys_that_are_no_batch_size_are_counted():
    data = json.dumps({"8": fused_moe.to_moe_config(CONFIG), "x": {}, "9": {"BLOCK_SIZE_M": [1]}, "10": 5}).encode()
    document = formats.read_configs("vllm", data, VLLM_NAMES[0], dims={"K": 2048, "topk": 8})
    assert len(document.rows) == 1 and sum(document.refused.values()) == 3


# ---- triton.Config ----

def test_what_is_written_is_python_with_the_same_values():
    configs = [CONFIG, {**CONFIG, "num_ctas": 2, "maxnreg": 128, "KERNEL": "tma", "SWAP": True}]
    text = triton_text.write(configs)
    calls = ast.parse(text, mode="eval").body.elts
    assert [ast.unparse(call.func) for call in calls] == ["triton.Config"] * 2
    assert {k.arg for k in calls[1].keywords} == {"num_warps", "num_stages", "num_ctas", "maxnreg"}
    assert [dict(row.config) for row in triton_text.read(text.encode(), "x.py").rows] == configs


def test_a_decorator_as_it_stands_in_a_file():
    text = b"""
@triton.autotune(
    configs=[
        triton.Config({'BLOCK_SIZE_M': 128, "BLOCK_SIZE_N": 256, 'FLAT': False,  # a comment with Config(
                       }, num_stages=3,
                      num_warps=8, pre_hook=matmul_tma_set_block_size_hook),
        Config(kwargs={"BLOCK": 1_024}, num_warps=4),
        triton.Config({'BM': BM}, num_warps=w) for BM in [64]
    ], key=['M'])
"""
    document = formats.read_configs("triton", text, "kernel.py")
    assert [dict(row.config) for row in document.rows] == [
        {"BLOCK_SIZE_M": 128, "BLOCK_SIZE_N": 256, "FLAT": False, "num_stages": 3, "num_warps": 8}, {"BLOCK": 1024, "num_warps": 4}]
    assert document.refused["a name instead of a value: BM"] == 1


@pytest.mark.parametrize("text", [
    "triton.Config(__import__('os').system('true'))", "Config({'a': [1 for _ in x]})", "Config({'a': 1" * 1000,
    "Config(" + "[" * 50000, "Config({'a': 'x" + "\\" * 9, "Config({1: 2})", "Config({'a': 1} | {'b': 2})", "Config()",
    "Config({'a': 1e999})", "Config" * 100000, "Config({" + "#" * 30000, "Config({'a': " + "9" * 5000 + "})",
    "Config({'a': {'b': 1}})", "Config({'a': 1}, colour=3)"])
def test_hostile_text_is_refused_soon(text):
    started = time.perf_counter()
    with pytest.raises(FormatError):
        formats.read_configs("triton", text.encode(), "x.py")
    assert time.perf_counter() - started < 10        # milliseconds when idle; what is not refused soon takes minutes


def test_the_autotune_cache_that_triton_writes():
    """As check_disk_cache writes it: [config.__dict__, [median, 20 %, 80 %] in ms]; what did not run has infinite times."""
    def entry(bm, times):
        return [{"kwargs": {"BM": bm}, "num_warps": 4, "num_ctas": 1, "num_stages": 3, "maxnreg": None, "pre_hook": None,
                 "ir_override": None}, times]
    data = json.dumps({"key": [4096, "torch.float16"], "configs_timings": [
        entry(64, [0.2, 0.19, 0.21]), entry(128, [0.1, 0.09, 0.11]), entry(256, [1e308 * 10] * 3)]})
    document = formats.read_configs("triton-cache", data.encode(), "matmul_kernel.autotune.json")
    assert [(row.config["BM"], row.median_ms) for row in document.rows] == [(128, 0.1), (64, 0.2)]
    assert document.operator == "matmul_kernel" and sum(document.refused.values()) == 1


# ---- Helion ----

def test_a_saved_helion_config_both_ways():
    text = helion.write("matmul", {**CONFIG, "KERNEL": "tma"})
    assert json.loads(text) == {"block_sizes": [16, 64, 64], "l2_groupings": [1], "num_warps": 4, "num_stages": 5, "KERNEL": "tma"}
    (row,) = formats.read_configs("helion", text.encode(), "best.json", "matmul").rows
    assert row.config == {**CONFIG, "KERNEL": "tma"}
    (other,) = formats.read_configs("helion", text.encode(), "best.json", "unknown").rows
    assert other.config["block_sizes"] == [16, 64, 64]


def test_an_entry_of_helions_cache():
    inside = json.dumps({"block_sizes": [1, 128, 64], "num_warps": 4, "num_stages": 2, "pid_type": "flat",
                         "range_flattens": [None, True]})
    data = json.dumps({"config": inside, "flat_config": "[]", "key": {"type": "LooseAutotuneCacheKey", "fields": {
        "hardware": "NVIDIA H200", "runtime_name": "13.0", "specialization_key": "(…)", "kernel_source_hash": "ab12"}}})
    document = formats.read_configs("helion", data.encode(), "0f.best_config", "attention")
    assert (document.gpu, document.toolkit) == ("NVIDIA H200", "cuda 13.0")
    assert document.rows[0].config == {"BM": 128, "BN": 64, "num_warps": 4, "num_stages": 2, "pid_type": "flat",
                                       "range_flattens": [None, True]}


# ---- trials: T4 and Kernel Tuner ----

AT = datetime(2026, 11, 21, 12, tzinfo=UTC)
RECORDS = [
    ({"BM": 64, "num_warps": 4}, Measured(2.0, 1.9, 2.2, 3, {"samples_ms": [1.9, 2.0, 2.2], "compile_s": 1.5}), AT),
    ({"BM": 128, "num_warps": 4}, Measured(1.0, 1.0, 1.0, 1), AT),
    ({"BM": 256, "num_warps": 4}, Rejected(Reason.RESOURCES, "out of resource"), AT),
    ({"BM": 256, "num_warps": 8}, Rejected(Reason.WRONG, "differs"), AT)]


@pytest.mark.parametrize("kind", ["t4", "kernel-tuner"])
def test_trials_come_back_as_they_were(tmp_path, kind):
    tuner = t4.write_kernel_tuner(RECORDS, kernel="matmul", gpu="NVIDIA H200", shape={"M": 1})
    text = t4.write_t4(RECORDS) if kind == "t4" else tuner
    path = tmp_path / "space.json"
    path.write_text(text)
    assert guess_format("space.json", text.encode()) == kind
    (shape,) = Landscape.load(path).shapes
    for config, outcome, _ in RECORDS:
        read = shape.outcomes[config_key(config)][1]
        if isinstance(outcome, Measured):
            assert (read.median_ms, read.n) == (outcome.median_ms, outcome.n)
            assert read.facts.get("compile_s") == outcome.facts.get("compile_s")
        else:
            assert isinstance(read, Rejected)


def test_t4_has_what_its_schema_requires():
    document = json.loads(t4.write_t4(RECORDS, {"device": "NVIDIA H200", "recorded": ""}))
    assert document["schema_version"] == "1.0.0"
    assert document["metadata"] == {"timeunit": "milliseconds", "device": "NVIDIA H200"}
    for result in document["results"]:
        assert {"configuration", "times", "invalidity", "correctness"} <= set(result)
        assert result["invalidity"] in {"timeout", "compile", "runtime", "correctness", "constraints", "correct"}
        assert isinstance(result["times"]["runtimes"], list)
    assert [r["invalidity"] for r in document["results"]] == ["correct", "correct", "compile", "correctness"]


def test_a_kernel_tuner_cache_has_what_its_schema_requires():
    document = json.loads(t4.write_kernel_tuner(RECORDS, kernel="matmul", gpu="NVIDIA H200", shape={"M": 1}))
    assert {"schema_version", "device_name", "kernel_name", "problem_size", "tune_params_keys", "tune_params", "objective",
            "cache"} == set(document)
    assert document["cache"]["64,4"]["time"] == 2.0 and document["cache"]["256,4"]["time"] == "CompilationFailedConfig"
    for row in document["cache"].values():
        assert {"time", "compile_time", "verification_time", "benchmark_time", "strategy_time", "framework_time",
                "timestamp"} <= set(row)


# ---- TVM ----

def autotvm(tile, seconds, error=0, task="conv2d_nchw.cuda", size=14, version=0.2):
    """A line as tvm.autotvm.record.encode writes it, in either version of its protocol."""
    arguments = [["TENSOR", [1, 192, size, size], "float32"], ["TENSOR", [64, 192, 1, 1], "float32"], [1, 1], [0, 0, 0, 0], [1, 1],
                 "float32"]
    entity = [["tile_f", "sp", [-1, 1, tile, 1]], ["reorder_0", "re", [0, 1]], ["auto_unroll_max_step", "ot", 512]]
    if version < 0.2:
        return json.dumps({"i": ["cuda", task, arguments, {}, ["conv2d"], {"i": 0, "t": "direct", "c": "", "e": entity}],
                           "r": [seconds, error, 3.36, 1571384808.1], "v": 0.1})
    return json.dumps({"input": ["cuda -keys=cuda,gpu -arch=sm_90", task, arguments, {}],
                       "config": {"index": 7, "code_hash": None, "entity": entity},
                       "result": [seconds, error, 2.3, 1600000000.0], "version": version, "tvm_version": "0.8.0"})


@pytest.mark.parametrize("version", [0.1, 0.2])
def test_a_log_of_autotvm(version):
    lines = [autotvm(2, [3e-5, 1e-5, 2e-5], version=version), autotvm(4, [1e-5], version=version),
             autotvm(8, [1e9], version=version), autotvm(16, [1e-5], error=4, version=version), "{", "[]"]
    data = "\n".join(lines).encode()
    assert guess_format("conv.log", data) == "tvm"
    document = formats.read_configs("tvm", data, "conv.log")
    assert (document.operator, document.dtype, document.gpu) == ("conv2d_nchw.cuda", "fp32", "")
    assert [(row.config["tile_f"], row.median_ms) for row in document.rows] == [
        ([-1, 1, 2, 1], pytest.approx(0.02)), ([-1, 1, 4, 1], pytest.approx(0.01))]
    shape = document.rows[0].shape
    assert (shape["t0_1"], shape["t0_2"], shape["t1_0"], shape["a2_0"], len(shape)) == (192, 14, 64, 1, 16)
    assert document.refused == {"no finite time: it did not run": 1, "it did not run: TVM's error 4": 1,
                                "a line that is no JSON": 1, "a line that is none of TVM's": 1}


def test_a_log_of_several_tasks_is_read_for_one():
    data = "\n".join([autotvm(2, [1e-5]), autotvm(2, [5e-6], task="dense_small_batch.gpu")]).encode()
    with pytest.raises(FormatError, match=r"2 tasks: conv2d_nchw.cuda, dense_small_batch.gpu"):
        formats.read_configs("tvm", data, "net.log")
    document = formats.read_configs("tvm", data, "net.log", "dense_small_batch.gpu")
    assert document.operator == "dense_small_batch.gpu" and len(document.rows) == 1
    assert document.refused == {"of another task: conv2d_nchw.cuda": 1}


def test_a_log_of_ansor():
    """The workload key is JSON in JSON: the function's hash and its arguments; a schedule is its steps."""
    key = json.dumps(["1097323f3970e5c881ad3a0028ca79cb", [1024, 512], [512, 256], 3])
    steps = [["CHW", 2, "local"], ["SP", 2, 0, 1024, [1, 32, 2], 1], ["RE", 2, [0, 2, 1]], ["PR", 2, 0, "auto_unroll_max_step$512"]]
    line = json.dumps({"i": [[key, "cuda -keys=cuda,gpu", [-1, 16, 64], "", 1, []], [[], steps]],
                       "r": [[2e-5], 0, 1.2, 1600000000], "v": "v0.6"})
    assert guess_format("tune.json", line.encode()) == "tvm"
    (row,) = formats.read_configs("tvm", line.encode(), "tune.json").rows
    assert row.shape == {"a0_0": 1024, "a0_1": 512, "a1_0": 512, "a1_1": 256, "a2": 3} and row.median_ms == pytest.approx(0.02)
    assert row.config["step01_SP"] == [2, 0, 1024, [1, 32, 2], 1] and len(row.config) == 4


def test_a_database_of_metaschedule():
    def line(tile, seconds, workload=0):
        trace = [[["GetBlock", [], ["C", "main"], ["b0"]], ["GetLoops", ["b0"], [], ["l1", "l2"]],
                  ["SamplePerfectTile", ["l1"], [2, 64], ["v3", "v4"]], ["SampleCategorical", [], [[0, 16], [0.5, 0.5]], ["v5"]]],
                 [[2, [8, tile]], [3, 1]]]
        target = {"kind": "cuda", "tag": "", "keys": ["cuda", "gpu"], "arch": "sm_90"}
        arguments = [["TENSOR", "float16", [1024, 512]], ["TENSOR", "float16", [512, 64]]]
        return json.dumps([workload, [trace, seconds, target, arguments]])
    data = "\n".join([line(64, [4e-5]), line(128, [3e-5, 5e-5, 2e-5])]).encode()
    assert guess_format("database_tuning_record.json", data) == "tvm"
    document = formats.read_configs("tvm", data, "database_tuning_record.json")
    assert [row.config for row in document.rows] == [{"SamplePerfectTile_2": [8, 64], "SampleCategorical_3": 1},
                                                     {"SamplePerfectTile_2": [8, 128], "SampleCategorical_3": 1}]
    assert (document.dtype, document.rows[1].median_ms, document.rows[0].shape) == (
        "fp16", pytest.approx(0.03), {"t0_0": 1024, "t0_1": 512, "t1_0": 512, "t1_1": 64})
    with pytest.raises(FormatError, match="workload 0, workload 1"):
        formats.read_configs("tvm", data + b"\n" + line(1, [1e-5], 1).encode(), "database_tuning_record.json")


@pytest.mark.parametrize("line", [
    '{"i": [["5", ""], [[], []]], "r": [[1], 0], "v": ""}', '{"i": [["\\"ab\\"", ""], [[], [["SP"]]]], "r": [[1], 0], "v": ""}',
    '{"input": ["", "a", 5, {}], "config": {"entity": []}, "result": [[1], 0]}', '[0, [[[], [[9, 1]]], [1], {}, []]]',
    '{"input": ["", "a", [], {}], "config": {"entity": [[[], "sp", 1]]}, "result": [[1], 0]}', '[true, [[[], []], [1], {}, []]]',
    '{"input": ["", "a", [{}], {}], "config": {"entity": [["b", "sp", 1]]}, "result": [[NaN, "x"], 0]}',
    '{"input": ["", "a", [[["TENSOR"]]], {}], "config": {"entity": [["b", "sp", 1]]}, "result": [[], 0]}', '[0, [[[], 1], 1]]',
    '{"input": ["", "\\u0000", [], {}], "config": {"entity": [["b", "sp", 1]]}, "result": [[1], 0]}'])
def test_a_line_that_only_looks_like_tvms_is_counted(line):
    document = formats.read_configs("tvm", f"{autotvm(2, [1e-5])}\n{line}".encode(), "a.log", "conv2d_nchw.cuda")
    assert len(document.rows) == 1 and sum(document.refused.values()) == 1


# ---- any format ----

@pytest.mark.parametrize("format", [name for name, one in FORMATS.items() if not one.trials])
@pytest.mark.parametrize("data", [
    b"", b"\xff\xfe", b"[]", b"{}", b"null", b"[" * 100000, b'{"1": ' * 5000, b'{"a": NaN}', b"x" * 1000, b"9" * 100000,
    b'{"config": "{}", "key": {}}', b'{"config": "[[[[[[[[[[[[[[", "key": {"fields": 3}}'], ids=range(12))
def test_a_file_that_is_none_says_where_what_and_what_to_do(format, data):
    name = VLLM_NAMES[0] if format in ("vllm", "sglang") else "some.file"
    with pytest.raises(FormatError) as refused:
        formats.read_configs(format, data, name, dims={"K": 2048, "topk": 8})
    assert refused.value.where and refused.value.what and refused.value.hint


def test_too_large_a_file(monkeypatch):
    monkeypatch.setattr("tuner.cache.formats.document.MAX_BYTES", 10)
    with pytest.raises(FormatError, match="MiB"):
        formats.read_configs("triton", b"x" * 11, "x.py")


@pytest.mark.parametrize(("name", "head", "format"), [
    (VLLM_NAMES[0], b"{}", "vllm"), ("configs/triton_3_4_0/" + VLLM_NAMES[0], b"{}", "sglang"), (SGLANG_NAMES[2], b"{}", "sglang"),
    ("a.best_config", b"{}", "helion"), ("k.py", b"x = triton.Config({})", "triton"), ("b.json", b'{"block_sizes": [1]}', "helion"),
    ("c.autotune.json", b'{"key": [1], "configs_timings": []}', "triton-cache"), ("notes.txt", b"hello", None)])
def test_a_format_is_guessed_by_name_then_content(name, head, format):
    assert guess_format(name, head) == format


def test_a_name_of_a_moe_layer():
    assert vllm_name(Name(768, "NVIDIA_H200", 128)) == "E=128,N=768,device_name=NVIDIA_H200.json"
    assert Path(sglang_name(Name(768, "NVIDIA_H200", 128, down=True))).stem.endswith("_down")
