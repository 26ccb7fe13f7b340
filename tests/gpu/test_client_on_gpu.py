"""On a real GPU, without servers: teams' kernels tuned, what @tuned adds to a launch, and Triton's autotuner listened to."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tuner.tuning import operators
from tuner.tuning.operators import limits
from tuner.tuning.search.finalists import measure_finalists
from tuner.tuning.search.loop import Budget, tune
from tuner.tuning.search.strategies import DEFAULT
from tuner.tuning.search.strategies.prior_knowledge import PriorKnowledge
from tuner.tuning.team import packages
from tuner.tuning.team.description import make_operator, read_operators
from tuner.tuning.trial import Measured, config_key
from workers.core import gpu
from workers.tune.sandbox import SandboxRunner

PROJECT = Path(__file__).resolve().parents[2]
PACKAGES = PROJECT / "tests" / "packages"
ENVIRON = {"PYTHONPATH": str(PACKAGES), packages.ENABLED: "acme-kernels"}
SHAPES = {"acme_scale_add": {"N": 1 << 25}, "acme_column_sum": {"R": 16384, "C": 4096}, "acme_clamp": {"N": 1 << 25}}
DESCRIBE = """
import json
from tuner.tuning.team import packages
print(json.dumps([packages.describe_adapter(adapter) for adapter in packages.load_adapters("acme-kernels").values()]))
"""


@pytest.fixture(scope="module")
def described():
    """As a worker would: a child says what the package offers; this process never imports it."""
    told = python("-c", DESCRIBE)
    found = {each["name"]: make_operator(each) for each in read_operators(told.encode())}
    operators.provide(lambda: found)
    return found


def python(*arguments, **environ):
    done = subprocess.run([sys.executable, *arguments], cwd=PROJECT, capture_output=True, text=True, timeout=120,
                          env={**os.environ, **ENVIRON, **environ})
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


@pytest.mark.django_db         # enabled packages stand in rows
@pytest.mark.parametrize("name", list(SHAPES))
def test_a_teams_kernel_is_tuned(report, described, name):
    card, operator, shape = gpu.gpus()[0], described[name], SHAPES[name]
    runner = SandboxRunner(name, shape, "fp16", card.index, gpu_uuid=card.uuid, seed=3, environ=ENVIRON)
    try:
        session = runner.open()
        device = limits(session.gpu, session.compute_capability, session.environment.get("sms"))
        space, default = operator.space(shape, "fp16", device), operator.default_config(shape, "fp16", device)
        known = PriorKnowledge(operator=name, shape=shape, dtype="fp16", gpu=device, default=default)
        trials = list(tune(space, DEFAULT, runner, Budget(trials=16, seconds=10), 0, first=[default], known=known))
        finalists = measure_finalists(runner, trials, default)
    finally:
        runner.close()
    wrong = [trial.outcome for trial in trials if not isinstance(trial.outcome, Measured)]
    assert trials and not wrong, wrong[:3]
    times = {config_key(each.config): each.outcome.median_ms for each in finalists if isinstance(each.outcome, Measured)}
    best_ms, default_ms = min(times.values()), times[config_key(default)]
    report.add(f"team kernel {name}", gpu=session.gpu, shape=shape, trials=len(trials), space=len(space),
               best=dict(finalists[0].config), best_ms=best_ms, default_ms=default_ms, library_ms=session.library_ms,
               tb_per_s=operator.bytes(shape, "fp16") / best_ms / 1e9)
    assert best_ms <= default_ms * 1.02


def test_what_the_client_adds_to_a_real_launch(report, monkeypatch):
    """The host's time for a launch of a small kernel: Triton called directly, and through @tuned."""
    import torch

    from tuner.cache.client import Client, Snapshot, Tuned

    monkeypatch.syspath_prepend(str(PACKAGES))
    from acme_kernels.kernels import clamp
    config = {"BLOCK": 1024, "num_warps": 4, "num_stages": 3}
    policy = {"exact_up_to": 16, "steps_per_doubling": 1, "max_distance": 4.0}
    client = Client(url="", file="", gpu="x", toolkit="y")
    client.snapshot = Snapshot({
        "version": 1, "id": "gpu", "gpu": "x", "toolkit": "y", "why": {},
        "operators": {"acme_clamp": {"dims": ["N"], "exact": [], "dtypes": ["fp16"], "policy": policy}},
        "entries": [{"id": 1, "operator": "acme_clamp", "dtype": "fp16", "bucket": "N=4096", "home": [0, "exact"], "away": None,
                     "config": config}]})
    served = Tuned(clamp, "acme_clamp", client=client)
    x = torch.randn(4096, device="cuda", dtype=torch.float16)
    y = torch.empty_like(x)

    def direct() -> None:
        clamp[(4,)](x, y, 4096, 0.25, **config)

    def tuned() -> None:
        served[(4,)](x, y, 4096, 0.25)

    def microseconds(launch) -> float:
        torch.cuda.synchronize()
        started = time.perf_counter_ns()
        for _ in range(500):
            launch()
        taken = (time.perf_counter_ns() - started) / 500 / 1000
        torch.cuda.synchronize()
        return taken

    for launch in (direct, tuned):
        launch()
    assert torch.equal(y, x.clamp(min=0.25))
    pairs = [(microseconds(direct), microseconds(tuned)) for _ in range(60)]
    added = sorted(b - a for a, b in pairs)
    report.add("client", direct_us=statistics.median(a for a, _ in pairs), tuned_us=statistics.median(b for _, b in pairs),
               added_us=statistics.median(added), added_p10_us=added[6], added_p90_us=added[-7], launches=500, repeats=60)
    assert statistics.median(added) < 2.0


LISTEN = """
import json, torch
from tuner.cache import client
from tuner.cache.listener import install
told = []
client.Server.ask = lambda self, path, timeout, *, send=None, etag="": (told.append(send), (200, b""))[1]
one = install(url="http://nobody")
from acme_kernels.kernels import scale_add
import triton
for n in (1 << 20, 1 << 20, 1000):
    x, y = torch.randn(n, device="cuda"), torch.zeros(n, device="cuda")
    scale_add[lambda meta: (triton.cdiv(n, meta["BLOCK"]),)](x, y, 2.5, n)
    assert torch.allclose(y, 2.5 * x)
one.send()
print(json.dumps({"hook": hasattr(triton.knobs.autotuning, "listener"), "triton": triton.__version__, "found": told[0]["found"],
                  "gpu": told[0]["gpu"], "toolkit": told[0]["toolkit"]}))
"""


def test_tritons_own_autotuner_is_listened_to(report):
    told = json.loads(python("-c", LISTEN).splitlines()[-1])
    report.add("listener", **told)
    assert [found["shape"] for found in told["found"]] == [{"N": 1 << 20}, {"N": 1000}]
    for found in told["found"]:
        assert found["median_ms"] > 0 and [found["config"], found["median_ms"]] == found["timings"][0]
    assert [found["tried"] for found in told["found"]] == [5, 3] and told["gpu"].startswith("NVIDIA")
