"""One candidate judged on the GPU of this machine as a worker does it, without the web server: walls, judge, answer, verdict."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from tests.gpu.candidates.files import DTYPE, SHAPE
from tuner.candidates import verdicts
from tuner.candidates.answer import Answer
from workers.core import gpu, sandboxed, walled

PROJECT = Path(__file__).resolve().parents[3]
READ = (PROJECT / "tuner", PROJECT / "profiles")
BOUNDS = sandboxed.Bounds(wall_s=120, cpu_s=1800, memory_mb=16 << 10, data_mb=64 << 10, room_mb=2048, file_mb=512)


def walls() -> str:
    """Return why this machine lets no walls be made; "" where it does."""
    return sandboxed.why_not()


def judge(text: str, *, operator: str = "softmax", shape: Mapping[str, int] | None = None, dtype: str = DTYPE,
          config: Mapping[str, Any] | None = None, best: Mapping[str, Any] | None = None, wall_s: float = BOUNDS.wall_s,
          module: str = "tuner.candidates.judge.child", **more: Any) -> dict[str, Any]:
    """Return {"verdict", "reason", "rows", "against", "parts", "rounds_us", "ending", "stages_s": {stage: begun}, "took_s"}.

    Without walls where none can be made: the judge is the same, and the record's facts say so.
    """
    card, answer, compiler = gpu.gpus()[0], Answer(), walled.find()
    request = {"operator": operator, "shape": dict(shape or SHAPE), "dtype": dtype, "text": text, "config": config, "best": best,
               "seed": int.from_bytes(os.urandom(6), "big"), "policy": {}, "gpu_uuid": card.uuid, **more}
    environ = {"PYTHONPATH": os.pathsep.join((str(PROJECT), *filter(None, (os.environ.get("PYTHONPATH"),)))),
               "CUDA_DEVICE_ORDER": "PCI_BUS_ID", "CUDA_VISIBLE_DEVICES": card.uuid, "CUDA_CACHE_DISABLE": "1",
               **compiler.environ, **{name: os.environ[name] for name in ("LD_LIBRARY_PATH",) if name in os.environ}}

    begun: dict[str, float] = {}

    def hear(line: bytes) -> None:
        with suppress(ValueError):
            answer.hear(json.loads(line))
        begun.setdefault(answer.stage, round(time.monotonic() - began_s, 2))

    began_s = time.monotonic()
    ending = sandboxed.run(
        [sys.executable, "-m", module], json.dumps(request).encode(), read=(*READ, *compiler.read), devices=gpu.device_nodes(card),
        environ=environ, bounds=replace(BOUNDS, wall_s=wall_s), on_line=hear, walls=not walls(), may_be_fork=True)
    told = answer.parts
    if ending.why or ("ended" not in told and "failed" not in told):
        told["failed"] = {"where": "process", "what": f"while {answer.stage}: {ending.why or ending.status}; {ending.said[-400:]}"}
    if refused := told.get("refused"):              # a worker says so in other words (workers.tune.candidate)
        told["failed"] = {"where": "process", "what": refused["what"]}
    judged = verdicts.judge(told)
    return {"verdict": judged.verdict.value, "reason": judged.reason, "rows": list(judged.rows), "against": judged.against,
            "parts": {name: value for name, value in told.items() if name != "times"},
            "rounds_us": {name: [round(ms * 1000, 3) for ms in each["round_ms"]] for name, each in told.get("times", {}).items()},
            "ending": {"why": ending.why, "status": ending.status, "said": ending.said[-600:]},
            "stages_s": begun, "took_s": round(time.monotonic() - began_s, 2)}
