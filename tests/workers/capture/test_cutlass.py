"""The CUTLASS profiler as a tool: a process that stands in for it writes its CSV, which becomes a profile."""

import os
import re
from pathlib import Path

import pytest
from django.conf import settings

from profiles.base.refused import Refused
from profiles.capture import selectors
from profiles.capture.command import build_command
from profiles.capture.tools import cutlass
from profiles.capture.tools.cutlass import CutlassOptions, installed_cutlass
from profiles.capture.tools.tool import Paths
from profiles.models import Capture, CaptureTarget, Profile
from profiles.upload.services import profile_ingest
from tests.profiles.ingest.test_cutlass import TEXT
from tests.workers.tune import stand_ins
from workers import jobs
from workers.capture import run
from workers.core import gpu

pytestmark = pytest.mark.django_db(transaction=True, available_apps=settings.INSTALLED_APPS)
PROFILER = """#!/bin/sh
if [ "$1" = "--version" ]; then echo "CUTLASS 4.2.1 built on Nov  1 2026 at 10:00:00"; exit; fi
for word in "$@"; do case "$word" in --output=*) out="${word#--output=}";; esac; done
cp {table} "${out%.csv}.gemm.csv"
{body}
"""


@pytest.fixture
def host(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setattr(gpu.nvml, "devices", list)
    monkeypatch.setattr(gpu.tempfile, "gettempdir", lambda: str(tmp_path))
    monkeypatch.setattr(jobs, "publish", lambda *message: None)
    stand_ins.nvidia_smi(tmp_path)
    (tmp_path / "table.csv").write_text(TEXT)

    def profiler(body=""):
        text = PROFILER.replace("{table}", str(tmp_path / "table.csv")).replace("{body}", body)
        stand_ins.executable(tmp_path / "cutlass_profiler", text)
        installed_cutlass.cache_clear()
        return tmp_path

    yield profiler
    installed_cutlass.cache_clear()


def ran(alice, **options):
    target = CaptureTarget.objects.create(name="target", argv=["cutlass_profiler"])
    row = Capture.objects.create(target=target, tool="cutlass", options=options, owner=alice)
    run.run(row.pk, "worker-1")
    row.refresh_from_db()
    return row


def test_its_table_becomes_a_profile(alice, host, tmp_store):
    folder = host()
    assert installed_cutlass() == {"path": f"{folder}/cutlass_profiler", "version": "4.2.1"}
    row = ran(alice, m="1024,4096", kernels="cutlass_*")
    assert row.status == "done" and row.log.startswith(f"$ {folder}/cutlass_profiler --operation=gemm --m=1024,4096 "), row.error
    assert [each["name"] for each in selectors.file_rows(row)] == ["report.gemm.csv"]
    profile_ingest(row.profile_id, "ingest-1")
    profile = Profile.objects.get(pk=row.profile_id)
    assert (profile.status, profile.format, profile.kind) == ("ready", "cutlass", "summary")
    assert {kernel.name for kernel in profile.kernels.all()} >= {"gemm_a", "gemm_b"}


def test_what_was_done_before_the_time_limit_is_kept(alice, host, tmp_store, monkeypatch):
    host("sleep 85.25")
    monkeypatch.setitem(CutlassOptions.READ, "time_limit_s", int)
    row = ran(alice, time_limit_s=1)
    assert row.status == "done" and "ended by the time limit; what it had recorded is kept" in row.log


def test_another_program_is_refused():
    with pytest.raises(Refused, match="must be the CUTLASS profiler"):
        build_command(CutlassOptions(), ["./a.out"])
    argv = build_command(CutlassOptions(arguments=("A=f16:row",)), ["/build/cutlass_profiler"], Paths("/opt/cutlass_profiler"))
    assert argv[0] == "/build/cutlass_profiler" and "--A=f16:row" in argv and argv[-1] == "--output=./report.csv"


@pytest.mark.parametrize(("given_options", "field"), [
    ({"m": "1;2"}, "m"), ({"k": "0"}, "k"), ({"arguments": "output=/etc/passwd"}, "arguments"), ({"arguments": "A"}, "arguments"),
    ({"arguments": "A=f16:row A=f32:row"}, "arguments"), ({"arguments": "--A=f16"}, "arguments"), ({"kernels": "-x"}, "kernels"),
    ({"providers": ""}, "providers"), ({"providers": "cutlass,/bin/sh"}, "providers"), ({"operation": "x"}, "operation")])
def test_what_is_refused(given_options, field):
    with pytest.raises(Refused) as refused:
        CutlassOptions.parse(given_options)
    assert field in refused.value.fields


@pytest.mark.parametrize(("said", "told"), [
    ("CUTLASS 4.2.1 built on Nov  1 2026 at 10:00:00 with commit 1a2b3c", {"version": "4.2.1"}),
    ("CUTLASS @CUTLASS_VERSION@ built on Nov  6 2026 at 05:51:28 with commit @CUTLASS_REVISION@", {"version": "built Nov 6 2026"}),
    ("terminate called after throwing an instance of 'std::runtime_error'\n  what():  cudaGetNumDevices() failed",
     {"missing": "{path}: it sees no CUDA GPU"})])
def test_what_a_profiler_says_of_itself(tmp_path, monkeypatch, said, told):
    """As those of 4.2.1 and 4.6.2 print it, and 4.6.2 on a host without a GPU, where even --version ends so."""
    program = tmp_path / "cutlass_profiler"
    (tmp_path / "said").write_text(said)
    stand_ins.executable(program, f"#!/bin/sh\ncat {tmp_path}/said\n")
    monkeypatch.setenv("RIDGEPOINT_CUTLASS_PROFILER", str(program))
    installed_cutlass.cache_clear()
    found = installed_cutlass()
    installed_cutlass.cache_clear()
    assert found.items() >= {name: text.format(path=program) for name, text in told.items()}.items()


# `cutlass_profiler --help` and `--operation=gemm --help` of CUTLASS 4.6.2
HELP = Path(__file__).with_name("cutlass_4_6_2_help.txt").read_text()


def test_the_real_profiler_knows_the_whole_command():
    known = set(re.findall(r"--[A-Za-z][A-Za-z0-9_-]*", HELP))
    argv = build_command(CutlassOptions(kernels=("x",), arguments=("A=f16:row", "cluster_m=2")), ["cutlass_profiler"])
    assert {word.partition("=")[0] for word in argv[1:]} <= known
    assert {f"--{name}" for name in cutlass._NOT_ARGUMENTS} <= known | {"--function", "--operation_names"}      # other names of two
    named = re.findall(r"^     (\w+) {3,}[A-Z]", HELP, re.MULTILINE)
    assert set(cutlass.OPERATIONS) == set(named)
