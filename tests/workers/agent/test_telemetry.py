"""What a host's GPUs say: nvidia-ml-py over a stand-in of the driver's library with values that H200s told, and `dcgmi dmon`."""

from __future__ import annotations

import json
import math
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from workers.agent.telemetry import Dcgm, Telemetry
from workers.agent.wire import TABLES

pytest.importorskip("pynvml", reason="nvidia-ml-py is the node agent's")
COMPILER = shutil.which("cc") or shutil.which("gcc")
STANDIN = Path(__file__).parent / "nvml_standin.c"
RECORDED = Path("tests/data/logs/nvidia_smi_dmon.txt")
MIB = 1 << 20

CHILD = """
import json, sys
from pathlib import Path
from workers.agent.telemetry import Telemetry
told = Telemetry("host-1")
at_ns = 100 * 60 * 10**9
for text in json.loads(sys.argv[2]):
    Path(sys.argv[1]).write_text(text)
    told.sample(at_ns)
    at_ns += 10**9
told.sample(at_ns + 60 * 10**9)         # the next minute: GPM's own ends
rows = told.take(101)
assert told.take(101) == []
print(json.dumps({"why": told.why, "gpus": [list(gpu) for gpu, _ in told.gpus], "rows": rows}))
"""
DCGMI = """#!/bin/sh
cat <<'END'
#Entity   SMACT        TENSO        DRAMA
ID
GPU 1     0.926        0.038        0.869
GPU 0     N/A          N/A          N/A
GPU-I 0   0.500        0.500        0.500
#Entity   SMACT        TENSO        DRAMA
ID
GPU 1     0.916        0.023        0.881
GPU 0     1.000        2.500        junk
GPU 2     0.1
GPU x     0.1          0.1          0.1
END
echo "$*" > "$0.asked"
exec sleep 60
"""


def recorded(gpu: int) -> list[dict[str, float]]:
    """Return the rows of a GPU that `nvidia-smi dmon` recorded, by NVML's names."""
    lines = [line.split() for line in RECORDED.read_text().splitlines()]
    names = lines[0]
    names[0] = names[0].lstrip("#")
    rows = [dict(zip(names, words, strict=True)) for words in lines[2:] if words and not words[0].startswith("#")]
    return [{"power_mw": 1000 * float(row["pwr"]), "temperature": float(row["gtemp"]), "busy": float(row["sm"]),
             "memory_mhz": float(row["mclk"]), "sm_mhz": float(row["pclk"]), "memory_used": MIB * float(row["fb"]),
             "memory": 143771.0 * MIB, "ecc_corrected": float(row["sbecc"]), "ecc_uncorrected": float(row["dbecc"])}
            for row in rows if row["gpu"] == str(gpu)]


def values(*gpus: dict[str, float]) -> str:
    return "\n".join(f"{gpu} {name} {value}" for gpu, own in enumerate(gpus) for name, value in own.items())


def told(folder: Path, texts: list[str], *flags: str) -> dict[str, Any]:
    """Return what the sensors say of values that follow each other by a second."""
    if COMPILER is None:
        pytest.skip("no C compiler")
    subprocess.run([COMPILER, "-shared", "-fPIC", *flags, STANDIN, "-o", folder / "libnvidia-ml.so.1"], check=True, timeout=120)
    at = folder / "values"
    at.write_text(texts[0])
    command = [sys.executable, "-c", CHILD, str(at), json.dumps(texts)]
    said = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False,
                          env={**os.environ, "LD_LIBRARY_PATH": str(folder), "STANDIN_NVML": str(at), "PYTHONPATH": os.getcwd(),
                               "PATH": "/usr/bin:/bin"})
    assert said.returncode == 0, said.stderr
    found: dict[str, Any] = json.loads(said.stdout)
    return found


@pytest.mark.process
def test_means_of_a_minute_are_those_of_what_the_gpus_told(tmp_path: Path) -> None:
    rows = recorded(0)[3:9]
    assert len({row["power_mw"] for row in rows}) > 1                   # the GPU was put to work meanwhile
    own = {"gpm": 1.0, "gpm_2": 61.5, "gpm_5": 30.25, "gpm_10": 12.0}
    reasons = [0, 0x4, 0x4 | 0x20, 0x1, 0, 0x40]                        # idle is no throttling
    xids, ecc = [1, 1, 1, 3, 3, 3], [7, 7, 9, 9, 9, 9]
    texts = [values({**row, **own, "reasons": reasons[at], "xids": xids[at], "ecc_corrected": ecc[at]},
                    {"power_mw": 79_000.0}) for at, row in enumerate(rows)]
    found = told(tmp_path, texts)
    assert found["why"] == "" and found["gpus"] == [["GPU-0", "NVIDIA H200", "host-1"], ["GPU-1", "NVIDIA H200", "host-1"]]
    first, second = found["rows"]
    assert first["minute"] == 100 and first["samples"] == len(rows)

    def mean(name: str) -> float:
        return sum(row[name] for row in rows) / len(rows)

    for column, name, scale in (("power_w", "power_mw", 1e-3), ("temperature_c", "temperature", 1), ("busy_pct", "busy", 1),
                                ("sm_mhz", "sm_mhz", 1), ("memory_mhz", "memory_mhz", 1), ("memory_used_bytes", "memory_used", 1),
                                ("memory_bytes", "memory", 1)):
        assert first[column] == pytest.approx(mean(name) * scale), column
    assert (first["sm_pct"], first["tensor_pct"], first["dram_pct"]) == (61.5, 30.25, 12.0)
    assert (first["throttle_s"], first["thermal_s"], first["xid_errors"], first["ecc_errors"]) == (3, 2, 3, 2)
    assert second["power_w"] == 79.0 and second["xid_errors"] == 0
    unknown = {name for name, value in second.items() if isinstance(value, float) and math.isnan(value)}
    assert unknown >= {"sm_pct", "tensor_pct", "dram_pct", "temperature_c", "memory_bytes", "throttle_s", "ecc_errors"}
    assert set(first) == set(TABLES["telemetry"])


@pytest.mark.process
def test_drivers_with_the_older_word_for_throttling(tmp_path: Path) -> None:
    text = values({"reasons": 0x80, "gpm": 1, "gpm_2": 40}, {"reasons": 0, "gpm": 1, "gpm_2": 55})
    found = told(tmp_path, [text, text], "-DOLD_DRIVER")
    assert [row["throttle_s"] for row in found["rows"]] == [2, 0]
    assert [row["sm_pct"] for row in found["rows"]] == [40, 55] and math.isnan(found["rows"][0]["tensor_pct"])


def test_a_host_without_a_driver_says_so() -> None:
    found = Telemetry("host-1")
    assert found.gpus == [] and found.why.startswith("NVML does not answer")
    found.sample(10**18)
    assert found.take(1 << 62) == []


@pytest.mark.process
def test_lines_of_dcgmi(tmp_path: Path) -> None:
    command = tmp_path / "dcgmi"
    command.write_text(DCGMI)
    command.chmod(0o755)
    own = Dcgm((str(command),))
    try:
        end = time.monotonic() + 10
        while not (found := own.read()) or not Path(f"{command}.asked").exists():
            assert time.monotonic() < end
            time.sleep(0.02)
        assert Path(f"{command}.asked").read_text().split() == ["dmon", "-e", "1002,1004,1005", "-d", "1000"]
        assert found[1] == pytest.approx({"sm_pct": 91.6, "tensor_pct": 2.3, "dram_pct": 88.1})
        assert found[0]["sm_pct"] == 100 and math.isnan(found[0]["tensor_pct"]) and math.isnan(found[0]["dram_pct"])
        assert set(found) == {0, 1}
        own._told_s -= 10                       # silent for ten seconds: what it said last is old
        assert own.read() == {}
    finally:
        own.close()
    assert own._child.returncode is not None
