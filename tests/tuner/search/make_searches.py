"""Makes tuner/tuning/search/searches.json.xz of what was recorded: `python -m tests.tuner.search.make_searches`.

The lists' shapes (docs/operators.md) and others like those of models, tests/gpu/more_shapes.json; all on one GPU and toolkit.
"""

from __future__ import annotations

import json
import lzma
from typing import Any

from tests.product import PROJECT
from tuner.cache.rules import toolkit_text
from tuner.tuning.operators import find
from tuner.tuning.search.recorded_searches import FILE

RECORDED = tuple(PROJECT / "docs" / name for name in ("operators-ratios.json.xz", "operators-more-ratios.json.xz"))
ONE_GPU = 1


def make_searches() -> dict[str, Any]:
    """Return what is kept of each search on one GPU: shape, type, and the median of each configuration in µs, four digits."""
    documents = [json.loads(lzma.decompress(path.read_bytes())) for path in RECORDED]
    (gpu, toolkit), = {(each["gpu"], toolkit_text(each["environment"])) for each in documents}
    shapes = [one for each in documents for one in each["shapes"]]
    operators: dict[str, list[dict[str, Any]]] = {}
    for one in shapes:
        operator = find(one["operator"])
        if operator is None or operator.gpus(one["shape"]) > ONE_GPU or not one.get("trials"):
            continue
        names = sorted(one["trials"][0]["config"])
        rows = [[*(trial["config"][name] for name in names),
                 float(f"{1000 * trial['median_ms']:.4g}") if "median_ms" in trial else None]
                for trial in one["trials"] if sorted(trial["config"]) == names]
        operators.setdefault(one["operator"], []).append(
            {"shape": one["shape"], "dtype": one["dtype"], "names": names, "rows": rows})
    return {"gpu": gpu, "compute_capability": "9.0", "sms": documents[0]["environment"]["sms"], "toolkit": toolkit,
            "date": max(one.get("date", "") for one in shapes), "operators": operators}


if __name__ == "__main__":
    FILE.write_bytes(lzma.compress(json.dumps(make_searches(), separators=(",", ":")).encode(), preset=9))
    print(f"{FILE}: {FILE.stat().st_size:,} bytes")
