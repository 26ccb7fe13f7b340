"""A suite whose runs were recorded on an H200 (device replay:timing_runs), for tests of gates."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from tuner.models import Suite, SuiteKernel
from workers.core.periodic import Stop
from workers.gate import suite

SOFTMAX = {"STEPS": 3, "PER_SM": 32, "num_warps": 8}             # 38.5 µs
SLOWER = {"STEPS": 3, "PER_SM": 8, "num_warps": 8}               # 41.2 µs: 7 % slower, real code
SIMILAR = {"STEPS": 3, "PER_SM": 32, "num_warps": 4}             # 38.3 µs
LAYERNORM = {"BLOCK": 1024, "num_warps": 4, "num_stages": 2}
MATMUL = {"BM": 128, "BN": 256, "BK": 64, "GM": 8, "num_warps": 8, "num_stages": 3}
KEY = "softmax R=8192 C=4096 fp16"
TWO = {KEY: SOFTMAX, "layernorm R=8192 C=4096 fp16": LAYERNORM}
THREE = {**TWO, "matmul M=4096 N=4096 K=4096 bf16": MATMUL}


def suite_made(kernels: Mapping[str, Mapping[str, Any]]) -> Suite:
    row = Suite.objects.create(name="nightly", device="replay:timing_runs", runs=5, baseline_runs=10)
    for place, (key, config) in enumerate(kernels.items()):
        op, *dims, dtype = key.split()
        shape = {name: int(size) for name, size in (dim.split("=") for dim in dims)}
        SuiteKernel.objects.create(suite=row, key=key, op=op, shape=shape, dtype=dtype, family=op, config_from="given",
                                   config=config, place=place)
    return row


def nobody_watches(monkeypatch: Any) -> None:
    """Without the thread that looks for a stop: it could not see a test's open transaction."""
    @contextmanager
    def watched(over: Any) -> Iterator[Stop]:
        yield Stop()
    monkeypatch.setattr(suite, "watch_for_stop", watched)
