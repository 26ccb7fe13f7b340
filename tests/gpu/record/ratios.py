"""Record how the operators' kernels stand against cuBLAS and torch on this GPU, through the loop and the sandbox.

    python tests/gpu/record/ratios.py FOLDER [--seconds S] [--designs | --every] [--only NAME …] [--gpus N]
                                          [--shapes FILE] [--part I/N]

--designs  instead of a search: the known designs of DESIGNS at each shape of DESIGN_SHAPES, and each kernel's at awkward
           shapes (ragged edges) for correctness alone. Answers which kernel is right and fast on this GPU and toolkit.
--every    instead of a search: every configuration of each shape of SHAPES, in bf16 and fp16, each compared with the
           reference. For operators of small spaces.
--shapes   those of a file in place of SHAPES (flashinfer_trace.json beside this)
--part     every N-th shape from the I-th on, for machines with several GPUs: CUDA_VISIBLE_DEVICES=0 … --part 0/2 & … --part 1/2
Without these each shape of SHAPES is searched cold for S seconds by the default strategy; the finalists are measured again in
turn with the library, and the ratio is library time over the winner's. Writes ratios.json (or designs.json) after each shape.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice, product
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from tests.gpu.known import of_operator
from tuner.tuning.operators import Limits, Operator, find, limits
from tuner.tuning.search.finalists import is_raced, measure_finalists
from tuner.tuning.search.loop import Budget, tune
from tuner.tuning.search.strategies import DEFAULT
from tuner.tuning.space import Space
from tuner.tuning.trial import Config, Measured, Trial, config_key
from workers.core import gpu
from workers.tune.gpu_child import Limits as Seconds
from workers.tune.sandbox import SandboxRunner

Case = tuple[str, str, dict[str, int]]


def _sized(operator: str, dtype: str, names: str, *sizes: tuple[int, ...]) -> list[Case]:
    return [(operator, dtype, dict(zip(names.split(), one, strict=True))) for one in sizes]


SHAPES: list[Case] = [
    *_sized("matmul", "bf16", "M N K", (4096, 4096, 4096), (8192, 8192, 8192), (2048, 11008, 4096), (4096, 14336, 4096),
            (1024, 1024, 1024), (512, 4096, 4096), (1, 4096, 4096), (16, 4096, 4096), (16, 14336, 4096), (64, 8192, 8192),
            (3000, 5120, 1536), (1000, 4104, 1000)),
    *_sized("attention", "fp16", "B H N D causal", (4, 32, 2048, 64, 1), (4, 32, 2048, 128, 1), (16, 16, 512, 64, 0),
            (4, 16, 4096, 128, 0), (1, 32, 8192, 128, 1), (2, 16, 4096, 64, 0), (8, 16, 1024, 128, 1), (2, 8, 1000, 64, 1),
            (4, 16, 777, 128, 0), (32, 12, 384, 64, 0)),
    *_sized("gqa_attention", "bf16", "B H KV N D causal", (2, 32, 8, 4096, 128, 1), (1, 64, 8, 8192, 128, 1),
            (4, 32, 8, 1024, 128, 1), (2, 12, 4, 515, 128, 1), (1, 32, 8, 2048, 128, 1), (8, 32, 8, 512, 128, 1),
            (2, 28, 4, 4096, 128, 1), (4, 16, 2, 1000, 128, 0), (2, 64, 8, 2048, 128, 0), (4, 32, 8, 2048, 64, 1)),
    *_sized("decode_attention", "bf16", "B H KV N D", (16, 32, 8, 8192, 128), (1, 32, 8, 32768, 128), (64, 32, 8, 1024, 128),
            (3, 12, 4, 1001, 128), (8, 64, 8, 16384, 128), (32, 32, 32, 2048, 128), (128, 32, 8, 512, 128), (2, 16, 1, 32768, 128),
            (256, 64, 8, 1024, 64), (7, 28, 4, 5000, 128)),
    *_sized("matmul", "fp8", "M N K", (4096, 4096, 4096), (16, 8192, 8192), (2048, 8192, 4096), (64, 4096, 4096)),
    *_sized("matmul_bias_act", "bf16", "M N K act", (4096, 16384, 4096, 2), (16, 11008, 4096, 3), (2048, 4096, 4096, 1),
            (1000, 3072, 768, 3)),
    *_sized("grouped_matmul", "bf16", "M E N K", (8192, 8, 14336, 4096), (4096, 64, 2816, 2048), (64, 128, 1536, 2048),
            (1000, 24, 1032, 520), (1024, 64, 2816, 2048), (128, 128, 1536, 2048), (4096, 8, 2048, 7168), (512, 16, 4096, 4096),
            (16384, 8, 4096, 14336), (333, 32, 1000, 1024)),
    *_sized("softmax", "fp16", "R C", (8192, 4096), (2048, 32768), (65536, 1024), (1000, 777), (128, 131072), (16384, 2048),
            (4096, 3000), (512, 50264), (262144, 128), (32, 8192)),
    *_sized("layernorm", "fp16", "R C", (8192, 4096), (65536, 768), (64, 16384), (1000, 3000), (16384, 1280),
            (8192, 4104), (4096, 5000), (32, 8192), (131072, 256), (2048, 12288)),
    *_sized("rmsnorm", "bf16", "R C", (8192, 4096), (2048, 8192), (1, 4096), (1000, 5120), (32768, 1024), (4096, 5000),
            (32, 8192), (262144, 128), (2048, 12288), (300, 1000)),
    *_sized("cross_entropy", "bf16", "R C", (4096, 128256), (8192, 32000), (16384, 1000), (2048, 151936), (64, 128256),
            (1000, 50257), (32768, 100), (4096, 262144), (16384, 32000), (1, 128256)),
    *_sized("embedding", "bf16", "T V C", (16384, 128256, 4096), (64, 128256, 4096), (65536, 50257, 768), (1, 151936, 8192),
            (8192, 32000, 5120), (1000, 30522, 1000), (131072, 1000, 64), (4096, 128256, 8192), (32768, 262144, 1152),
            (2048, 50257, 1600)),
    *_sized("rotary", "bf16", "T H D", (8192, 32, 128), (16384, 40, 128), (64, 64, 128), (1, 32, 128), (4096, 8, 64),
            (1000, 12, 64), (32768, 32, 128), (2048, 71, 64), (8192, 16, 256), (256, 128, 32)),
    *_sized("top_k", "bf16", "R C K", (8192, 256, 8), (4096, 32000, 8), (64, 128256, 64), (1, 151936, 50), (16384, 64, 6),
            (32, 32000, 1), (1000, 777, 5), (65536, 128, 8), (256, 50257, 40), (8, 262144, 64)),
    *_sized("conv2d", "fp16", "B H W C F KS S P", (32, 56, 56, 64, 64, 3, 1, 1), (32, 14, 14, 256, 256, 3, 1, 1),
            (2, 64, 64, 320, 320, 3, 1, 1), (64, 224, 224, 3, 64, 7, 2, 3), (32, 28, 28, 128, 512, 1, 1, 0),
            (32, 56, 56, 128, 128, 3, 2, 1), (1, 512, 512, 64, 64, 3, 1, 1), (8, 7, 7, 512, 2048, 1, 1, 0),
            (3, 33, 65, 48, 40, 5, 1, 2), (16, 32, 32, 640, 640, 3, 1, 1)),
    *_sized("int4_matmul", "bf16", "M N K", (16, 4096, 4096), (1, 14336, 4096), (4096, 4096, 4096), (1, 4096, 4096),
            (8, 28672, 8192), (64, 8192, 8192), (256, 11008, 4096), (1, 8192, 28672), (33, 5120, 13824), (2048, 14336, 4096)),
    *_sized("fp8_block_matmul", "fp8", "M N K", (4096, 7168, 2048), (64, 7168, 2048), (4096, 4096, 4096), (1, 7168, 16384),
            (128, 24576, 1536), (8192, 2112, 7168), (256, 4096, 7168), (1000, 1536, 7168), (4096, 32768, 512), (16, 7168, 18432)),
    *_sized("paged_decode_attention", "bf16", "B H KV N D PAGE", (64, 32, 8, 8192, 128, 16), (4, 32, 8, 32768, 128, 16),
            (1, 32, 8, 32768, 128, 16), (16, 32, 8, 8192, 128, 64), (256, 32, 8, 2048, 128, 16), (1, 32, 8, 1024, 128, 16),
            (32, 64, 8, 16384, 128, 128), (128, 32, 32, 2048, 128, 16), (256, 64, 8, 2048, 64, 64), (8, 16, 1, 32768, 128, 32),
            (3, 12, 4, 1001, 128, 16), (7, 28, 4, 5000, 128, 256)),
    *_sized("fp8_attention", "fp8", "B H KV N D causal", (2, 32, 8, 4096, 128, 1), (4, 16, 16, 4096, 128, 0),
            (4, 32, 8, 2048, 64, 1), (1, 64, 8, 8192, 128, 1), (1, 32, 8, 16384, 128, 1), (4, 32, 8, 1024, 128, 1),
            (2, 16, 16, 4096, 64, 0), (16, 16, 16, 512, 64, 0), (1, 32, 32, 8192, 128, 0), (8, 16, 2, 1000, 128, 1),
            (4, 12, 4, 777, 64, 0), (2, 40, 8, 3008, 128, 1)),
    *_sized("all_reduce_rmsnorm", "bf16", "R C G", (1, 4096, 2), (16, 8192, 2), (64, 8192, 2), (128, 4096, 2), (256, 8192, 2),
            (512, 8192, 2), (2048, 4096, 2), (4096, 8192, 2), (33, 5120, 2), (1000, 7168, 2),
            *((*size, gpus) for gpus in (4, 8) for size in (
                (1, 4096), (16, 8192), (64, 8192), (128, 4096), (256, 8192), (512, 8192), (2048, 4096), (4096, 8192), (33, 5120),
                (1000, 7168)))),
]
DESIGN_SHAPES: list[Case] = [
    *_sized("matmul", "bf16", "M N K", (4096, 4096, 4096), (2048, 11008, 4096), (1024, 1024, 1024), (16, 4096, 4096),
            (64, 8192, 8192)),
    *_sized("matmul", "fp8", "M N K", (4096, 4096, 4096)),
    *_sized("matmul_bias_act", "bf16", "M N K act", (4096, 16384, 4096, 2)),
    *_sized("attention", "fp16", "B H N D causal", (4, 32, 2048, 64, 1), (4, 32, 2048, 128, 1), (4, 16, 4096, 128, 0)),
    *_sized("gqa_attention", "bf16", "B H KV N D causal", (1, 64, 8, 8192, 128, 1)),
    *_sized("decode_attention", "bf16", "B H KV N D", (16, 32, 8, 8192, 128), (1, 32, 8, 32768, 128)),
    *_sized("grouped_matmul", "bf16", "M E N K", (8192, 8, 14336, 4096), (64, 128, 1536, 2048)),
]
AWKWARD: list[Case] = [
    *_sized("matmul", "fp16", "M N K", (333, 4104, 1000)), *_sized("matmul", "fp8", "M N K", (333, 4112, 1008)),
    *_sized("matmul_bias_act", "bf16", "M N K act", (77, 1032, 520, 3)),
    *_sized("attention", "bf16", "B H N D causal", (1, 8, 1000, 64, 1), (2, 4, 777, 128, 0)),
    *_sized("gqa_attention", "fp16", "B H KV N D causal", (2, 12, 4, 515, 128, 1)),
    *_sized("decode_attention", "fp16", "B H KV N D", (3, 12, 4, 1001, 128)),
    *_sized("fp8_attention", "fp8", "B H KV N D causal", (2, 12, 4, 515, 128, 1), (1, 8, 8, 1008, 64, 0),
            (2, 6, 2, 784, 128, 1)),
    *_sized("paged_decode_attention", "fp16", "B H KV N D PAGE", (5, 12, 4, 1001, 128, 16), (3, 40, 1, 333, 64, 128)),
    *_sized("grouped_matmul", "fp16", "M E N K", (1000, 24, 1032, 520)),
    *_sized("cross_entropy", "fp16", "R C", (7, 333)), *_sized("cross_entropy", "fp32", "R C", (3, 70001)),
    *_sized("embedding", "fp32", "T V C", (77, 1000, 333)), *_sized("rotary", "fp16", "T H D", (77, 7, 64)),
    *_sized("top_k", "fp16", "R C K", (7, 777, 5)), *_sized("top_k", "fp32", "R C K", (3, 70001, 33)),
    *_sized("conv2d", "bf16", "B H W C F KS S P", (3, 33, 17, 20, 35, 3, 2, 1)),
    *_sized("int4_matmul", "fp16", "M N K", (33, 1032, 640)), *_sized("fp8_block_matmul", "fp8", "M N K", (77, 1032, 640)),
]
# Kernel → values to combine; what the space does not hold is left out.
_WIDE = {"BM": (128,), "BN": (256,), "BK": (64,), "GM": (8,), "SPLIT_K": (1,)}
_SQUARE = {"BM": (128,), "BN": (128,), "BK": (64,), "GM": (8,), "SPLIT_K": (1,)}
_SKINNY = {"BM": (16, 64), "BN": (32, 64, 128), "BK": (128,), "GM": (8,), "num_warps": (4,), "num_stages": (4,),
           "SPLIT_K": (1, 2, 4, 8), "STORE": ("direct",)}
_MATMUL: list[Mapping[str, Sequence[Any]]] = [
    {**_WIDE, "KERNEL": ("tiles",), "num_warps": (8,), "num_stages": (3,), "STORE": ("direct",)},
    {**_WIDE, "KERNEL": ("tma",), "num_warps": (8,), "num_stages": (3, 4), "STORE": ("tma",)},
    {**_WIDE, "KERNEL": ("persistent",), "num_warps": (8,), "num_stages": (3, 4), "STORE": ("halves", "direct"), "GM": (8, 16)},
    {**_WIDE, "KERNEL": ("specialised",), "num_warps": (4,), "num_stages": (3, 4), "STORE": ("direct", "tma"), "GM": (8, 16)},
    {**_WIDE, "KERNEL": ("waves and split",), "num_warps": (8,), "num_stages": (3, 4), "STORE": ("halves", "direct")},
    {**_SQUARE, "KERNEL": ("tma", "waves and split"), "num_warps": (4, 8), "num_stages": (3, 4), "STORE": ("tma", "halves")},
    {**_SQUARE, "KERNEL": ("persistent",), "num_warps": (4,), "num_stages": (3, 4), "STORE": ("tma",)},
    {**_SQUARE, "KERNEL": ("specialised",), "num_warps": (4,), "num_stages": (3, 4, 5), "STORE": ("direct",)},
    {**_WIDE, "BM": (256,), "BN": (128,), "KERNEL": ("persistent", "specialised"), "num_warps": (4, 8), "num_stages": (3,),
     "STORE": ("direct",)}]
_MATMUL_SKINNY: list[Mapping[str, Sequence[Any]]] = [{**_SKINNY, "KERNEL": ("tiles",)}, {**_SKINNY, "KERNEL": ("tma",)}]
_ATTENTION: list[Mapping[str, Sequence[Any]]] = [
    {"BM": (64, 128), "BN": (64, 128), "num_warps": (4, 8), "num_stages": (2, 3), "KERNEL": ("two stages", "tma")},
    {"BM": (128,), "BN": (64, 128), "num_warps": (4,), "num_stages": (2, 3, 4), "KERNEL": ("specialised",)},
    {"BM": (128, 256), "BN": (64, 128), "num_warps": (4,), "num_stages": (2, 3, 4), "KERNEL": ("overlapped",)},
    {"BM": (64,), "BN": (64,), "num_warps": (4,), "num_stages": (3,), "KERNEL": ("one loop",)}]
DESIGNS: dict[str, list[Mapping[str, Sequence[Any]]]] = {
    "matmul": _MATMUL, "matmul_bias_act": _MATMUL, "attention": _ATTENTION, "gqa_attention": _ATTENTION,
    "decode_attention": [{"BN": (32, 64, 128), "SPLITS": (1, 2, 4, 8, 16, 32), "num_warps": (4,), "num_stages": (2, 3, 4)}],
    "grouped_matmul": [
        {"BM": (128,), "BN": (128, 256), "BK": (64,), "GM": (1, 8), "num_warps": (8,), "num_stages": (3, 4),
         "KERNEL": ("tiles", "tma", "persistent")},
        {"BM": (16, 32), "BN": (64, 128), "BK": (128,), "GM": (1,), "num_warps": (4,), "num_stages": (3, 4, 5),
         "KERNEL": ("tiles", "tma", "persistent")}]}
RIGHT = 3                       # configurations of each kernel that an awkward shape tries
FACTS = ("registers", "spills", "smem_bytes", "relative_error", "compile_s", "ended")
QUICK = {"max_ms": 100.0, "max_samples": 20}
LIMITS = Seconds(run_s=8, compile_s=45)
SEARCH_S, EVERY_S = 8.0, 90.0


def designs(operator: Operator, shape: Mapping[str, int], dtype: str, device: Limits) -> list[Config]:
    """The operator's default configuration and the known designs that its space has."""
    space = operator.space(shape, dtype, device)
    bk = {"BK": (128,)} if dtype == "fp8" else {}             # as many bytes as 64 of 16 bits
    skinny = operator.name.startswith("matmul") and shape["M"] <= 64
    groups = _MATMUL_SKINNY if skinny else DESIGNS[operator.name]
    made = (operator.complete(dict(zip(group, values, strict=True))) for group in groups
            for values in product(*{**group, **bk}.values()))
    default = operator.default_config(shape, dtype, device)
    return list({config_key(config): config for config in (default, *made) if config in space}.values())


def one_of_each(space: Space) -> list[Config]:
    """Small tiles of each kernel: they have the most edges. Spread over the space, every way of the epilogue."""
    kinds: dict[tuple[Any, ...], list[Config]] = {}
    for config in space.configs():
        split = config.get("SPLIT_K", config.get("SPLITS", 1)) != 1
        kinds.setdefault((config.get("KERNEL"), config.get("STORE"), split), []).append(config)
    return [configs[place] for configs in kinds.values()
            for place in sorted({0, len(configs) // 2, len(configs) - 1})[:RIGHT]]


def read_shapes(path: Path) -> list[Case]:
    """Return the shapes of a file: its "shapes" are rows of operator, dtype, names of the dimensions and lists of sizes."""
    return [case for operator, dtype, names, sizes in json.loads(path.read_text())["shapes"]
            for case in _sized(operator, dtype, names, *sizes)]


class Recorder:
    def __init__(self, folder: Path, mode: str) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.path, self.began_s = folder / f"{mode}.json", time.monotonic()
        self.document: dict[str, Any] = {"mode": mode, "arguments": sys.argv[1:], "shapes": []}
        self.cards = gpu.gpus()
        self.runner = SandboxRunner("matmul", {"M": 64, "N": 64, "K": 64}, "bf16", self.cards[0].index, seed=5, limits=LIMITS,
                                    policy=QUICK, gpu_uuid=",".join(card.uuid for card in self.cards))

    def shape(self, case: Case, choose: Any, seconds: float | None, again: bool) -> None:
        """One shape: trials, finalists, a line for people, the document."""
        name, dtype, shape = case
        operator = find(name)
        if operator is not None and operator.gpus(shape) > len(self.cards):
            return
        row: dict[str, Any] = {"operator": name, "dtype": dtype, "shape": shape}
        self.document["shapes"].append(row)
        try:
            assert operator is not None, f"no operator {name}"
            began_s = time.monotonic()
            self.runner.move(name, shape, dtype)
            session = self.runner.open()
            self.document |= {"gpu": session.gpu, "environment": session.environment, "policy": session.policy}
            device = limits(session.gpu, session.compute_capability, session.environment.get("sms"))
            space, strategy, first = choose(operator, shape, dtype, device)
            default = operator.default_config(shape, dtype, device)
            known = of_operator(operator, shape, dtype, device, default=default) if strategy == DEFAULT else None
            trials = list(tune(space, strategy, self.runner, Budget(seconds=seconds), 5, first=first, known=known))
            row |= _summary(trials, session.library_ms, session.flops, session.bytes)
            row |= {"space": len(space), "seconds": round(time.monotonic() - began_s, 2)}
            if again:
                row["finalists"] = [one.as_json() for one in measure_finalists(self.runner, trials, default)]
                row["ratio_again"] = row["finalists"][0].get("library") if row["finalists"] else None
            row["trials"] = [_trial(trial) for trial in trials]
        except Exception as error:      # the next shape may work
            row["error"] = f"{type(error).__name__}: {error}"[:800]
        print(_line(row), flush=True)
        self.path.write_text(json.dumps({**self.document, "use": vars(self.runner.use()),
                                         "seconds": round(time.monotonic() - self.began_s, 1)}, indent=1, default=str))


    def warm(self) -> None:
        """Search something small, for nothing: a lease's first compile imports torch and Triton sixteen times from a cold disk."""
        matmul, shape = find("matmul"), {"M": 256, "N": 256, "K": 256}
        assert matmul is not None
        self.runner.move("matmul", shape, "bf16")
        session = self.runner.open()
        space = matmul.space(shape, "bf16", limits(session.gpu, session.compute_capability, session.environment.get("sms")))
        for _ in tune(space, "random", self.runner, Budget(trials=32), 5):
            pass


def _trial(trial: Trial) -> dict[str, Any]:
    outcome = trial.outcome
    row: dict[str, Any] = {"config": dict(trial.config), "at_s": round(trial.at_s, 2),
                           **{name: outcome.facts[name] for name in FACTS if name in outcome.facts}}
    if isinstance(outcome, Measured):
        return {**row, "median_ms": outcome.median_ms, "n": outcome.n}
    return {**row, "rejected": str(outcome.reason), "message": outcome.message[:300]}


def _summary(trials: Sequence[Trial], library_ms: float | None, flops: int | None, moved: int | None) -> dict[str, Any]:
    timed = sorted((t.median_ms, t.number, t) for t in trials if t.median_ms is not None and not is_raced(t))
    rejected: dict[str, int] = {}
    for trial in trials:
        if trial.median_ms is None:
            rejected[str(trial.outcome.reason)] = rejected.get(str(trial.outcome.reason), 0) + 1       # type: ignore[union-attr]
    row: dict[str, Any] = {"library_ms": library_ms, "tried": len(trials), "rejected": rejected}
    if not timed:
        return row
    best_ms = timed[0][0]
    kernels: dict[str, float] = {}
    for ms, _, trial in timed:
        kernels.setdefault(str(trial.config.get("KERNEL", "")), round(ms, 5))
    return {**row, "best_ms": best_ms, "best": dict(timed[0][2].config), "ratio": library_ms / best_ms if library_ms else None,
            "tflops": flops / best_ms / 1e9 if flops else None, "gb_per_s": moved / best_ms / 1e6 if moved else None,
            "best_of_kernel": kernels}


def _line(row: dict[str, Any]) -> str:
    what = f"{row['operator']} {row['dtype']} {'×'.join(str(size) for size in row['shape'].values())}"
    if "best_ms" not in row:
        return f"{what}: {row.get('error') or 'nothing measured'} {row.get('rejected', '')}"
    ratio, again = row["ratio"], row.get("ratio_again")
    return (f"{what}: {row['best_ms']:.4f} ms, library {row['library_ms'] or 0:.4f}, ratio {ratio or 0:.3f}"
            f"{f' (again {again:.3f})' if again else ''}, {row['tflops'] or 0:.0f} TFLOP/s, {row['gb_per_s'] or 0:.0f} GB/s, "
            f"{row['tried']} tried {row['rejected']}, {row['seconds']} s, {row['best_of_kernel']} "
            f"{row['best']} {row.get('error', '')}")


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seconds", type=float, default=0.0, help=f"at each shape; {SEARCH_S} of search, {EVERY_S} of all")
    parser.add_argument("--designs", action="store_true", help="known designs instead of a search")
    parser.add_argument("--every", action="store_true", help="every configuration of a shape instead of a search")
    parser.add_argument("--gpus", type=int, default=0, help="only shapes of so many GPUs")
    parser.add_argument("--only", nargs="*", default=[], metavar="NAME", help="operators; default all")
    parser.add_argument("--shapes", type=Path, help="a file of shapes in place of this one's")
    parser.add_argument("--part", default="0/1", metavar="I/N", help="every N-th shape from the I-th on")
    given = parser.parse_args(arguments)
    mode = "designs" if given.designs else "every" if given.every else "ratios"
    recorder = Recorder(given.folder, mode)
    try:
        recorder.warm()
        first, step = map(int, given.part.split("/"))
        shapes = read_shapes(given.shapes) if given.shapes else SHAPES
        for case, choose, seconds, again in islice(_work(mode, given.seconds, shapes), first, None, step):
            if (not given.only or case[0] in given.only) and given.gpus in (0, case[2].get("G", 1)):
                recorder.shape(case, choose, seconds, again)
    finally:
        recorder.runner.close()


def _work(mode: str, seconds: float, shapes: Sequence[Case]) -> Iterator[tuple[Case, Any, float | None, bool]]:
    def search(operator: Operator, shape: Mapping[str, int], dtype: str, device: Limits) -> Any:
        space = operator.space(shape, dtype, device)
        return space, DEFAULT, [operator.default_config(shape, dtype, device),
                                *operator.published_starts(space, shape, dtype, device)]

    def listed(operator: Operator, shape: Mapping[str, int], dtype: str, device: Limits) -> Any:
        return Space.listed(designs(operator, shape, dtype, device)), "exhaustive", []

    def spread(operator: Operator, shape: Mapping[str, int], dtype: str, device: Limits) -> Any:
        return Space.listed(one_of_each(operator.space(shape, dtype, device))), "exhaustive", []

    def whole(operator: Operator, shape: Mapping[str, int], dtype: str, device: Limits) -> Any:
        return operator.space(shape, dtype, device), "random", []       # where the time ends before it: a fair part of it

    if mode == "every":
        yield from (((name, other, shape), whole, seconds or EVERY_S, False) for name, dtype, shape in shapes
                    for other in ((dtype, "fp16") if dtype == "bf16" else (dtype,)))
    elif mode == "designs":
        yield from ((case, spread, 20.0, False) for case in AWKWARD)
        yield from ((case, listed, 25.0, False) for case in DESIGN_SHAPES)
    else:
        yield from ((case, search, seconds or SEARCH_S, True) for case in shapes)


if __name__ == "__main__":
    main()
