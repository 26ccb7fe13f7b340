"""Record which kernels use tensor cores: products of known types and sizes, and the tensor pipe's own counters of their kernels.

    python tests/gpu/record/tensor_cores.py FOLDER

Writes tensor_cores.json.gz (torch.profiler with shapes, every product under record_function with its name) and runs itself
under ncu: tensor_cores_ncu.csv.gz. tests/data/recorded/tensor_cores_pipe.json.gz is the sum of that by kernel name.
"""

from __future__ import annotations

import gzip
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

PIPES = ("", "_op_hmma", "_op_imma", "_op_dmma", "_op_gmma")
METRICS = ",".join([*(f"sm__inst_executed_pipe_tensor{pipe}.sum" for pipe in PIPES), "smsp__inst_executed.sum",
                    "gpu__time_duration.sum"])
SIZES = ((2048, 2048, 2048), (2047, 2045, 2043), (2044, 2044, 2044), (8, 8, 4096), (1, 4096, 4096), (4096, 1, 4096),
         (16, 4096, 4096))
CHANNELS = ((3, 64), (64, 128), (62, 126))


def random(*shape: int, dtype: Any) -> Any:
    import torch

    return torch.randn(*shape, device="cuda", dtype=torch.float32).to(dtype)


def case(name: str, call: Callable[[], Any]) -> None:
    """One product under its name; what this version of torch does not have is left out."""
    import torch

    with torch.profiler.record_function(name):
        try:
            call()
        except Exception as error:
            print("left out:", name, str(error)[:120], file=sys.stderr)
    torch.cuda.synchronize()


def products(dtype: Any, label: str) -> None:
    import torch
    from torch.nn import functional

    for m, n, k in SIZES:
        case(f"mm {label} {m}x{n}x{k}", lambda m=m, n=n, k=k: random(m, k, dtype=dtype) @ random(k, n, dtype=dtype))
    case(f"bmm {label}", lambda: torch.bmm(random(16, 512, 64, dtype=dtype), random(16, 64, 512, dtype=dtype)))
    case(f"addmm {label}", lambda: torch.addmm(
        random(1000, dtype=dtype), random(256, 2048, dtype=dtype), random(2048, 1000, dtype=dtype)))
    case(f"linear {label} 3 dims", lambda: functional.linear(
        random(4, 512, 1024, dtype=dtype), random(4096, 1024, dtype=dtype), random(4096, dtype=dtype)))
    case(f"linear {label} odd", lambda: functional.linear(random(512, 1021, dtype=dtype), random(4093, 1021, dtype=dtype)))
    case(f"mv {label}", lambda: random(4096, 4096, dtype=dtype) @ random(4096, dtype=dtype))
    for inner, outer in CHANNELS:
        case(f"conv {label} {inner} to {outer}", lambda inner=inner, outer=outer: convolution(inner, outer, dtype, False))
        case(f"conv {label} {inner} to {outer} nhwc", lambda inner=inner, outer=outer: convolution(inner, outer, dtype, True))
    if dtype is not torch.float64:
        case(f"attention {label}", lambda: functional.scaled_dot_product_attention(
            *(random(4, 16, 1024, 64, dtype=dtype) for _ in range(3))))


def convolution(inner: int, outer: int, dtype: Any, channels_last: bool) -> None:
    import torch

    image, weight = random(16, inner, 56, 56, dtype=dtype), random(outer, inner, 3, 3, dtype=dtype)
    if channels_last:
        image, weight = (each.to(memory_format=torch.channels_last) for each in (image, weight))
    torch.nn.functional.conv2d(image, weight, padding=1)


def work() -> None:
    import torch
    from torch.profiler import record_function

    torch.manual_seed(0)
    for dtype, label in ((torch.float16, "fp16"), (torch.bfloat16, "bf16"), (torch.float32, "fp32"), (torch.float64, "fp64")):
        products(dtype, label)
    torch.backends.cuda.matmul.allow_tf32 = True
    for size in (2048, 2047):
        case(f"mm tf32 {size}", lambda size=size: random(size, size, dtype=torch.float32) @ random(size, size, dtype=torch.float32))
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    case("conv fp32 without tf32", lambda: convolution(64, 128, torch.float32, False))
    ones = torch.ones(512, 512, device="cuda", dtype=torch.int8)
    case("int8 mm", lambda: torch._int_mm(ones, ones))
    small, scale = random(512, 512, dtype=torch.float8_e4m3fn), torch.ones((), device="cuda")
    case("fp8 mm", lambda: torch._scaled_mm(small, small.t(), scale, scale, out_dtype=torch.bfloat16))
    x = random(64, 256, dtype=torch.float32).requires_grad_()
    model = torch.nn.Sequential(torch.nn.Linear(256, 500), torch.nn.GELU(), torch.nn.Linear(500, 10)).cuda()
    with record_function("training step fp32"):
        model(x).sum().backward()
    with record_function("training step bf16 autocast"), torch.autocast("cuda", torch.bfloat16):
        model(x).sum().backward()
    torch.cuda.synchronize()


def record(folder: Path) -> None:
    import torch
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA], record_shapes=True, with_stack=True,
                 with_modules=True) as found:
        work()
    plain = folder / "tensor_cores.json"
    found.export_chrome_trace(str(plain))
    (folder / "tensor_cores.json.gz").write_bytes(gzip.compress(plain.read_bytes(), 6))
    plain.unlink()
    print(torch.__version__, torch.cuda.get_device_name())


def count(folder: Path) -> None:
    """The same program under ncu, one pass per kernel."""
    ncu = shutil.which("ncu")
    if ncu is None:
        print("ncu is not there: only the trace")
        return
    found = subprocess.run(
        [ncu, "--csv", "--page", "raw", "--metrics", METRICS, "--clock-control", "none", sys.executable, __file__, str(folder)],
        env={**os.environ, "UNDER_NCU": "1"}, stdout=subprocess.PIPE, timeout=420, check=False)
    (folder / "tensor_cores_ncu.csv.gz").write_bytes(gzip.compress(found.stdout, 6))


if __name__ == "__main__":
    if os.environ.get("UNDER_NCU"):
        work()
    else:
        target = Path(sys.argv[1])
        target.mkdir(parents=True, exist_ok=True)
        record(target)
        count(target)
