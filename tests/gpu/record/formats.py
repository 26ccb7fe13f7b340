"""Record one small real file of every format that a GPU machine's frameworks write, with what they say of them themselves.

    python tests/gpu/record/formats.py FOLDER

Needs a GPU, torch and Triton; JAX where it is installed. Each part stands alone: what is missing is said and left out.
The files kept in tests/data/recorded were made with it; their README has GPU, versions and date.
"""

from __future__ import annotations

import gzip
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path


def train(steps: int, profiler: object | None = None) -> None:
    """A small two-layer perceptron with attention, AdamW, and a value read every step."""
    import torch

    model = torch.nn.Sequential(torch.nn.Linear(1024, 4096), torch.nn.GELU(), torch.nn.Linear(4096, 1024)).cuda().bfloat16()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    for _ in range(steps):
        x = torch.randn(512, 1024, device="cuda", dtype=torch.bfloat16)
        with torch.profiler.record_function("forward"):
            heads = model(x).view(8, 64, 8, 128).transpose(1, 2)
            loss = torch.nn.functional.scaled_dot_product_attention(heads, heads, heads).float().square().mean()
        with torch.profiler.record_function("backward"):
            loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        loss.item()
        if profiler is not None:
            profiler.step()
    torch.cuda.synchronize()


def snapshot(folder: Path) -> None:
    """torch.cuda.memory._dump_snapshot of three training steps, and the allocator's own totals."""
    import torch

    torch.cuda.memory._record_memory_history(max_entries=20_000)
    train(3)
    held = [torch.empty(size, device="cuda") for size in (3 << 20, 5 << 20, 1 << 20)]
    del held[1]
    torch.cuda.memory._dump_snapshot(str(folder / "torch_snapshot.pickle"))
    stats = torch.cuda.memory_stats()
    wanted = ("allocated_bytes.all.current", "allocated_bytes.all.peak", "reserved_bytes.all.current", "reserved_bytes.all.peak",
              "allocation.all.current", "segment.all.current", "active_bytes.all.current")
    (folder / "torch_snapshot_truth.json").write_text(json.dumps({name: stats[name] for name in wanted}, indent=1))
    torch.cuda.memory._record_memory_history(enabled=None)


def kineto(folder: Path) -> None:
    """torch.profiler with stacks, shapes and memory over training steps and replays of one CUDA graph; its own sums."""
    import torch
    from torch.profiler import ProfilerActivity, profile, schedule

    x = torch.randn(2048, 2048, device="cuda", dtype=torch.float16)
    weight = torch.randn(2048, 2048, device="cuda", dtype=torch.float16)
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            torch.softmax(x @ weight, -1)
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = x
        for _ in range(20):
            y = torch.softmax(y @ weight, -1)
    train(2)
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA], record_shapes=True, with_stack=True,
                 profile_memory=True, schedule=schedule(wait=1, warmup=1, active=2)) as prof:
        for _ in range(4):
            train(1)
            with torch.profiler.record_function("graph replay"):
                graph.replay()
            torch.cuda.synchronize()
            prof.step()
    path = folder / "torch_graph_stack_memory.json"
    prof.export_chrome_trace(str(path))
    kept = folder / "torch_graph_stack_memory.json.gz"
    kept.write_bytes(gzip.compress(path.read_bytes(), 9, mtime=0))
    path.unlink()
    rows = [{"key": row.key, "count": row.count, "device_us": row.self_device_time_total} for row in prof.key_averages()
            if row.self_device_time_total]
    (folder / "torch_graph_stack_memory_truth.json").write_text(json.dumps(rows, indent=0))


def proton(folder: Path) -> None:
    """Triton's Proton: the tree with launch metadata and, as another run, its trace."""
    import torch
    import triton
    import triton.language as tl
    import triton.profiler as proton

    def metadata(grid: tuple[int, ...], _: object, args: dict[str, object]) -> dict[str, object]:
        n = int(args["n"])
        return {"name": f"axpy_{n}", "bytes": 12 * n, "flops32": 2 * n}

    @triton.jit(launch_metadata=metadata)
    def axpy(x, y, out, n, BLOCK: tl.constexpr):
        at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        mask = at < n
        tl.store(out + at, 2.0 * tl.load(x + at, mask) + tl.load(y + at, mask), mask)

    def work() -> None:
        for n in (1 << 20, 1 << 22):
            x, y = torch.randn(n, device="cuda"), torch.randn(n, device="cuda")
            with proton.scope("step", metrics={"elements": n}):
                for _ in range(3):
                    axpy[(triton.cdiv(n, 1024),)](x, y, torch.empty_like(x), n, BLOCK=1024)
                with proton.scope("torch"):
                    (x @ x, torch.softmax(x.view(1024, -1), -1))
        torch.cuda.synchronize()

    work()
    for data in ("tree", "trace"):
        with tempfile.TemporaryDirectory() as scratch:
            proton.start(str(Path(scratch) / "out"), context="shadow", data=data, hook="triton")
            work()
            proton.finalize()
            for made in Path(scratch).iterdir():
                shutil.copy(made, folder / f"proton_{data}{made.suffix}")


def jax_trace(folder: Path) -> None:
    """JAX's profiler: xplane.pb and the trace JSON that it writes beside it."""
    program = (
        "import sys, jax, jax.numpy as jnp\n"
        "step = jax.jit(lambda x, w: jax.nn.softmax(jnp.tanh(x @ w) @ w.T, -1))\n"
        "x, w = jnp.ones((1024, 2048), jnp.bfloat16), jnp.ones((2048, 2048), jnp.bfloat16)\n"
        "step(x, w).block_until_ready()\n"
        "with jax.profiler.trace(sys.argv[1], create_perfetto_trace=True):\n"
        "    for i in range(5):\n"
        "        with jax.profiler.StepTraceAnnotation('train', step_num=i):\n"
        "            x = step(x, w)\n"
        "    x.block_until_ready()\n")
    with tempfile.TemporaryDirectory() as scratch:
        environment = os.environ | {"XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
        subprocess.run([sys.executable, "-c", program, scratch], check=True, timeout=180, env=environment)
        for made in Path(scratch).rglob("*"):
            if made.is_file():
                whole = "jax_" + made.name.split(".", 1)[-1] if "perfetto" not in made.name else "jax_" + made.name
                shutil.copy(made, folder / whole)


PARTS: tuple[Callable[[Path], None], ...] = (kineto, snapshot, proton, jax_trace)


def main(folder: Path) -> None:
    """Each part in a process of its own: CUPTI serves one profiler of a process."""
    import torch
    import triton

    folder.mkdir(parents=True, exist_ok=True)
    facts = {"gpu": torch.cuda.get_device_name(), "torch": torch.__version__, "triton": triton.__version__,
             "cuda": torch.version.cuda, "python": sys.version.split()[0]}
    for part in PARTS:
        ran = subprocess.run([sys.executable, __file__, str(folder), part.__name__], capture_output=True, text=True, timeout=300)
        if ran.returncode:
            facts[part.__name__] = ran.stderr[-600:]
    (folder / "versions.json").write_text(json.dumps(facts, indent=1))
    sys.stdout.write("\n".join(f"{path.stat().st_size:>10,} {path.name}" for path in sorted(folder.iterdir())) + "\n")
    sys.stdout.write(json.dumps(facts, indent=1) + "\n")


if __name__ == "__main__":
    if len(sys.argv) == 3:
        {part.__name__: part for part in PARTS}[sys.argv[2]](Path(sys.argv[1]))
    else:
        main(Path(sys.argv[1]))
