"""Programs that stand in for nvidia-smi and ncu where there is no GPU: real processes with the tools' own words."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[3]
REPORT = PROJECT / "tests" / "data" / "h200" / "full.ncu-rep.zst"
SMI_LINE = "0, GPU-11111111-2222-3333-4444-555555555555, NVIDIA H200, 9.0, 580.159.04, 143771"

UNPACK = f"{sys.executable} {PROJECT / 'tests' / 'unpack.py'} {REPORT}"

NCU = """#!/bin/sh
if [ "$1" = "--version" ]; then echo "Nsight Compute"; echo "Version 2025.3.1.0 (build 1)"; exit; fi
all="$*"
case "$all" in
  *"--query-metrics-mode suffix --metrics "*)
    for base in $(echo "${all##*--metrics }" | tr , " "); do echo "$base.sum  Counter  inst"; done; exit;;
  *--query-metrics*)
    echo "Device NVIDIA H200 (gh100)"
    printf '%s  Counter  inst\\n' dram__bytes sm__inst_executed sm__inst_issued; exit;;
esac
report=""
for word in "$@"; do [ "$previous" = "--export" ] && report="$word"; previous="$word"; done
echo "==PROF== Connected to process $$"
{body}
"""
PROFILES = f"""echo "==PROF== Profiling \\"matmul\\" - 0: 0%....50%....100% - 44 passes"
{UNPACK} > "$report"
echo "==PROF== Report: $report" """


def executable(path: Path, text: str) -> Path:
    path.write_text(text)
    path.chmod(0o755)
    return path


def nvidia_smi(folder: Path, line: str = SMI_LINE) -> Path:
    return executable(folder / "nvidia-smi", f"#!/bin/sh\necho '{line}'\n")


def ncu(folder: Path, body: str | None = None) -> Path:
    return executable(folder / "ncu", NCU.replace("{body}", body or PROFILES))


def then_ingest(capture_run: Callable[[int, str], None], ingest: Callable[[int, str], None]) -> Callable[[int, str], None]:
    """A capture, and what an ingest worker makes of its file: suites wait for both."""
    from profiles.models import Capture

    def both(capture_id: int, worker: str) -> None:
        capture_run(capture_id, worker)
        made = Capture.objects.get(pk=capture_id).profile_id
        if made is not None:
            ingest(made, "ingest-1")

    return both
