"""Makes tuner/tuning/search/searches.json.xz of what was recorded: `python -m tests.tuner.search.make_searches`."""

from __future__ import annotations

import json
import lzma
from typing import Any

from tests.product import PROJECT
from tuner.cache.rules import toolkit_text
from tuner.tuning.operators import find
from tuner.tuning.search.recorded_searches import FILE

RECORDED = PROJECT / "docs" / "operators-ratios.json.xz"
ONE_GPU = 1


def make_searches() -> dict[str, Any]:
    """Return what is kept of each search on one GPU: shape, type, and the median of each configuration in µs, four digits."""
    recorded = json.loads(lzma.decompress(RECORDED.read_bytes()))
    operators: dict[str, list[dict[str, Any]]] = {}
    for one in recorded["shapes"]:
        operator = find(one["operator"])
        if operator is None or operator.gpus(one["shape"]) > ONE_GPU or not one.get("trials"):
            continue
        names = sorted(one["trials"][0]["config"])
        rows = [[*(trial["config"][name] for name in names),
                 float(f"{1000 * trial['median_ms']:.4g}") if "median_ms" in trial else None]
                for trial in one["trials"] if sorted(trial["config"]) == names]
        operators.setdefault(one["operator"], []).append(
            {"shape": one["shape"], "dtype": one["dtype"], "names": names, "rows": rows})
    environment = recorded["environment"]
    return {"gpu": recorded["gpu"], "compute_capability": "9.0", "sms": environment["sms"], "toolkit": toolkit_text(environment),
            "date": max(one.get("date", "") for one in recorded["shapes"]), "operators": operators}


if __name__ == "__main__":
    FILE.write_bytes(lzma.compress(json.dumps(make_searches(), separators=(",", ":")).encode(), preset=9))
    print(f"{FILE}: {FILE.stat().st_size:,} bytes")
