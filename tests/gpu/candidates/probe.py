"""Can CUDA be used behind the walls of this machine, and if not, which wall is in the way?

    python -m tests.gpu.candidates.probe

Opens the driver in the sandbox as it is, then with one wall taken away at a time, each in some seconds; torch and Triton last.
Standard library alone but for the last. Exit code 0 where CUDA works behind the walls as they are.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from workers.core import gpu, sandboxed

BOUNDS = sandboxed.Bounds(wall_s=90, cpu_s=600, memory_mb=16 << 10, data_mb=64 << 10, room_mb=2048, file_mb=512)
DRIVER = """
import ctypes
from ctypes import byref, c_int, c_size_t, c_uint64, c_void_p
cuda = ctypes.CDLL("libcuda.so.1")
device, count, context, at, host = c_int(), c_int(), c_void_p(), c_uint64(), c_void_p()
for name, call in (("cuInit", lambda: cuda.cuInit(0)), ("count", lambda: cuda.cuDeviceGetCount(byref(count))),
                   ("device", lambda: cuda.cuDeviceGet(byref(device), 0)),
                   ("context", lambda: cuda.cuDevicePrimaryCtxRetain(byref(context), device)),
                   ("current", lambda: cuda.cuCtxSetCurrent(context)),
                   ("memory", lambda: cuda.cuMemAlloc_v2(byref(at), c_size_t(1 << 28))),
                   ("pinned", lambda: cuda.cuMemHostAlloc(byref(host), c_size_t(1 << 20), 0)),
                   ("done", lambda: cuda.cuCtxSynchronize())):
    status = call()
    print(name, status, flush=True)
    if status:
        break
else:
    print("works", count.value, "GPU")
"""
TORCH = """
import torch, triton, triton.language as tl
x = torch.randn(1 << 20, device="cuda")
print("torch", float((x * 2).sum()) != 0, torch.cuda.get_device_name())
open("k.py", "w").write('''import triton, triton.language as tl
@triton.jit
def twice(x, y, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + i, tl.load(x + i) * 2)
''')
import sys; sys.path.insert(0, ".")
from k import twice
y = torch.empty_like(x); twice[(1024,)](x, y, 1024); torch.cuda.synchronize()
print("works", bool(torch.equal(y, x * 2)))
"""
# name → what is replaced in the text of sandbox_inside.py
VARIANTS: dict[str, list[tuple[str, str]]] = {
    "as it is": [],
    "memfd_create allowed": [('"memfd_create": 319, ', ""), ('"memfd_create": 279, ', "")],
    "no system call refused": [("        refuse_calls()\n", "        pass\n")],
    "no limit of data, files and locked memory": [
        ("        if most is not None:", "        if most is not None and limit in (resource.RLIMIT_NPROC,):")],
    "/sys to be seen": [('"/etc/alternatives")', '"/etc/alternatives", "/sys")')],
    "/proc to be written": [('    keep_proc(root / "proc", own_writable=bool(spec["devices"]))\n', "")],
    "root's number kept": [("    drop_rights(is_root)\n", "")],
    "/etc and /run to be seen": [('"/etc/alternatives")', '"/etc/alternatives", "/run", "/etc/nvidia", "/etc/OpenCL")')],
}


def run(code: str) -> tuple[str, str]:
    """Return what the code said, and how it ended."""
    lines: list[str] = []
    card = gpu.gpus()[0]
    ending = sandboxed.run([sys.executable, "-c", code], bounds=BOUNDS, devices=gpu.device_nodes(card),
                           environ={"CUDA_VISIBLE_DEVICES": card.uuid, "CUDA_CACHE_DISABLE": "1"},
                           on_line=lambda line: lines.append(line.decode(errors="replace")))
    return " · ".join(lines), f"{ending.why or ending.status} {ending.said[-300:]}"


def main() -> int:
    """Try each; return 0 where it works as it is."""
    if not gpu.gpus():
        print("no NVIDIA GPU")
        return 2
    print("nodes:", ", ".join(map(str, gpu.device_nodes(gpu.gpus()[0]))))
    inside = sandboxed.INSIDE
    text, good = inside.read_text(), False
    with tempfile.TemporaryDirectory() as folder:
        for name, changes in VARIANTS.items():
            changed = text
            for old, new in changes:
                changed = changed.replace(old, new)
            sandboxed.INSIDE = Path(folder) / "sandbox_inside.py"
            sandboxed.INSIDE.write_text(changed)
            said, ended = run(DRIVER)
            works = "works" in said
            print(f"{'works' if works else 'NOT  '} {name}: {said} [{ended.strip()}]", flush=True)
            if not changes and works:
                good = True
                break
    sandboxed.INSIDE = inside
    if good:
        print("torch and Triton:", *run(TORCH))
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
