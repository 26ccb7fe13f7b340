"""Record, on a machine with GPUs, what the analyses of issue "why is it slow" are tested on: causes that were put there.

    python tests/gpu/record/causes.py counters FOLDER      one GPU, ncu and nvcc
    python tests/gpu/record/causes.py traces FOLDER        one GPU
    python tests/gpu/record/causes.py ranks FOLDER         two GPUs

The files kept in tests/data/causes were made with it; their README has GPU, versions and date. Each part stands alone:
what fails is said and left out. Clocks and settings of the GPU are left alone.
"""

from __future__ import annotations

import gzip
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parents[1]
NCU = ("ncu", "--clock-control", "none", "-f", "--target-processes", "all")
SOURCE = ("--set", "full", "--import-source", "yes")
LIGHT = ("--set", "detailed", "--section", "SourceCounters")
STEPS = 5


def counters(folder: Path) -> None:
    """causes.cu in two builds, and one 4096³ product per precision."""
    for build, flags, what in (("planted", [], SOURCE), ("mended", ["-DMENDED"], LIGHT)):
        program = folder / f"causes_{build}"
        subprocess.run(["nvcc", "-O3", "-lineinfo", "-arch=sm_90", *flags, "-o", program, HERE / "causes.cu"], check=True)
        _ncu(folder / f"causes_{build}.ncu-rep", what, [str(program)])
        program.unlink()
    _ncu(folder / "precisions.ncu-rep", ("--set", "full", "--profile-from-start", "off"),
         [sys.executable, __file__, "precisions", str(folder)])
    for page in ("raw", "details"):
        for name in ("causes_planted", "causes_mended", "precisions"):
            report = folder / f"{name}.ncu-rep"
            if report.exists():
                out = subprocess.run(["ncu", "-i", str(report), "--page", page, "--csv"], capture_output=True, check=True).stdout
                with gzip.open(folder / f"{name}_{page}.csv.gz", "wb") as file:
                    file.write(out)
    for report in folder.glob("*.ncu-rep"):
        with open(report, "rb") as source, gzip.open(f"{report}.gz", "wb") as target:
            shutil.copyfileobj(source, target)
        report.unlink()


def _ncu(report: Path, what: tuple[str, ...], command: list[str]) -> None:
    done = subprocess.run([*NCU, *what, "-o", str(report.with_suffix("")), *command], capture_output=True, text=True)
    print(report.name, done.returncode, done.stdout[-400:], done.stderr[-400:], flush=True)


def precisions(folder: Path) -> None:
    """One 4096³ product in every precision torch multiplies in, between profiler start and stop."""
    import torch

    n = 4096
    wide = torch.randn(n, n, device="cuda")
    narrow = {"fp16": wide.half(), "bf16": wide.bfloat16()}
    double, whole = wide.double(), torch.randint(-8, 8, (n, n), device="cuda", dtype=torch.int8)
    eight = wide.to(torch.float8_e4m3fn)
    one = torch.ones((), device="cuda")

    def tf32(allowed: bool) -> Any:
        torch.backends.cuda.matmul.allow_tf32 = allowed
        return wide @ wide

    products: list[tuple[str, Callable[[], Any]]] = [
        ("fp64", lambda: double @ double), ("fp32", lambda: tf32(False)), ("tf32", lambda: tf32(True)),
        ("fp16", lambda: narrow["fp16"] @ narrow["fp16"]), ("bf16", lambda: narrow["bf16"] @ narrow["bf16"]),
        ("fp8", lambda: torch._scaled_mm(eight, eight.t(), scale_a=one, scale_b=one, out_dtype=torch.bfloat16)),
        ("int8", lambda: torch._int_mm(whole, whole.t()))]
    for _, product in products:
        product()
    torch.cuda.synchronize()
    for name, product in products:
        torch.cuda.cudart().cudaProfilerStart()
        product()
        torch.cuda.synchronize()
        torch.cuda.cudart().cudaProfilerStop()
        print(name, flush=True)


def traces(folder: Path) -> None:
    """Single-GPU traces with one cause each; every one in a process of its own (one profiler per process)."""
    for name in ("data_loading", "compile_warmup", "queue_full", "serial_copies", "serial_kernels", "shapes", "memory_peak"):
        done = subprocess.run([sys.executable, __file__, f"trace:{name}", str(folder)], capture_output=True, text=True, timeout=240)
        print(name, done.returncode, done.stdout[-600:], done.stderr[-600:] if done.returncode else "", flush=True)


def _profiled(folder: Path, name: str, run: Callable[[Any], None], **options: Any) -> None:
    """`run(profiler)` under torch.profiler, as NAME.json.gz."""
    import torch
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA], **options) as profiler:
        run(profiler)
        torch.cuda.synchronize()
    plain = folder / f"{name}.json"
    profiler.export_chrome_trace(str(plain))
    with open(plain, "rb") as source, gzip.open(f"{plain}.gz", "wb", 9) as target:
        shutil.copyfileobj(source, target)
    plain.unlink()


def _model() -> Any:
    import torch

    model = torch.nn.Sequential(torch.nn.Linear(1024, 4096), torch.nn.GELU(), torch.nn.Linear(4096, 1024)).cuda()
    return model, torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)


def _step(model: Any, optimizer: Any, x: Any) -> None:
    import torch

    with torch.profiler.record_function("forward"):
        loss = model(x).square().mean()
    with torch.profiler.record_function("backward"):
        loss.backward()
    with torch.profiler.record_function("optimizer"):
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)


def data_loading(folder: Path) -> None:
    """A DataLoader that takes 12 ms a batch: the GPU waits for it."""
    import torch

    class Slow(torch.utils.data.Dataset):  # type: ignore[type-arg]
        def __len__(self) -> int:
            return 512 * (STEPS + 4)

        def __getitem__(self, at: int) -> Any:
            if at % 512 == 0:
                time.sleep(0.012)
            return torch.full((1024,), float(at))

    model, optimizer = _model()
    loader = iter(torch.utils.data.DataLoader(Slow(), batch_size=512))
    for _ in range(2):
        _step(model, optimizer, next(loader).cuda())
    torch.cuda.synchronize()

    def run(profiler: Any) -> None:
        for _ in range(STEPS):
            _step(model, optimizer, next(loader).cuda())
            profiler.step()

    _profiled(folder, "data_loading", run)


def compile_warmup(folder: Path) -> None:
    """Profiled from the first step on: torch.compile works in it, the later steps are steady."""
    import torch

    model, optimizer = _model()
    compiled = torch.compile(model)
    x = torch.randn(512, 1024, device="cuda")

    def run(profiler: Any) -> None:
        for _ in range(STEPS + 2):
            _step(compiled, optimizer, x)
            profiler.step()

    _profiled(folder, "compile_warmup", run)


def queue_full(folder: Path) -> None:
    """A long product, then 3,000 short kernels launched behind it: the launch queue fills and the host is blocked."""
    import torch

    big, small = torch.randn(12288, 12288, device="cuda"), torch.zeros(256, device="cuda")
    torch.mm(big, big)
    small.add_(1.0)             # its module is loaded now: loading waits for the GPU
    torch.cuda.synchronize()

    def run(profiler: Any) -> None:
        torch.mm(big, big)
        for _ in range(3000):
            small.add_(1.0)

    _profiled(folder, "queue_full", run)


def serial_copies(folder: Path) -> None:
    """A pinned copy in, a product, a copy out, one after the other; the same with two streams as its cure."""
    import torch

    host = [torch.randn(2048, 2048).pin_memory() for _ in range(8)]
    out = [torch.empty(2048, 2048).pin_memory() for _ in range(8)]
    weight = torch.randn(2048, 2048, device="cuda")

    def serial(profiler: Any) -> None:
        for each, to in zip(host, out, strict=True):
            y = each.to("cuda", non_blocking=True)
            for _ in range(4):
                y = y @ weight * 0.01
            to.copy_(y, non_blocking=True)

    serial(None)
    torch.cuda.synchronize()
    _profiled(folder, "serial_copies", serial)


def serial_kernels(folder: Path) -> None:
    """Eight independent small products on one stream, none of which fills the GPU."""
    import torch

    a = [torch.randn(512, 512, device="cuda", dtype=torch.float16) for _ in range(8)]

    def run(profiler: Any) -> None:
        for _ in range(STEPS):
            for each in a:
                torch.mm(each, each)
            profiler.step()

    run(type("None", (), {"step": lambda self: None})())
    torch.cuda.synchronize()
    _profiled(folder, "serial_kernels", run, record_shapes=True)


def shapes(folder: Path) -> None:
    """Products that cannot or do not use tensor cores, each for its own reason; with shapes, modules and stacks."""
    import torch

    torch.backends.cuda.matmul.allow_tf32 = False
    cases = {"fp32_not_tf32": (torch.float32, 2048, 2048, 2048), "odd_k": (torch.float16, 2048, 2048, 2047),
             "good": (torch.float16, 2048, 2048, 2048), "double": (torch.float64, 1024, 1024, 1024),
             "tiny": (torch.float16, 8, 8, 8)}
    operands = {name: (torch.randn(m, k, device="cuda", dtype=kind), torch.randn(k, n, device="cuda", dtype=kind))
                for name, (kind, m, n, k) in cases.items()}
    block = torch.nn.TransformerEncoderLayer(512, 8, 2048, batch_first=True).cuda().half().eval()
    x = torch.randn(4, 256, 512, device="cuda", dtype=torch.float16)

    def run(profiler: Any) -> None:
        with torch.no_grad():
            for name, (a, b) in operands.items():
                with torch.profiler.record_function(name):
                    torch.mm(a, b)
            block(x)

    run(None)
    torch.cuda.synchronize()
    _profiled(folder, "shapes", run, record_shapes=True, with_stack=True, with_modules=True)


def memory_peak(folder: Path) -> None:
    """Training steps with memory events, and the allocator's own peak beside them."""
    import torch

    model, optimizer = _model()
    x = torch.randn(2048, 1024, device="cuda")
    _step(model, optimizer, x)
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()

    def run(profiler: Any) -> None:
        for _ in range(3):
            _step(model, optimizer, x)
            profiler.step()

    _profiled(folder, "memory_peak", run, profile_memory=True, record_shapes=True)
    stats = torch.cuda.memory_stats()
    (folder / "memory_peak_truth.json").write_text(json.dumps({
        name: stats[name] for name in ("allocated_bytes.all.peak", "allocated_bytes.all.current", "reserved_bytes.all.peak",
                                       "reserved_bytes.all.current")}, indent=1))


def ranks(folder: Path) -> None:
    """Two ranks: one late by computing more, one late by loading data, and collectives of known sizes with their rates."""
    for name in ("straggler_compute", "straggler_data", "collectives"):
        env = {**os.environ, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29517", "WORLD_SIZE": "2"}
        children = [subprocess.Popen([sys.executable, __file__, f"rank:{name}", str(folder)], env={**env, "RANK": str(rank)},
                                     stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) for rank in range(2)]
        for rank, child in enumerate(children):
            out, _ = child.communicate(timeout=240)
            print(name, rank, child.returncode, out[-800:], flush=True)


def _rank(name: str, folder: Path) -> None:
    import torch
    import torch.distributed as dist

    rank = int(os.environ["RANK"])
    torch.cuda.set_device(rank)
    dist.init_process_group("nccl", device_id=torch.device("cuda", rank))
    {"straggler_compute": _late, "straggler_data": _late, "collectives": _collectives}[name](name, rank, folder)
    dist.destroy_process_group()


def _late(name: str, rank: int, folder: Path) -> None:
    import torch
    from torch.nn.parallel import DistributedDataParallel

    model, _ = _model()
    model = DistributedDataParallel(model, device_ids=[rank])
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    x, extra = torch.randn(1024, 1024, device="cuda"), torch.randn(4096, 4096, device="cuda")

    def step() -> None:
        if name == "straggler_compute" and rank == 1:
            with torch.profiler.record_function("extra work of rank 1"):
                for _ in range(4):
                    torch.mm(extra, extra)
        if name == "straggler_data" and rank == 0:
            with torch.profiler.record_function("dataloader"):
                time.sleep(0.008)
        _step(model, optimizer, x)

    for _ in range(5):
        step()
    torch.cuda.synchronize()
    torch.distributed.barrier()

    def run(profiler: Any) -> None:
        for _ in range(STEPS):
            step()
            profiler.step()

    _profiled(folder, f"{name}_rank{rank}", run)


def _collectives(name: str, rank: int, folder: Path) -> None:
    import torch
    import torch.distributed as dist

    sizes = (1 << 20, 64 << 20)
    truth: list[dict[str, Any]] = []

    def run(profiler: Any) -> None:
        for size in sizes:
            whole = torch.ones(size // 4, device="cuda")
            part = torch.ones(size // 8, device="cuda")
            calls: dict[str, Callable[[], Any]] = {
                "all_reduce": lambda whole=whole: dist.all_reduce(whole),
                "all_gather": lambda whole=whole, part=part: dist.all_gather_into_tensor(whole, part),
                "reduce_scatter": lambda whole=whole, part=part: dist.reduce_scatter_tensor(part, whole),
                "broadcast": lambda whole=whole: dist.broadcast(whole, 0)}
            for call, start in calls.items():
                for _ in range(3):
                    torch.cuda.synchronize()
                    dist.barrier()
                    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
                    begin.record()
                    start()
                    end.record()
                    torch.cuda.synchronize()
                    truth.append({"call": call, "bytes": size, "event_us": 1000 * begin.elapsed_time(end)})

    run(None)
    truth.clear()
    _profiled(folder, f"collectives_rank{rank}", run, record_shapes=True)
    if rank == 0:
        (folder / "collectives_truth.json").write_text(json.dumps(truth, indent=1))


def main() -> None:
    what, folder = sys.argv[1], Path(sys.argv[2])
    folder.mkdir(parents=True, exist_ok=True)
    if what.startswith("rank:"):
        _rank(what.removeprefix("rank:"), folder)
    else:
        parts = (counters, precisions, traces, ranks, data_loading, compile_warmup, queue_full, serial_copies, serial_kernels,
                 shapes, memory_peak)
        {each.__name__: each for each in parts}[what.removeprefix("trace:")](folder)


if __name__ == "__main__":
    main()
