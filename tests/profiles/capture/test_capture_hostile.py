"""An engineer types, an owner decides what runs: no option becomes a flag, a file that a tool reads, or a variable."""

import re

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from profiles.base.refused import Refused
from profiles.capture.command import build_command
from profiles.capture.tools import CAPTURE_TOOLS
from profiles.capture.tools.tool import Paths

PATHS = Paths(folder="/scratch/capture", project="/srv/ridgepoint", python="/usr/bin/python3")
# Response files, command files and scripts of the tools, macros of their output names, what a shell would take for more.
HOSTILE = (
    "@file", "@/etc/passwd", "--config-file-path=/x", "--command-file=/x", "--stats=true", "--import=/x", "--section-folder=/x",
    "--env-var=LD_PRELOAD=/x", "-e", "--", "-", "x\n--export=/x", "x --export=/x", "x,--export=/x", "../x", "/etc/passwd",
    "%q{HOME}", "%p", "$(id)", "`id`", "a;b", "a\0b", "regex:@file", "1:@file", "::@file:1", "::--x:1", "step@--x",
    "LD_PRELOAD=/x.so", "problem-sizes-file=x", "kernels-file=x", "output=x", "append=x",
    "save-workspace=always", "A=@file", "K\u200bx", "\u0661", "\u017f")
TYPED = st.sampled_from(HOSTILE) | st.text("-=@a_.1 ,;:/%{}\n", max_size=12)
FLAGS = {name: {f"--{word}" for word in words.split()} for name, words in {       # all that builders write
    "ncu": "export force-overwrite target-processes replay-mode cache-control clock-control launch-skip launch-count kernel-name "
           "kernel-id set section-folder section metrics nvtx nvtx-include nvtx-exclude range-filter graph-profiling "
           "pm-sampling-interval warp-sampling-interval import-source",
    "nsys": "output force-overwrite trace sample cpuctxsw show-output backtrace delay duration capture-range capture-range-end "
            "nvtx-capture env-var cuda-graph-trace cuda-memory-usage gpu-metrics-devices gpu-metrics-frequency python-sampling "
            "python-sampling-frequency",
    "torch": "out steps skip-first wait warmup active repeat memory memory-entries record-shapes with-stack profile-memory "
             "with-flops with-modules all-threads sync-events execution-trace end-after",
    "proton": "out data context backend mode interval skip-first active hook end-after",
    "cutlass": ""}.items()}
LAUNCHERS = {"--", "-m", "-n", "--standalone", "--nproc-per-node", "--no-python", "--nodes", "--ntasks"}
OURS = {"cutlass": ("--operation=", "--m=", "--n=", "--k=", "--kernels=", "--providers=", "--profiling-iterations=",
                    "--warmup-iterations=", "--verification-enabled=", "--output=")}


def command(tool, options):
    target = ["cutlass_profiler"] if tool.name == "cutlass" else ["{python}", "x.py"]
    return build_command(options, target, PATHS)


def test_every_tool_is_attacked():
    assert set(FLAGS) == set(CAPTURE_TOOLS)


@pytest.mark.parametrize("name", list(CAPTURE_TOOLS))
@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(data=st.data())
def test_whatever_is_typed_stays_a_value(name, data):
    tool = CAPTURE_TOOLS[name]
    fields = data.draw(st.dictionaries(st.sampled_from(list(tool.options.READ)), TYPED | st.lists(TYPED, max_size=3), max_size=4))
    try:
        options = tool.options.parse(fields)
        argv = command(tool, options)
    except Refused:
        return
    for word in argv:
        assert not word.startswith("@") and "\0" not in word and "\n" not in word, word
        flag = word.partition("=")[0]
        if word.startswith("-") and name != "cutlass":
            assert flag in FLAGS[name] | LAUNCHERS, word
        elif word.startswith("-") and not word.startswith(OURS[name]):
            assert re.fullmatch(r"--[A-Za-z][A-Za-z0-9_-]*=[A-Za-z0-9_.*:+-]+", word) and "file" not in word.partition("=")[0], word
    written = [word for word in argv if "/scratch/capture" in word]
    assert len(written) == 1 and re.fullmatch(r"(--output=)?/scratch/capture/[a-z]+(-rank%q\{[A-Z_]+\})?[a-z.-]*", written[0])
    environ = tool.environ(options, PATHS)
    assert set(environ) <= {"TMPDIR", "TLLM_PROFILE_START_STOP", "TLLM_TORCH_PROFILE_TRACE", "TLLM_NVTX_DEBUG"}
    assert re.fullmatch(r"[0-9,-]*", environ.get("TLLM_PROFILE_START_STOP", ""))


@pytest.mark.parametrize("name", list(CAPTURE_TOOLS))
@pytest.mark.parametrize("text", HOSTILE)
def test_each_hostile_text_in_each_field(name, text):
    """Refused in words, or a value within one word that is ours; never an exception of another kind."""
    tool = CAPTURE_TOOLS[name]
    for field in tool.options.READ:
        for value in (text, [text], {text: text}, 7.5, None, [[text]], True):
            try:
                options = tool.options.parse({field: value})
                argv = command(tool, options)
            except Refused as refused:
                assert any(refused.fields), refused
                continue
            words = set(argv) - {"--"}          # what ends the launchers' own flags
            assert not any(word.startswith("@") for word in words), (field, value, argv)
            assert not (text.startswith("-") and text in words), (field, value, argv)


@pytest.mark.parametrize("name", list(CAPTURE_TOOLS))
@pytest.mark.parametrize("field", [
    "config-file-path", "command_file", "stats", "import", "section-folder-recursive", "env_var", "env", "argv", "output", "export",
    "out", "program", "target", "python", "folder", "", "--x"])
def test_a_field_that_no_form_has_is_refused(name, field):
    with pytest.raises(Refused):
        CAPTURE_TOOLS[name].options.parse({field: "x"})


@pytest.mark.parametrize(("name", "given_options"), [
    ("ncu", {"nvtx_include": "@/tmp/flags"}), ("ncu", {"nvtx_exclude": "@flags"}), ("ncu", {"section_folder": "@x"}),
    ("cutlass", {"arguments": "problem-sizes-file=x"}), ("cutlass", {"arguments": "Kernels-File=x"}),
    ("cutlass", {"arguments": "kernels=x"}), ("cutlass", {"m": "@f"}), ("nsys", {"trace": ["--command-file"]}),
    ("nsys", {"capture_range": "nvtx", "nvtx_capture": "@x"})])
def test_files_of_flags_are_refused(name, given_options):
    with pytest.raises(Refused):
        CAPTURE_TOOLS[name].options.parse(given_options)
