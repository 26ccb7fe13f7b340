"""Record, on a machine with GPUs, programs with one known fault each: what the account of the time is tested on.

    python -m tests.gpu.faults.record FOLDER          one GPU
    python -m tests.gpu.faults.record FOLDER ranks    two GPUs

`tests/profiles/account/planted.py` plays the same faults on a model of a host and its GPUs. Each fault is recorded in a process
of its own: what fails is said and left out. Files of NAME.json.gz, some 10 to 100 kB each.
"""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

from tests.gpu.record.causes import _model, _profiled, _step

STEPS = 6


def _record(folder: Path, name: str, step: Callable[[int], None], warm: int = 3, **options: Any) -> None:
    import torch

    for number in range(-warm, 0):
        step(number)
    torch.cuda.synchronize()

    def run(profiler: Any) -> None:
        for number in range(STEPS):
            step(number)
            profiler.step()

    _profiled(folder, name, run, **options)


def pageable_copies(folder: Path) -> None:
    """4 × 32 MB from pageable memory each step."""
    import torch

    host = [torch.randn(8 << 20) for _ in range(4)]
    weight = torch.randn(2048, 2048, device="cuda", dtype=torch.bfloat16)

    def step(number: int) -> None:
        for each in host:
            each.to("cuda")
        for _ in range(8):
            weight @ weight

    _record(folder, "fault_pageable_copies", step)


def synchronisation(folder: Path) -> None:
    """A value is read after every four products, then the host works for as long as they took."""
    import torch

    a = torch.randn(4096, 4096, device="cuda", dtype=torch.bfloat16)

    def step(number: int) -> None:
        for _ in range(5):
            for _ in range(4):
                b = a @ a
            b[0, 0].item()
            end = time.perf_counter() + 0.0008
            while time.perf_counter() < end:
                pass

    _record(folder, "fault_synchronisation", step)


def small_kernels(folder: Path) -> None:
    """200 additions of 256 numbers each step."""
    import torch

    x = torch.zeros(256, device="cuda")

    def step(number: int) -> None:
        for _ in range(200):
            x.add_(1.0)

    _record(folder, "fault_small_kernels", step)


def full_queue(folder: Path) -> None:
    """700 products of some 40 µs each step: the host runs ahead until a launch blocks."""
    import torch

    a = torch.randn(2048, 2048, device="cuda", dtype=torch.bfloat16)

    def step(number: int) -> None:
        for _ in range(700):
            torch.mm(a, a)

    _record(folder, "fault_full_queue", step, warm=1)


def allocator_stalls(folder: Path) -> None:
    """The cache of the allocator is emptied in every step: memory is allocated and freed again."""
    import torch

    weight = torch.randn(2048, 2048, device="cuda", dtype=torch.bfloat16)

    def step(number: int) -> None:
        kept = [torch.empty(64 << 20, device="cuda", dtype=torch.uint8) for _ in range(8)]
        weight @ weight
        del kept
        torch.cuda.empty_cache()

    _record(folder, "fault_allocator_stalls", step)


def blocking_memset(folder: Path) -> None:
    """12 GB are set to zero in every step, before the products."""
    import torch

    weight = torch.randn(2048, 2048, device="cuda", dtype=torch.bfloat16)
    buffer = torch.empty(12 << 30, device="cuda", dtype=torch.uint8)

    def step(number: int) -> None:
        buffer.zero_()
        for _ in range(10):
            weight @ weight

    _record(folder, "fault_blocking_memset", step)


def garbage_collection(folder: Path) -> None:
    """A million objects in circles are looked through in every step."""
    import torch

    heap: list[list[Any]] = [[] for _ in range(1_000_000)]
    for one, other in pairwise(heap):
        one.append(other)
    weight = torch.randn(2048, 2048, device="cuda", dtype=torch.bfloat16)

    def step(number: int) -> None:
        for _ in range(10):
            weight @ weight
        gc.collect()

    _record(folder, "fault_garbage_collection", step, with_stack=True)


def serial_streams(folder: Path) -> None:
    """Two streams of products that fill a part of the GPU, each made to wait for the other by events."""
    import torch

    streams = [torch.cuda.Stream(), torch.cuda.Stream()]
    a = torch.randn(4, 128, 131072, device="cuda", dtype=torch.bfloat16)          # cuBLAS gives it 64 blocks; the GPU has 132 SMs
    b = torch.randn(4, 131072, 128, device="cuda", dtype=torch.bfloat16)

    def step(number: int) -> None:
        last = None
        for _ in range(20):
            for stream in streams:
                with torch.cuda.stream(stream):
                    if last is not None:
                        stream.wait_event(last)
                    for _ in range(2):
                        torch.bmm(a, b)
                    last = stream.record_event()

    _record(folder, "fault_serial_streams", step)


def tf32_off(folder: Path) -> None:
    """Products in fp32 while TF32 is not allowed."""
    import torch

    torch.backends.cuda.matmul.allow_tf32 = False
    a = torch.randn(4096, 4096, device="cuda")

    def step(number: int) -> None:
        for _ in range(4):
            (a @ a).relu_()

    _record(folder, "fault_tf32_off", step)


def recompilation(folder: Path) -> None:
    """Every step has another length, and shapes are compiled in."""
    import torch

    model, optimizer = _model()
    compiled = torch.compile(model, dynamic=False)

    def step(number: int) -> None:
        _step(compiled, optimizer, torch.randn(256 + 8 * number, 1024, device="cuda"))

    _record(folder, "fault_recompilation", step, warm=1)


def transformer_layer(folder: Path) -> None:
    """Not a fault: a decoder layer of a language model, forward only, with shapes; `_truth.json` holds its sizes."""
    import json

    import torch
    from transformers import LlamaConfig
    from transformers.models.llama.modeling_llama import LlamaDecoderLayer, LlamaRotaryEmbedding

    sizes = {"batch": 2, "tokens": 2048, "hidden": 4096, "heads": 32, "kv_heads": 8, "ffn": 14336, "steps": STEPS}
    config = LlamaConfig(hidden_size=4096, intermediate_size=14336, num_attention_heads=32, num_key_value_heads=8,
                         num_hidden_layers=1)
    config._attn_implementation = "sdpa"
    torch.set_default_dtype(torch.bfloat16)
    layer, rotary = LlamaDecoderLayer(config, 0).cuda().eval(), LlamaRotaryEmbedding(config).cuda()
    x = torch.randn(2, 2048, 4096, device="cuda")
    positions = torch.arange(2048, device="cuda")[None]
    angles = rotary(x, positions)

    def step(number: int) -> None:
        with torch.no_grad(), torch.profiler.record_function("layer"):
            layer(x, position_embeddings=angles, position_ids=positions)

    _record(folder, "transformer_layer", step, record_shapes=True)
    (folder / "transformer_layer_truth.json").write_text(json.dumps(sizes))


def rank_dataload(rank: int) -> None:
    if rank == 1:
        import torch

        with torch.profiler.record_function("## dataload ##"):
            time.sleep(0.008)


def rank_slow_host(rank: int) -> None:
    if rank == 1:
        import torch

        x = torch.zeros(4)
        for _ in range(3000):
            x.add(1)


FAULTS = (pageable_copies, synchronisation, small_kernels, full_queue, allocator_stalls, blocking_memset, garbage_collection,
          serial_streams, tf32_off, recompilation, transformer_layer)
RANKS = (rank_dataload, rank_slow_host)


def _rank(name: str, folder: Path) -> None:
    import torch
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel

    rank = int(os.environ["RANK"])
    torch.cuda.set_device(rank)
    dist.init_process_group("nccl", device_id=torch.device("cuda", rank))
    layers = [torch.nn.Linear(4096, 4096) for _ in range(8)]
    model = DistributedDataParallel(torch.nn.Sequential(*layers).cuda().bfloat16(), device_ids=[rank])
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, foreach=True)
    x = torch.randn(8192, 4096, device="cuda", dtype=torch.bfloat16)
    late = {each.__name__: each for each in RANKS}[name]

    def step(number: int) -> None:
        late(rank)
        _step(model, optimizer, x)

    for _ in range(3):
        step(0)
    torch.cuda.synchronize()
    dist.barrier()
    _record(folder, f"fault_{name}_rank{rank}", step, warm=0)
    dist.destroy_process_group()


def main() -> None:
    folder = Path(sys.argv[1])
    what = sys.argv[2] if len(sys.argv) > 2 else "all"
    folder.mkdir(parents=True, exist_ok=True)
    if what.startswith("rank:"):
        _rank(what.removeprefix("rank:"), folder)
    elif what == "ranks":
        for name in (each.__name__ for each in RANKS):
            env = {**os.environ, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29519", "WORLD_SIZE": "2",
                   "NCCL_DEBUG": "INFO", "NCCL_DEBUG_SUBSYS": "INIT,GRAPH,ENV,TUNING,COLL"}
            children = [subprocess.Popen([sys.executable, "-m", "tests.gpu.faults.record", str(folder), f"rank:{name}"],
                                         env={**env, "RANK": str(rank), "NCCL_DEBUG_FILE": str(folder / f"nccl_{name}.{rank}.log")},
                                         stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) for rank in range(2)]
            for rank, child in enumerate(children):
                out, _ = child.communicate(timeout=240)
                print(name, rank, child.returncode, out[-600:], flush=True)
    elif what == "all":
        for name in (each.__name__ for each in FAULTS):
            done = subprocess.run([sys.executable, "-m", "tests.gpu.faults.record", str(folder), name], capture_output=True,
                                  text=True, timeout=240)
            print(name, done.returncode, done.stdout[-400:], done.stderr[-600:] if done.returncode else "", flush=True)
    else:
        {each.__name__: each for each in FAULTS}[what](folder)


if __name__ == "__main__":
    main()
