"""Recorded runs as a test reads them: straight from the file, by nothing of ours."""

import gzip
import json
from functools import lru_cache
from pathlib import Path

TIMING_RUNS = Path(__file__).parent / "data" / "h200" / "timing_runs.jsonl.gz"


def key(config):
    return json.dumps(config, sort_keys=True)


@lru_cache(maxsize=1)
def timing_runs():
    """(recorded run, operator, key of the configuration) → line."""
    with gzip.open(TIMING_RUNS, "rt") as file:
        lines = [json.loads(line) for line in file]
    return {(line["run"], line["op"], key(line["config"])): line for line in lines}
