"""Record what ranks and memory look like where it is known who is late, how fast collectives are, and what the bytes are for.

    python tests/gpu/record/ranks.py FOLDER

Needs torch; the parts on ranks have a rank on each GPU of the host, two or more. Each part stands alone: what fails is said and
left out. Truth files hold what the program itself knows: times by CUDA events, sizes of parameters, gradients and optimizer state.
"""

from __future__ import annotations

import gzip
import json
import os
import shutil
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

STEPS = 4
SIZES = (1 << 20, 1 << 24, 1 << 28)          # bytes of a collective
REPEATS = 5


def _written(profiler: Any, path: Path) -> None:
    with tempfile.NamedTemporaryFile(suffix=".json", delete=False) as file:
        profiler.export_chrome_trace(file.name)
    with open(file.name, "rb") as source, gzip.open(path, "wb", 9) as packed:
        shutil.copyfileobj(source, packed)
    os.unlink(file.name)


def _profiler(**options: Any) -> Any:
    from torch.profiler import ProfilerActivity, profile

    return profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA], record_shapes=True, **options)


def stragglers(rank: int, folder: Path) -> None:
    """Steps of matrix products and one all-reduce; one rank (1 of 2, 2 of 4, 4 of 8) computes more, then sleeps on the host."""
    import torch
    import torch.distributed as dist
    from torch.profiler import record_function

    late = dist.get_world_size() // 2

    a = torch.randn(4096, 4096, device="cuda", dtype=torch.bfloat16)
    gradient = torch.randn(8 << 20, device="cuda")
    for cause in ("even", "compute", "host"):
        def step(cause: str = cause) -> None:
            with record_function("forward"):
                for _ in range(12 if cause == "compute" and rank == late else 8):
                    torch.mm(a, a)
            if cause == "host" and rank == late:
                torch.cuda.synchronize()
                with record_function("load the batch"):
                    time.sleep(0.004)
            dist.all_reduce(gradient)
            torch.cuda.synchronize()

        for _ in range(3):
            step()
        dist.barrier()
        with _profiler() as profiler:
            for _ in range(STEPS):
                with record_function("step"):
                    step()
        _written(profiler, folder / f"straggler_{cause}_rank{rank}.json.gz")


def collectives(rank: int, folder: Path) -> None:
    """Every collective in three sizes; the program's own times by CUDA events, without a profiler."""
    import torch
    import torch.distributed as dist

    truth, world = list[dict[str, Any]](), dist.get_world_size()

    def calls(size: int) -> dict[str, Callable[[], Any]]:
        whole, half = torch.zeros(size // 4, device="cuda"), torch.zeros(size // 4 // world, device="cuda")
        other = torch.zeros(size // 4, device="cuda")
        return {
            "allreduce": lambda: dist.all_reduce(whole), "allgather": lambda: dist.all_gather_into_tensor(whole, half),
            "reducescatter": lambda: dist.reduce_scatter_tensor(half, whole), "broadcast": lambda: dist.broadcast(whole, 0),
            "alltoall": lambda: dist.all_to_all_single(other, whole), "reduce": lambda: dist.reduce(whole, 0),
            "sendrecv": lambda: dist.send(whole, 1) if rank == 0 else dist.recv(whole, 0) if rank == 1 else None}

    for size in SIZES:
        for name, call in calls(size).items():
            for _ in range(3):
                call()
            times = []
            for _ in range(20):
                torch.cuda.synchronize()
                dist.barrier()
                begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
                begin.record()
                call()
                end.record()
                torch.cuda.synchronize()
                times.append(begin.elapsed_time(end) * 1e6)
            truth.append({"collective": name, "bytes": size, "ranks": world, "median_ns": sorted(times)[len(times) // 2],
                          "min_ns": min(times)})
    with _profiler() as profiler:
        for size in SIZES:
            for call in calls(size).values():
                for _ in range(REPEATS):
                    call()
                torch.cuda.synchronize()
    _written(profiler, folder / f"collectives_rank{rank}.json.gz")
    said = {"nccl": torch.cuda.nccl.version(), "runs": truth}
    (folder / f"collectives_truth_rank{rank}.json").write_text(json.dumps(said, indent=1))


def _rank(rank: int, folder: Path, world: int) -> None:
    import torch
    import torch.distributed as dist

    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29517", "NCCL_NVLS_ENABLE": "0"}
    torch.cuda.set_device(rank)
    dist.init_process_group("nccl", rank=rank, world_size=world, device_id=torch.device("cuda", rank))
    for part in (stragglers, collectives):
        part(rank, folder)
    dist.destroy_process_group()


def ranks(folder: Path) -> None:
    import torch

    if (world := torch.cuda.device_count()) < 2:
        raise RuntimeError("two GPUs are needed")
    torch.multiprocessing.spawn(_rank, (folder, world), nprocs=world)


def _round(size: int) -> int:
    return -(-size // 512) * 512


def memory(folder: Path) -> None:
    """Three training steps recorded from before the model is made, by the profiler and by the allocator's own history."""
    import torch

    layers, width, batch = 6, 2048, 4096

    def train(profiler: Any = None) -> dict[str, Any]:
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        model: Any = torch.nn.Sequential(*(
            each for _ in range(layers) for each in (torch.nn.Linear(width, width), torch.nn.GELU()))).cuda()
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-4, foreach=True)
        saved: dict[int, int] = {}
        own = {each.untyped_storage().data_ptr() for each in model.parameters()}

        def pack(tensor: Any) -> Any:
            storage = tensor.untyped_storage()
            if tensor.is_cuda and storage.data_ptr() not in own:
                saved[storage.data_ptr()] = _round(storage.nbytes())
            return tensor

        for _ in range(3):
            saved.clear()
            inputs = torch.randn(batch, width, device="cuda")
            with torch.profiler.record_function("forward"), torch.autograd.graph.saved_tensors_hooks(pack, lambda each: each):
                loss = model(inputs).square().mean()
            with torch.profiler.record_function("backward"):
                loss.backward()
            gradient_bytes = sum(_round(each.grad.untyped_storage().nbytes()) for each in model.parameters())
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            if profiler is not None:
                profiler.step()
        torch.cuda.synchronize()
        state = sum(_round(value.untyped_storage().nbytes()) for each in optimizer.state.values() for value in each.values()
                    if torch.is_tensor(value) and value.is_cuda)
        return {"parameter_bytes": sum(_round(each.untyped_storage().nbytes()) for each in model.parameters()),
                "gradient_bytes": gradient_bytes, "optimizer_state_bytes": state,
                "saved_for_backward_bytes": sum(saved.values()), "input_bytes": _round(batch * width * 4),
                "allocated_before_bytes": before, "peak_bytes": torch.cuda.max_memory_allocated(),
                "peak_reserved_bytes": torch.cuda.max_memory_reserved(), "allocated_at_end_bytes": torch.cuda.memory_allocated()}

    train()
    with _profiler(profile_memory=True, with_stack=False) as profiler:
        truth = train(profiler)
    _written(profiler, folder / "memory_train.json.gz")
    (folder / "memory_train_truth.json").write_text(json.dumps(truth, indent=1))
    torch.cuda.empty_cache()
    torch.cuda.memory._record_memory_history(max_entries=20_000, stacks="python")
    truth = train()
    torch.cuda.memory._dump_snapshot(str(folder / "memory_train_snapshot.pickle"))
    torch.cuda.memory._record_memory_history(enabled=None)
    (folder / "memory_train_snapshot_truth.json").write_text(json.dumps(truth, indent=1))


def main() -> None:
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    for part in (memory, ranks):
        try:
            part(folder)
            print(part.__name__, "recorded")
        except Exception:
            traceback.print_exc()


if __name__ == "__main__":
    main()
