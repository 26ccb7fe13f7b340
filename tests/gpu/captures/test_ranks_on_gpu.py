"""A job with a rank on every GPU, started by the worker and captured whole: who is late is what was planted. Two GPUs or more.

Ranks with equal work need not run alike: of them too the accused is who waits least in the all-reduces, counted here in the files.
"""

from __future__ import annotations

import gzip
import json
import shutil
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.gpu.captures.test_tools_on_gpu import captured, ready
from tests.gpu.conftest import RESULTS, Report, Site
from workers.core import gpu

LATE_MS = 6.0
MOST_OF = 0.8                   # of the all-reduces in which one rank waits least: it is late


def waits_least(traces: list[Path]) -> list[str]:
    """Return the rank whose all-reduce is the shortest in nearly all of them: who comes last waits for nobody. [] where none is."""
    took: dict[int, list[float]] = {}
    for path in traces:
        told = json.loads(gzip.decompress(path.read_bytes()))
        found = [each for each in told["traceEvents"] if each.get("cat") == "kernel" and "AllReduce" in each["name"]]
        took[told["distributedInfo"]["rank"]] = [each["dur"] for each in sorted(found, key=lambda each: float(each["ts"]))]
    count = min(len(each) for each in took.values())
    assert count
    (rank, times), = Counter(min(took, key=lambda rank: took[rank][at]) for at in range(count)).most_common(1)
    return [f"rank {rank}"] if times >= MOST_OF * count else []


@pytest.mark.parametrize("late", [False, True], ids=["even", "late"])
def test_ranks_that_start_together_say_who_is_late(site: Site, report: Report, late: bool) -> None:
    ranks = len(gpu.gpus())
    if ranks < 2:
        pytest.skip("a rank on each GPU of the host: two are needed")
    planted = ranks - 2 if ranks > 2 else 1
    more = ["--late", str(planted), str(LATE_MS)] if late else []
    log = f"{tempfile.mkdtemp()}/steps"
    target = site.post("/api/captures/targets/", {"name": f"ranks, {'one late' if late else 'even'}", "argv": [
        "{python}", "-m", "tests.gpu.captures.training_job", log, "60", "--width", "1024", *more]})
    row = captured(site, report, f"{ranks} ranks, {'late' if late else 'even'}", target["id"], "torch", processes=ranks,
                   launcher="torchrun", wait=20, warmup=2, active=5, record_shapes=True)
    profile = ready(row)
    topics: dict[str, Any] = {name: site.get(f"/api/profiles/{profile['id']}/analysis/{name}/")
                              for name in ("causes", "communication")}
    report.add(f"{ranks} ranks said, {'late' if late else 'even'}", topics=topics, read=row["read"])
    folder = RESULTS / f"started_{'late' if late else 'even'}"
    folder.mkdir(parents=True, exist_ok=True)
    traces = sorted((site.product.home / "store" / "uploads").glob(f"*/capture-{row['id']}-trace-rank*"))
    for path in traces:
        shutil.copyfile(path, folder / f"{path.parent.name}_{path.name}")
    assert set(row["read"]["metadata"]["ranks"]) == {f"rank {rank}" for rank in range(ranks)}
    accused = [found["numbers"]["rank"] for found in topics["communication"]["findings"]
               if found["rule"] == "straggler" and found["severity"] == "high"]
    assert accused == ([f"rank {planted}"] if late else waits_least(traces))
