"""The step of tests.gpu.step on the CPU: the same numbers with what the client serves as with torch's own calls.

Triton's interpreter computes products in fp16 alone, so the model is in that.
"""

import copy

import pytest

from tests.gpu.step import markdown
from tests.tuner.measure.chosen import about
from tests.tuner.measure.programs import interpret

STEP = """
import json, sys, torch
from tests.gpu.step.model import Decode, Exact, Library, Prefill, Sizes, Weights
from tests.gpu.step.served import FromClient, serves_ours
from tests.gpu.step.record import error_of
from tests.gpu.step.tune import Found, snapshot
from tests.tuner.measure.interpreted import patch_language_once
from tuner.cache import buckets, rules
from tuner.cache.client import Client
from tuner.tuning.measure.runner import Session
from tuner.tuning.operators import OPERATORS, limits

patch_language_once()
[kept, path] = json.loads(sys.argv[1])
cpu, card = torch.device("cpu"), "NVIDIA H200"
session = Session(card, "9.0", 1.0, {}, 1, 1, {})
sizes = Sizes(layers=2, width=64, heads=4, kv=2, head=32, hidden=96, vocabulary=200, sequences=2, tokens=32, batch=3, cache=48,
              dtype="fp16")
found = []
for name, shape, _ in sizes.cases("prefill") + sizes.cases("decode"):
    operator = OPERATORS[name]
    assert not operator.problems(shape, "fp16"), (name, shape)
    bucket = buckets.bucket(shape, [dim.name for dim in operator.dims if dim.exact])
    key = rules.Key(name, "fp16", bucket, card, "9.0", "cuda 13.0, triton 3.6.0", "", "", "cold")
    entry = rules.Entry(len(found) + 1, key, dict(operator.default_config(shape, "fp16", limits(card, "9.0", 132))), shape=shape,
                        library=1.1 if name in kept else None)
    found.append(Found(entry, session, {}))
with open(path, "w") as file:
    json.dump(snapshot(found, card, "cuda 13.0, triton 3.6.0"), file)
client = Client(url="", file=path, gpu=card, toolkit="cuda 13.0, triton 3.6.0")
weights = Weights(sizes, cpu)
for kind in (Prefill, Decode):
    step = kind(weights, cpu)
    for name, shape, _ in sizes.cases(step.name):
        served = client.best(name, "fp16", **shape)
        assert served.rule == "exact" and serves_ours(served) == (name not in kept), served
    use = FromClient(client, "fp16", cpu)
    (exact, _), (before, _), (after, made) = (step.run(each) for each in (Exact(), Library(), use))
    assert error_of(after, exact) < 1.25 * error_of(before, exact) < 0.003
    assert {key[0] for key in use._problems} == {name for name, *_ in sizes.cases(step.name)} - set(kept)
print("all right")
"""
SERVED = ("embedding", "rmsnorm", "add_rmsnorm", "matmul", "rotary", "gqa_attention", "decode_attention", "silu_mul",
          "cross_entropy")
TIMED = {"median_ms": 1.0, "error": 0.01}
DOCUMENT = {
    "date": "2026-11-27T00:00:00", "gpu": "a GPU", "environment": {"torch": "2.11", "triton": "3.6"}, "arguments": {"search": 3.0},
    "model": {"layers": 8, "width": 64, "heads": 4, "kv": 2, "hidden": 96, "vocabulary": 200, "sequences": 2, "tokens": 32,
              "batch": 3, "cache": 48, "dtype": "bf16"},
    "steps": {"prefill": {"before": {**TIMED, "median_ms": 1.2}, "after": TIMED, "right": True,
                          "lacking": "torch.compile: left out",
                          "ratios": {"before": {"ratio": 1.2, "low": 1.19, "high": 1.21}}, "policy": {"rounds": 24, "batch": 2}},
              "decode": {"error": "out of memory"}},
    "operators": [{"step": "decode", "operator": "matmul", "shape": {"M": 3}, "calls": 2, "error": "not searched"},
                  {"step": "prefill", "operator": "rmsnorm", "shape": {"R": 64}, "calls": 1, "served": "ours", "rule": "exact",
                   "ours_ms": 0.01, "library_ms": 0.012, "config": {"BLOCK": 64}}]}


@pytest.mark.torch
@about(*SERVED)
@pytest.mark.parametrize("kept", [pytest.param([], marks=pytest.mark.deep_only),
                                  ["matmul", "gqa_attention", "decode_attention", "add_rmsnorm"]], ids=["ours", "some"])
def test_what_the_client_serves_computes_the_same_step(tmp_path, kept):
    assert interpret(STEP, [kept, str(tmp_path / "snapshot.json")]) == "all right\n"


def test_the_section_says_what_was_timed_and_what_was_not():
    said = "\n".join(markdown.lines(DOCUMENT))
    assert "| prefill | 1.200 | — | 1.000 | **1.200** (1.190 to 1.210) | — | 0.01, 0.01 |" in said
    assert "| decode | — | — | — | — | — | out of memory |" in said and "prefill: torch.compile: left out." in said
    assert said.index("rmsnorm") < said.index("matmul") and "| ours | 10 | 12 | 1.20 | BLOCK=64 |" in said
    wrong = copy.deepcopy(DOCUMENT)
    wrong["steps"]["prefill"]["right"] = False
    assert "**wrong**" in "\n".join(markdown.lines(wrong))
