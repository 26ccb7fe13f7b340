"""Options of Nsight Systems: the command that they make, and that the installed version knows every word of it."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from profiles.base.refused import Refused
from profiles.capture.command import build_command, shell_text
from profiles.capture.tools.nsys import TOOL, NsysOptions, exports, installed_nsys, read_help
from profiles.capture.tools.tool import Paths

HELP_2023 = """usage: nsys profile [<args>] [application] [<application args>]

    -c, --capture-range=

       Possible values are none, cudaProfilerApi, nvtx, hotkey.
       When '-c cudaProfilerApi' is used, profiling will start only when

    --gpu-metrics-device=

       Collect GPU Metrics from specified devices.

    (Experimental) --ib-switch-metrics-device=<IB switch GUID>[,<IB switch GUID>...]

    -t, --trace=

       Possible values are 'cuda', 'nvtx', 'cublas', 'osrt', 'vulkan-annotations', 'python-gil' or 'none'.
       Select the API(s) to trace. Multiple APIs can be selected, separated by commas only

    --trace-fork-before-exec=
"""
EVERYTHING = {
    "trace": "cuda,nvtx,osrt,python-gil", "delay": 2, "duration": 30, "capture_range": "nvtx", "nvtx_capture": "step@train",
    "capture_range_end": "repeat:2", "sample": "process-tree", "backtrace": "fp", "python_sampling": True,
    "python_sampling_frequency": 500, "gpu_metrics_devices": "0,1", "cuda_graph_trace": "node", "cuda_memory_usage": True}


def test_the_command():
    options = NsysOptions.parse(EVERYTHING)
    paths = Paths("/opt/nsys", folder="/tmp/x")
    argv = build_command(options, ["./a.out", "--lr", "0.1"], paths)
    assert shell_text(argv) == (
        "/opt/nsys profile --output /tmp/x/report --force-overwrite=true --trace=cuda,nvtx,osrt,python-gil "
        "--sample=process-tree --cpuctxsw=process-tree --show-output=true --backtrace=fp --delay=2 --duration=30 "
        "--capture-range=nvtx --capture-range-end=repeat:2 --nvtx-capture=step@train "
        "--env-var=NSYS_NVTX_PROFILER_REGISTER_ONLY=0 --cuda-graph-trace=node --cuda-memory-usage=true "
        "--gpu-metrics-devices=0,1 --gpu-metrics-frequency=10000 --python-sampling=true --python-sampling-frequency=500 "
        "./a.out --lr 0.1")
    assert exports(options, ["report.1.nsys-rep", "report.2.nsys-rep", "other"], paths)[2:] == [
        ["/opt/nsys", "export", "--type=sqlite", "--force-overwrite=true", "--quiet=true",
         "--output=/tmp/x/raw-range-2-report.sqlite", "/tmp/x/report.2.nsys-rep"],
        ["python", "./workers/capture/nsys_scrub.py", "/tmp/x/raw-range-2-report.sqlite", "/tmp/x/range-2-report.sqlite"]]


def test_what_an_older_version_calls_otherwise_and_what_it_lacks():
    said = {"version": "2023.4.4", **read_help(HELP_2023)}
    assert said["traces"] == "cuda nvtx cublas osrt vulkan-annotations python-gil"
    assert said["switches"].split()[:3] == ["--capture-range", "--gpu-metrics-device", "--ib-switch-metrics-device"]
    more = "--output --force-overwrite --sample --cpuctxsw --show-output --cuda-graph-trace --cuda-memory-usage"
    every = {**said, "switches": f"{said['switches']} {more} --gpu-metrics-frequency"}
    argv = build_command(NsysOptions(gpu_metrics_devices="all"), ["./a.out"], Paths(installed=every))
    assert "--gpu-metrics-device=all" in argv
    with pytest.raises(Refused, match=r"nsys 2023\.4\.4 traces no nccl; it knows cuda, nvtx") as refused:
        build_command(NsysOptions(trace=("cuda", "nccl")), ["./a.out"], Paths(installed=every))
    assert list(refused.value.fields) == ["trace"]
    with pytest.raises(Refused, match="has no --python-sampling") as refused:
        build_command(NsysOptions(python_sampling=True), ["./a.out"], Paths(installed=every))
    assert list(refused.value.fields) == ["python_sampling"]


def test_a_help_that_says_nothing_refuses_nothing():
    assert read_help("no such thing") == {}
    assert build_command(NsysOptions(), ["./a.out"])


@pytest.mark.parametrize(("given_options", "field"), [
    ({"capture_range": "nvtx"}, "nvtx_capture"), ({"trace": "nvtx", "capture_range": "cudaProfilerApi"}, "trace"),
    ({"trace": "osrt", "capture_range": "nvtx", "nvtx_capture": "step"}, "trace"), ({"trace": ""}, "trace"),
    ({"trtllm_steps": "100-150"}, "capture_range"), ({"trtllm_steps": "1; rm -rf"}, "trtllm_steps"),
    ({"trace": "cuda,--output=/etc/x"}, "trace"), ({"gpu_metrics_devices": "all --x"}, "gpu_metrics_devices"),
    ({"nvtx_capture": "-x"}, "nvtx_capture"), ({"capture_range_end": "repeat:0"}, "capture_range_end"),
    ({"capture_range_end": ""}, "capture_range_end"), ({"delay": -1}, "delay"),
    ({"gpu_metrics_frequency": 5}, "gpu_metrics_frequency"),
    ({"nvtx_capture": "a\nb"}, "nvtx_capture"), ({"sample": ["none"]}, "sample"), ({"nvtx_capture": 7}, "nvtx_capture")])
def test_what_is_refused(given_options, field):
    with pytest.raises(Refused) as refused:
        NsysOptions.parse(given_options)
    assert field in refused.value.fields


def test_tensorrt_llm_reads_its_variables():
    options = NsysOptions.parse({"trtllm_steps": "100-150", "capture_range": "cudaProfilerApi", "trtllm_torch_trace": True,
                                 "trtllm_nvtx": True})
    assert TOOL.environ(options, Paths(folder="/tmp/x")) == {
        "TMPDIR": "/tmp/x", "TLLM_PROFILE_START_STOP": "100-150", "TLLM_TORCH_PROFILE_TRACE": "/tmp/x/trtllm-trace.json",
        "TLLM_NVTX_DEBUG": "1"}
    assert TOOL.environ(NsysOptions(), Paths()) == {}


@pytest.mark.parametrize(("given_options", "needs"), [
    ({}, True), ({"trace": "nvtx,osrt,python-gil"}, False), ({"trace": "nvtx", "gpu_metrics_devices": "all"}, True),
    ({"trace": "", "sample": "process-tree"}, False), ({"trace": "something-new"}, True)])
def test_what_needs_a_gpu(given_options, needs):
    assert NsysOptions.parse(given_options).needs_gpu() is needs


TYPED = st.text("-=a_.b1 ,;:/\n@*%", max_size=20)


@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(st.dictionaries(st.sampled_from(list(NsysOptions.READ)), TYPED | st.lists(TYPED, max_size=3)))
def test_whatever_is_typed_no_text_becomes_an_option(given_options):
    try:
        options = NsysOptions.parse(given_options)
    except Refused:
        return
    argv = build_command(options, ["./a.out"])
    words = [word.partition("=")[0] for word in argv]
    assert len(words) == len(set(words)) and words[-1] == "./a.out"
    assert set(words[4:-1]) <= {f"--{name.replace('_', '-')}" for name in (*NsysOptions.READ, "force_overwrite", "env_var")}


@pytest.mark.skipif("missing" in installed_nsys(), reason="nsys is not installed here")
def test_the_installed_version_knows_the_whole_command():
    """Its --help names every switch, as the tool found it; what it traces is refused or known."""
    said = installed_nsys()
    assert {"--output", "--trace", "--sample", "--delay", "--capture-range-end"} <= set(said["switches"].split())
    assert {"cuda", "nvtx", "osrt"} <= set(said["traces"].split())
    options = NsysOptions.parse({**EVERYTHING, "trace": [each for each in said["traces"].split() if "annotations" not in each]})
    assert build_command(options, ["./a.out"], Paths(said["path"], installed=said))
