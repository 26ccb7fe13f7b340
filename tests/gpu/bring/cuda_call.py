"""CUDA C++ files from one call of their host function to a winner on this machine's GPU, as a worker does it, without a server.

    python -m tests.gpu.bring.cuda_call --out cuda_call.json        # 3 minutes; a C++ compiler, torch, Triton, cuda-core, NVRTC

The host's part is compiled and its call recorded behind walls, where no GPU is; the adapter is written of the record, compilers and
the measuring process run behind walls, the finalists are measured again. Exit code 1 where a kernel does not go the whole way.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

from tests.gpu.bring.own import pasted, search
from tests.tuner.bring.cuda_call_files import ACCESSOR, ACCESSOR_CALL, SCALE, SCALE_CALL, SOFTMAX, SOFTMAX_CALL, SUMS_CALL
from tests.tuner.bring.own.programs import Version
from tuner.bring.travel.described import describe_text
from tuner.bring.travel.files import hash_of, name_of
from tuner.tuning.cuda import nvrtc
from workers.core import gpu

TRIALS = 24
FILE = "mine.cu"
CALLS = {"scale_add": (SCALE, SCALE_CALL.replace("1000000", str(1 << 26))), "sum_rows": (SCALE, SUMS_CALL),
         "softmax_rows": (SOFTMAX, SOFTMAX_CALL), "add_bias": (ACCESSOR, ACCESSOR_CALL)}


def version_of(text: str, call: str) -> tuple[Version, dict[str, Any], float]:
    """Return what travels with a job of the file, what its call told, and the seconds that took."""
    began_s = time.monotonic()
    asked = {"file": FILE, "text": text, "siblings": {}, "folder": "", "shape": {}, "dtype": "", "call": call}
    told = pasted({**asked, "compiles": True})
    adapter, = pasted({**asked, "compiles": False, "recorded": told["recorded"]})["adapters"]
    if "text" not in adapter:
        raise SystemExit(f"{call}: {adapter['why']}")
    sources = {FILE: text}
    digest = hash_of(sources, FILE, adapter["text"])
    name = name_of(adapter["kernel"], digest, 1)
    described = describe_text(adapter["text"], name, title=name, kernel=adapter["kernel"], source_hash=digest)
    version = Version(name, FILE, sources, adapter["text"], json.dumps(described), digest, is_independent=False)
    return version, told["operators"][0], time.monotonic() - began_s


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--only", choices=CALLS)
    options = parser.parse_args()
    nvrtc.load()
    card, told = gpu.gpus()[0], {}
    for kernel, (text, call) in CALLS.items():
        if options.only not in (None, kernel):
            continue
        version, operator, seconds = version_of(text, call)
        found = search(version, card, TRIALS)
        told[kernel] = {"call": call, "recorded_s": round(seconds, 2), "recorded": operator["recorded"], "adapter": version.adapter,
                        **found}
        print(f"{kernel}: recorded in {seconds:.1f} s; {found['measured']} of {found['trials']} measured, "
              f"default {found['default']}, best {found['best']}, rejected {found['rejected']}", flush=True)
    if options.out:
        options.out.write_text(json.dumps(told, indent=1, default=str) + "\n")
    return 0 if all(each["measured"] and each["finalists"] for each in told.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
