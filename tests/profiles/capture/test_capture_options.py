"""Options of captures and the argument vectors made of them: no user text can become an option of the tool."""

from dataclasses import fields

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from profiles.base.refused import Refused
from profiles.capture.command import build_command, shell_text, target_problems
from profiles.capture.forms import FORMS
from profiles.capture.selectors import kernel_regex
from profiles.capture.tools import CAPTURE_TOOLS
from profiles.capture.tools.ncu import NcuOptions, section_folders
from profiles.capture.tools.tool import Paths
from profiles.capture.tools.torch_profiler import TorchOptions
from profiles.models import Capture

TARGET = ["{python}", "-m", "train", "--lr", "0.1"]
# Options of ncu that take a value, as the builder writes them.
VALUED = {
    "--export",
    "--target-processes",
    "--replay-mode",
    "--cache-control",
    "--clock-control",
    "--launch-skip",
    "--launch-count",
    "--kernel-name",
    "--set",
    "--section",
    "--metrics",
    "--nvtx-include",
    "--import-source",
    "--kernel-id",
    "--section-folder",
    "--nvtx-exclude",
    "--range-filter",
    "--graph-profiling",
    "--pm-sampling-interval",
    "--warp-sampling-interval",
}


def errors(cls, **given):
    with pytest.raises(Refused) as caught:
        cls.parse(given)
    return caught.value.fields


def test_a_form_and_an_api_say_the_same():
    typed = NcuOptions.parse(
        {
            "kernel": "mat.*",
            "launch_count": 3,
            "metrics": ["dram__bytes.sum", "sm__cycles_active.avg"],
            "sections": ["Occupancy"],
            "import_source": False,
        }
    )
    form = NcuOptions.parse(
        {
            "kernel": "mat.*",
            "launch_count": " 3 ",
            "sections": "Occupancy",
            "import_source": "",
            "metrics": "dram__bytes.sum\nsm__cycles_active.avg, dram__bytes.sum",
        }
    )
    assert typed == form
    assert NcuOptions.parse(typed.as_json()) == typed


def test_defaults_leave_the_clocks_alone():
    options = NcuOptions.parse({})
    assert options == NcuOptions() and options.clock_control == "none"


@pytest.mark.parametrize(
    ("given", "field", "words"),
    [
        ({"kernel": "("}, "kernel", "no regular expression"),
        ({"kernel": "a" * 301}, "kernel", "at most 300"),
        ({"kernel": "a\tb"}, "kernel", "on one line"),
        ({"kernel": ["a", "("]}, "kernel", "no regular expression"),
        ({"kernel": ["a"] * 65}, "kernel", "at most 64"),
        ({"set": "everything"}, "set", "one of full, detailed"),
        ({"sections": "--help"}, "sections", "SpeedOfLight"),
        ({"metrics": "dram__bytes.sum --force"}, "metrics", "'--force' is no name such as dram__bytes.sum"),
        ({"metrics": ["a__b"] + [f"a__b{i}" for i in range(64)]}, "metrics", "at most 64"),
        ({"launch_count": 0}, "launch_count", "a whole number from 1 to 10,000"),
        ({"launch_count": True}, "launch_count", "a whole number"),
        ({"launch_skip": "-1"}, "launch_skip", "a whole number from 0"),
        ({"replay_mode": "range; rm"}, "replay_mode", "one of kernel, application"),
        ({"metrics": "regex:("}, "metrics", "no regular expression"),
        ({"metrics": "-*"}, "metrics", "no name"),
        ({"metrics": "sm__*;ls"}, "metrics", "no name"),
        ({"nvtx_include": "-x"}, "nvtx_include", "no dash"),
        ({"nvtx_exclude": "--help"}, "nvtx_exclude", "no dash"),
        ({"range_filter": "2"}, "range_filter", "such as :2:"),
        ({"range_filter": "yes::"}, "range_filter", "the number of a range"),
        ({"kernel_id": "-h"}, "kernel_id", "such as ::matmul:2"),
        ({"kernel_id": "::--help:2"}, "kernel_id", "such as ::matmul:2"),
        ({"target_processes": "some"}, "target_processes", "one of all, application-only"),
        ({"graph_profiling": "edges"}, "graph_profiling", "one of node, graph"),
        ({"section_folder": "/etc"}, "section_folder", "a name, not a path"),
        ({"section_folder": "../x"}, "section_folder", "a name, not a path"),
        ({"pm_sampling_interval": -1}, "pm_sampling_interval", "a whole number from 0"),
        ({"warp_sampling_interval": "32"}, "warp_sampling_interval", "from 0 to 31"),
        ({"set": "none"}, "set", "at least one section or metric"),
        ({"time_limit_s": 10**9}, "time_limit_s", "from 5 to 21,600"),
        ({"import_source": "maybe"}, "import_source", "true or false"),
        ({"shell": "sh"}, "shell", "unknown; there are kernel, set"),
    ],
)
def test_invalid_fields_say_what_would_be_valid(given, field, words):
    assert words in errors(NcuOptions, **given)[field]


def test_every_error_is_told_at_once():
    assert set(errors(TorchOptions, active=0, wait="x", steps="some")) == {"active", "wait", "steps"}


def test_the_command_of_a_counter_replay():
    options = NcuOptions.parse(
        {
            "kernel": "matmul|gemm",
            "set": "basic",
            "sections": ["Occupancy"],
            "launch_skip": 2,
            "metrics": "dram__bytes.sum,sm__cycles_active.avg",
            "nvtx_include": "step/",
        }
    )
    argv = build_command(options, TARGET, Paths("/opt/ncu", python="/usr/bin/python3", folder="/tmp/x"))
    assert shell_text(argv) == (
        "/opt/ncu --export /tmp/x/report.ncu-rep --force-overwrite --target-processes all --replay-mode kernel "
        "--cache-control all --clock-control none --launch-skip 2 --launch-count 10 --kernel-name 'regex:matmul|gemm' "
        "--set basic --section Occupancy --metrics dram__bytes.sum,sm__cycles_active.avg --nvtx --nvtx-include step/ "
        "--import-source yes /usr/bin/python3 -m train --lr 0.1"
    )


def test_the_command_of_two_kernels_and_every_filter(tmp_path, monkeypatch):
    monkeypatch.setenv("RIDGEPOINT_NCU_SECTIONS", f"team={tmp_path}:gone=/no/such/folder:bad name={tmp_path}:x=relative")
    options = NcuOptions.parse(
        {
            "kernel": "softmax\n\n matmul|gemm \nsoftmax",
            "set": "none",
            "metrics": "sm__inst_executed.sum",
            "section_folder": "team",
            "nvtx_include": "step/",
            "nvtx_exclude": "warmup/",
            "range_filter": "yes:1:[2-4]",
            "kernel_id": ":7:regex:^gemm:3",
            "target_processes": "application-only",
            "graph_profiling": "graph",
            "pm_sampling_interval": 2000,
            "warp_sampling_interval": 5,
            "import_source": False,
        }
    )
    assert options.kernel == "softmax|matmul|gemm" and NcuOptions.parse(options.as_json()) == options
    argv = build_command(options, TARGET, Paths("/opt/ncu", python="python3", folder="/tmp/x"))
    assert shell_text(argv[argv.index("--target-processes"):]) == (
        "--target-processes application-only --replay-mode kernel --cache-control all --clock-control none --launch-skip 0 "
        "--launch-count 10 --kernel-name 'regex:softmax|matmul|gemm' --kernel-id ':7:regex:^gemm:3' --section-folder "
        f"{tmp_path} --metrics sm__inst_executed.sum --nvtx --nvtx-include step/ --nvtx-exclude warmup/ --range-filter "
        "'yes:1:[2-4]' --graph-profiling graph --pm-sampling-interval 2000 --warp-sampling-interval 5 python3 -m train --lr 0.1"
    )
    assert section_folders() == {"team": str(tmp_path)}
    with pytest.raises(Refused, match="no section folder other: team"):
        CAPTURE_TOOLS["ncu"].resolve(NcuOptions(section_folder="other"), Paths("/opt/ncu"))


def test_the_command_of_a_trace():
    options = TorchOptions.parse({"with_stack": "on", "active": "2"})
    argv = build_command(options, TARGET, Paths(python="/usr/bin/python3"))
    assert argv == [
        "/usr/bin/python3",
        "workers/capture/torch_capture.py",
        "--out",
        "./trace.json.gz",
        "--steps",
        "auto",
        "--wait",
        "1",
        "--warmup",
        "1",
        "--active",
        "2",
        "--record-shapes",
        "--with-stack",
        "--end-after",
        "--",
        "-m",
        "train",
        "--lr",
        "0.1",
    ]


def test_the_command_of_cycles_and_a_snapshot():
    options = TorchOptions.parse({"skip_first": 10, "repeat": 2, "memory": "oom", "execution_trace": True, "all_threads": "on"})
    argv = build_command(options, TARGET, Paths(python="/usr/bin/python3"))
    assert shell_text(argv[argv.index("--active"):]) == (
        "--active 3 --skip-first 10 --repeat 2 --memory oom --memory-entries 100000 --record-shapes --all-threads "
        "--execution-trace --end-after -- -m train --lr 0.1")
    assert options.steps_needed() == 20
    assert "choose when" in errors(TorchOptions, steps="none")["memory"]
    assert set(errors(TorchOptions, repeat=0, skip_first=-1, memory="always", memory_entries=1)) == {
        "repeat", "skip_first", "memory", "memory_entries"}


@pytest.mark.parametrize(
    "target", [["./a.out"], ["{python}", "-c", "1"], ["{python}"], ["{python}", "-m"], ["bash", "x.py"]]
)
def test_a_trace_needs_a_python_program(target):
    with pytest.raises(Refused):
        build_command(TorchOptions(), target)


@pytest.mark.parametrize("target", [[], [""], ["--help"], ["a", "b\0c"], ["x"] * 201, ["x", "y" * 1001]])
def test_what_cannot_be_a_target(target):
    assert target_problems(target)
    with pytest.raises(Refused):
        build_command(NcuOptions(), target)


OWN_TARGETS = {"cutlass": ["cutlass_profiler"]}             # of tools that run one program alone


@pytest.mark.parametrize("tool", CAPTURE_TOOLS.values(), ids=list(CAPTURE_TOOLS))
def test_every_tool_of_the_table_is_whole(tool):
    """Its form asks for each option once, its defaults are valid, its command writes its result."""
    assert CAPTURE_TOOLS[tool.options.TOOL] is tool
    assert len(tool.name) <= Capture._meta.get_field("tool").max_length
    assert sorted(field.name for field in tool.fields) == sorted(tool.options.READ)
    assert sorted(tool.options.READ) == sorted(field.name for field in fields(tool.options))
    assert tool.options.parse(tool.options().as_json()) == tool.options()
    paths = Paths(folder="/tmp/x")
    after = tool.after(tool.options(), [each.plain for each in tool.results], paths)
    target = OWN_TARGETS.get(tool.name, TARGET)
    words = [*build_command(tool.options(), target, paths), *(word for argv in after for word in argv)]
    assert any(f"/tmp/x/{tool.result}" in (word, word.partition("=")[2]) for word in words)
    assert tool.slowdown(tool.options()) is not None and tool.gpus(tool.options()) == 1
    drawn = FORMS[tool.name]()
    assert [bound for group in drawn.groups() for bound in group["fields"]] == [drawn[field.name] for field in tool.fields]
    assert "version" in tool.installed() or tool.installed()["missing"]


TYPED = st.text("-=a_.b1 ,;:/\n", max_size=20)


@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(st.dictionaries(st.sampled_from(list(NcuOptions.READ)), TYPED | st.lists(TYPED, max_size=3)))
def test_whatever_is_typed_no_text_becomes_an_option(given_options):
    try:
        options = NcuOptions.parse(given_options)
    except Refused:
        return
    argv = build_command(options, ["./a.out"])
    at = 1
    while at < len(argv) - 1:
        assert argv[at] in VALUED | {"--force-overwrite", "--nvtx"}
        if argv[at] in VALUED:
            assert not argv[at + 1].startswith("-")
            at += 1
        at += 1
    assert argv[at] == "./a.out"


@pytest.mark.parametrize(
    ("name", "expression"),
    [
        ("matmul", "matmul"),
        ("mat.*mul", "mat.*mul"),
        (
            "void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<int>>(int, T1)",
            "vectorized_elementwise_kernel",
        ),
        ("void (anonymous namespace)::softmax_warp<float>(float*)", ""),
        ("triton_poi_fused_add_0", "triton_poi_fused_add_0"),
    ],
)
def test_a_kernel_of_a_profile_is_found_again(name, expression):
    assert kernel_regex(name) == expression or not expression


@pytest.mark.parametrize(
    ("pasted", "expression"),
    [
        ("regex:foo|bar", "foo|bar"),
        ("regex:regex:foo|bar", "foo|bar"),
        ("regex:'foo|bar'", "foo|bar"),
        ('"regex:foo|bar"', "foo|bar"),
        ("-k regex:foo|bar", "foo|bar"),
        ("--kernel-name regex:^gemm", "^gemm"),
        ('--kernel-name="regex:a.*b"', "a.*b"),
        ("--kernel-name ampere_sgemm", "^ampere_sgemm$"),       # without regex: ncu takes it for the whole name
        ("regex:foo\n-k 'regex:bar|baz'", "foo|bar|baz"),
        ("mat.*|gemm", "mat.*|gemm"),
        ("-k regex:", ""),
        ("'odd'", "'odd'"),
    ],
)
def test_a_filter_is_taken_as_people_copy_it_from_their_ncu_command(pasted, expression):
    options = NcuOptions.parse({"kernel": pasted})
    assert options.kernel == expression and NcuOptions.parse(options.as_json()) == options      # a stored capture reads the same
    argv = build_command(options, TARGET)
    assert (f"regex:{expression}" in argv) == bool(expression) and not any("regex:regex" in each for each in argv)
