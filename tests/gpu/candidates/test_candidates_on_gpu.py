"""Candidates on a real GPU, as `python -m tests.gpu.candidates.record` judges them, and counted by ncu where it may count."""

from __future__ import annotations

import json
import os
from typing import Any

import pytest

from tests.gpu.candidates.files import DTYPE, FAULTS, GOOD, SHAPE, WRONG
from tests.gpu.candidates.judging import PROJECT, READ, judge
from tests.tuner.candidates.files import KERNEL
from workers.core import gpu, sandboxed
from workers.tune import candidate


@pytest.mark.parametrize("name", GOOD)
def test_good_ones_are_timed(report: Any, name: str) -> None:
    text, config, best, verdicts, words = GOOD[name]
    told = judge(text, config=config, best=best)
    report.add(f"candidate {name}", **{each: told[each] for each in ("verdict", "reason", "rows", "took_s")})
    assert told["verdict"] in verdicts and words in told["reason"], told


@pytest.mark.parametrize("name", WRONG)
def test_cheats_are_seen(report: Any, name: str) -> None:
    text, words = WRONG[name]
    told = judge(text)
    report.add(f"cheat {name}", verdict=told["verdict"], reason=told["reason"], took_s=told["took_s"])
    assert told["verdict"] == "WRONG" and words in told["reason"], told


@pytest.mark.parametrize("name", FAULTS)
def test_faults_end_alone(report: Any, name: str) -> None:
    told = judge(FAULTS[name], wall_s=45)
    report.add(f"fault {name}", verdict=told["verdict"], reason=told["reason"], took_s=told["took_s"])
    assert told["verdict"] == "FAILED", told
    assert judge(GOOD["torch"][0])["verdict"] == "SLOWER"


@pytest.mark.skipif(bool(sandboxed.why_not()), reason="no sandbox here")
def test_a_candidate_is_counted_or_the_reason_is_said(report: Any) -> None:
    card = gpu.gpus()[0]
    request = {"operator": "softmax", "shape": SHAPE, "dtype": DTYPE, "text": KERNEL, "config": None, "best": None, "seed": 5,
               "policy": {}, "gpu_uuid": card.uuid}
    found = candidate.count(
        request, card.cc, read=READ, devices=gpu.device_nodes(card), is_over=lambda: False,
        environ={"PYTHONPATH": os.pathsep.join(filter(None, (str(PROJECT), os.environ.get("PYTHONPATH")))),
                 "CUDA_VISIBLE_DEVICES": card.uuid, "CUDA_DEVICE_ORDER": "PCI_BUS_ID"})
    report.add("candidate counters", **json.loads(json.dumps(found)))
    assert found.get("why") or found["duration_ns"] > 0
