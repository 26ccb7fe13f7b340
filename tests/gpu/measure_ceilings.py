"""Measures a GPU's ceilings without a server: python -m tests.gpu.measure_ceilings OUT.json

With --once every kernel is launched a single time and how much it claims to do is written, for a capture beside it:
    ncu --set roofline --metrics dram__bytes_read.sum,dram__bytes_write.sum,lts__t_bytes.sum,l1tex__t_bytes.sum \\
        --clock-control none --nvtx --nvtx-include "ceiling/" -o ceilings python -m tests.gpu.measure_ceilings --once once.json
"""

from __future__ import annotations

import argparse
import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from workers.capture.ceilings import NAMES, CeilingsBench
from workers.core import gpu


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--once", action="store_true")
    options = parser.parse_args()
    options.out.write_text(json.dumps(once() if options.once else measured(), indent=1))


def measured() -> dict[str, Any]:
    card = gpu.gpus()[0]
    with gpu.lease([card]) as card:
        bench = CeilingsBench(card.index, gpu_uuid=card.uuid)
        try:
            facts = bench.open() | {"driver": card.driver}
            results = {}
            for name, result in bench.measure(NAMES):
                results[name] = dict(result)
                print(name, result.get("rejected") or f"{result['rate']:.4g}/s at {result['sm_clock_hz'] or 0:.4g} Hz, "
                      f"best {result['best']:.4g}, spread {result['spread']:.2%}, {result['during']}", flush=True)
        finally:
            bench.close()
    return {"measured": datetime.now(UTC).isoformat(timespec="seconds"), "facts": facts, "results": results}


def once() -> dict[str, Any]:
    """One launch of each between NVTX ranges, after one that compiles and warms up."""
    import torch

    from tuner.tuning.measure import ceilings

    meter = ceilings.CudaMeter(torch.device("cuda"), 0)
    claimed = {}
    for name, one in ceilings.MEASUREMENTS.items():
        try:
            work = one.make(meter)
            work.launch()
            torch.cuda.synchronize()
            with torch.cuda.nvtx.range("ceiling"):
                work.launch()
                torch.cuda.synchronize()
            claimed[name] = {"kind": one.kind, "precision": one.precision, "amount": work.amount, "facts": work.facts}
        except Exception as error:
            claimed[name] = {"rejected": f"{type(error).__name__}: {error}"[:300]}
        torch.cuda.empty_cache()
    return claimed


if __name__ == "__main__":
    main()
