"""CUTLASS through its profiler: the table of a real run read as a space, and programs that end badly, never, or print too much."""

from __future__ import annotations

import gzip
import os
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.tuner.measure.chosen import WITHOUT_TORCH

pytest.importorskip("torch", reason=WITHOUT_TORCH)

import torch

from profiles.capture.tools.cutlass import installed_cutlass
from tuner.tuning.kernels.problem import ProgramTime, Unavailable
from tuner.tuning.kernels.vendor import cutlass
from tuner.tuning.kernels.vendor.cutlass_profiler import Profiler
from tuner.tuning.kernels.vendor.program import Bounds, ProgramFailed, run_program
from tuner.tuning.measure.child import ProgramSampler
from tuner.tuning.measure.policy import Policy
from tuner.tuning.measure.timing import Sampler
from tuner.tuning.operators import VENDORS
from tuner.tuning.vendor.cutlass_table import (
    ACCUMULATES,
    DIRECT,
    FOREIGN,
    MAX_BYTES,
    PARAMETERS,
    TRANSPOSED,
    UNALIGNED,
    UNREADABLE,
    Product,
    TableError,
    apply_text,
    list_configs,
    read_result,
    read_rows,
    run_arguments,
)

pytestmark = pytest.mark.torch
TABLE = gzip.decompress((Path(__file__).resolve().parents[2] / "data" / "captured" / "h100_cutlass_gemm.csv.gz").read_bytes())
COOPERATIVE = ("cutlass3x_sm90_tensorop_gemm_f16_f16_f32_f16_f16_128x256x64_2x1x1_0_tnn_align8_"
               "warpspecialized_cooperative_epi_tma")
LINEAR = Product(4096, 4096, 4096, "fp16", columns=True)
WORDS = os.path.join(os.sep, "bin", "sh")


def script(folder: Path, text: str) -> Path:
    path = folder / "program"
    path.write_text(f"#!{WORDS}\n{text}\n")
    path.chmod(0o755)
    return path


def test_kernels_of_a_real_table_are_the_space_with_what_their_names_say() -> None:
    configs, left_out = list_configs(read_rows(TABLE), LINEAR, TRANSPOSED, 90)
    assert Counter(config["KERNEL"] for config in configs) == {COOPERATIVE: 12, COOPERATIVE.replace("128x256", "128x128").replace(
        "cooperative", "pingpong"): 12}, "three raster orders × four swizzles of each"
    first = configs[0]
    assert tuple(first) == PARAMETERS and first == {
        "KERNEL": COOPERATIVE, "ORIENTATION": "transposed", "ARCH": "sm90", "TILE": "128x256x64", "CLUSTER": "2x1x1", "STAGES": 4,
        "WARPS": "4x2x1", "CLASS": "tensorop", "ALIGN": 8, "SCHEDULE": "warpspecialized_cooperative", "EPILOGUE": "epi_tma",
        "SPLIT_K": 1, "RASTER": "heuristic", "SWIZZLE": 1}
    assert left_out == {FOREIGN: 8}


def test_types_layouts_accumulators_and_alignment_decide() -> None:
    rows = read_rows(TABLE)
    assert list_configs(rows, LINEAR, DIRECT, 90)[0] == [], "none writes rows from rows and columns"
    by_rows, left_out = list_configs(rows, Product(4096, 4096, 4096, "fp16", False), TRANSPOSED, 90)
    assert by_rows == [] and left_out[ACCUMULATES] == 6
    odd = list_configs(rows, Product(4096, 4096, 4100, "fp16", True), TRANSPOSED, 90)
    assert odd[0] == [] and odd[1][UNALIGNED] == 4
    assert list_configs(rows, LINEAR, TRANSPOSED, 80)[0] == []
    splits = list_configs(rows, Product(4096, 4096, 4096, "fp32", False), TRANSPOSED, 90)[0]
    assert [config["SPLIT_K"] for config in splits] == [1, 2, 4, 8] and splits[0]["SCHEDULE"] == "default"


def test_arguments_name_the_kernel_and_the_transposed_operands() -> None:
    config = list_configs(read_rows(TABLE), Product(16, 4096, 1024, "fp16", True), TRANSPOSED, 90)[0][5]
    assert run_arguments(config, Product(16, 4096, 1024, "fp16", True)) == [
        f"--kernels={COOPERATIVE}", "--m=4096", "--n=16", "--k=1024", "--A=f16:row", "--B=f16:column", "--D=f16:column",
        "--raster_order=along_m", "--swizzle_size=2"]
    assert Product(16, 4096, 1024, "fp8", True).arguments(DIRECT)[3:] == ("--A=e4m3:row", "--B=e4m3:column", "--D=bf16:row")
    assert COOPERATIVE in apply_text(config) and apply_text({}) == ""
    for wrong in ({"KERNEL": "x; rm -rf /"}, {"KERNEL": 5}, {"ORIENTATION": "sideways"}, {"SPLIT_K": 3},
                  {"RASTER": "--output=/etc/x"}):
        with pytest.raises(ValueError):
            run_arguments({**config, **wrong}, LINEAR)


def test_the_result_of_one_kernel_is_read() -> None:
    assert read_result(TABLE, COOPERATIVE) == (0.0438528, "passed", "success")
    broken = TABLE.replace(b"passed,success", b"incorrect,success", 5).replace(b"0.0438528", b"nan")
    assert read_result(broken, COOPERATIVE) == (None, "incorrect", "success")
    with pytest.raises(TableError, match="no row of the kernel"):
        read_result(TABLE, "cutlass_of_nobody")


@pytest.mark.parametrize("text", [b"", b"\0\xff" * 1000, b"Problem,Provider\n1,CUTLASS\n", b"\n" * 100_000, b"x" * (MAX_BYTES + 1)])
def test_what_is_no_table_is_refused(text: bytes) -> None:
    with pytest.raises(TableError):
        read_rows(text)


def test_damaged_rows_are_left_out_and_counted() -> None:
    lines = TABLE.replace(b",128,256,64,2,1,1", b",128,many,64,2,1,1").splitlines()
    rows = read_rows(b"\n".join([b"other output", *lines, lines[-1][:100], b'"' + b"a," * 50]))
    configs, left_out = list_configs(rows, LINEAR, TRANSPOSED, 90)
    assert len(rows) == 12 and len(configs) == 12 and left_out[UNREADABLE] == 2


def profiler(folder: Path, table: bytes, then: str = "") -> Profiler:
    """Return a program that writes a table where it is told to, as the profiler names the file, then does `then`."""
    (folder / "table").write_bytes(table)
    copy = f'case $a in --output=*) cp {folder}/table "${{a#--output=}}.gemm.csv";; esac'
    return Profiler(str(script(folder, f'for a in "$@"; do {copy}; done; echo "$@" >> {folder}/asked; {then}')))


def test_kernels_are_listed_by_a_dry_run_of_both_orientations(tmp_path: Path) -> None:
    configs, left_out = profiler(tmp_path, TABLE).list(LINEAR, 90)
    direct, transposed = (tmp_path / "asked").read_text().splitlines()
    assert len(configs) == 24 and left_out[FOREIGN] == 12 + 8
    assert "--mode=dry_run" in direct and "--B=f16:column --D=f16:row" in direct and "--B=f16:column --D=f16:column" in transposed


def test_a_run_gives_its_time_or_says_why_not(tmp_path: Path) -> None:
    config = list_configs(read_rows(TABLE), LINEAR, TRANSPOSED, 90)[0][0]
    told = profiler(tmp_path, TABLE).profile(config, LINEAR, 7)
    assert (told.ms, told.disposition) == (0.0438528, "passed")
    asked = (tmp_path / "asked").read_text()
    assert f"--kernels={COOPERATIVE}" in asked and "--seed=7" in asked and "--verification-enabled=true" in asked
    wrong = profiler(tmp_path, TABLE.replace(b"passed", b"incorrect")).profile(config, LINEAR, 7)
    assert wrong.disposition == "incorrect"
    for table, then, said in ((TABLE.replace(b"passed", b"not_verified"), "", "has not verified it"),
                              (TABLE.replace(b"0.0438528", b"0"), "", "gives no time"), (b"", "rm -f *.csv", "wrote no table"),
                              (TABLE, "kill -ABRT $$", "SIGABRT")):
        with pytest.raises(ProgramFailed, match=said):
            profiler(tmp_path, table, then).profile(config, LINEAR, 7)
    with pytest.raises(TableError):
        profiler(tmp_path, b"\0" * 1000).profile(config, LINEAR, 7)


@pytest.mark.parametrize(("text", "said"), [
    ("sleep 60", "ran longer than 0.5 s"), ("yes", "wrote more than 1 MiB|ran longer"), ("echo no GPU here >&2; exit 3",
                                                                                           "ended with status 3: no GPU here"),
    ("kill -SEGV $$", "ended with signal SIGSEGV"), ("head -c 3000000 /dev/zero > report.gemm.csv", "MiB|status")])
def test_a_program_that_ends_badly_is_a_failure_with_its_reason(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "in").mkdir()
    began = time.monotonic()
    with pytest.raises(ProgramFailed, match=said):
        run_program([str(script(tmp_path, text))], tmp_path / "in", Bounds(seconds=0.5, file_bytes=1 << 20))
    assert time.monotonic() - began < 10


def test_what_a_program_started_ends_with_it(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    with pytest.raises(ProgramFailed, match="ran longer"):
        run_program([str(script(tmp_path, "sleep 61.25 & echo $! > pid; wait"))], tmp_path / "in", Bounds(seconds=0.5))
    pid = int((tmp_path / "in" / "pid").read_text())
    status = Path(f"/proc/{pid}/stat")
    end = time.monotonic() + 5
    while status.exists() and status.read_text().split()[2] != "Z" and time.monotonic() < end:
        time.sleep(0.02)
    assert not status.exists() or status.read_text().split()[2] == "Z"


def test_a_program_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ProgramFailed, match="nobody does not start: No such file"):
        run_program([str(tmp_path / "nobody")], tmp_path, Bounds())


def test_without_the_profiler_the_operator_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("RIDGEPOINT_CUTLASS_PROFILER", str(tmp_path / "nobody"))
    installed_cutlass.cache_clear()
    try:
        with pytest.raises(Unavailable, match="no CUTLASS profiler") as caught:
            cutlass.CutlassGemm({"M": 64, "N": 64, "K": 64, "BT": 0}, "bf16", torch.device("cpu"), 0)
        assert "RIDGEPOINT_CUTLASS_PROFILER" in caught.value.hint
    finally:
        installed_cutlass.cache_clear()


def test_the_shape_says_where_fp8_lies() -> None:
    operator = VENDORS["cutlass_gemm"]
    shape = {"M": 64, "N": 64, "K": 64, "BT": 0}
    assert not operator.problems(shape, "bf16") and "by columns" in operator.problems(shape, "fp8")["BT"]
    assert operator.problems({**shape, "BT": 1, "K": 65}, "fp8").keys() == {"K"}


class HostTimer:
    """Times launches by the host's clock."""

    def samples(self, launch: Callable[[], Any], count: int) -> list[float]:
        taken = []
        for _ in range(count):
            began = time.perf_counter()
            launch()
            taken.append(1000 * (time.perf_counter() - began))
        return taken

    def about(self) -> dict[str, Any]:
        return {}

    def reading(self) -> dict[str, Any]:
        return {}


def test_times_of_a_program_are_its_own() -> None:
    sampler = ProgramSampler(Sampler(HostTimer(), Policy.read({"max_samples": 10})))
    runs = iter([2.0, 3.0, 1.0, 4.0, 5.0, 6.0])
    assert sampler.measure(lambda: ProgramTime(next(runs))).as_json()["median_ms"] == 2.0
    program, library = sampler.measure_in_turn([lambda: ProgramTime(next(runs)), lambda: time.sleep(0.002)])
    assert program.round_ms == (3.0, 1.0, 4.0, 5.0, 6.0) and program.median_ms == 4.0
    assert len(library.round_ms) == 5 and min(library.round_ms) >= 2.0
