"""How busy the GPUs of a process are: the agent's own calls of NVML, over a stand-in of the driver's library."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from workers.agent.activity import Busy

COMPILER = shutil.which("cc") or shutil.which("gcc")
STANDIN = Path(__file__).parent / "nvml_standin.c"
CHILD = """
import json, sys
from pathlib import Path
from workers.agent.activity import Busy
own = Busy(["GPU-0", "GPU-1"], sys.argv[1])
for text in json.loads(sys.argv[3]):
    Path(sys.argv[2]).write_text(text)
    own.look()
print(json.dumps(own.pct()))
"""


def ask(folder: Path, answers: list[str]) -> float | None:
    library = folder / "nvml.so"
    if not library.exists():
        subprocess.run([str(COMPILER), "-shared", "-fPIC", "-o", str(library), str(STANDIN)], check=True, timeout=60)
    values = folder / "values"
    values.write_text("")
    said = subprocess.run([sys.executable, "-c", CHILD, str(library), str(values), json.dumps(answers)], text=True, check=True,
                          capture_output=True, timeout=60,
                          env={**os.environ, "STANDIN_NVML": str(values), "PYTHONPATH": os.getcwd()})
    found: float | None = json.loads(said.stdout)
    return found


@pytest.mark.process
@pytest.mark.skipif(COMPILER is None, reason="no C compiler")
def test_the_least_busy_gpu_counts_and_what_nvml_does_not_say_is_unknown(tmp_path: Path) -> None:
    assert ask(tmp_path, ["0 busy 100\n1 busy 90\n", "0 busy 98\n1 busy 100\n"]) == 95.0
    assert ask(tmp_path, ["0 busy 40\n1 busy 100\n"]) == 40.0
    assert ask(tmp_path, ["0 busy 100\n"]) is None             # nothing is known of the second
    assert ask(tmp_path, []) is None


def test_without_a_driver_it_is_unknown() -> None:
    own = Busy(["GPU-0"], "libno-such-nvml.so.1")
    own.look()
    assert own.pct() is None
