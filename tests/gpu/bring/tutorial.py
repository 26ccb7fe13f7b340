"""The tutorial of docs/bring.md on the GPU of this machine: record a call, write the adapter, check it, time its default.

    python -m tests.gpu.bring.tutorial [--out FILE.json]

Needs torch, Triton and numpy alone. Prints one JSON document; exit code 1 where a kernel does not go the whole way.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from tests.tuner.bring.files import ADD, MATMUL
from tuner.bring.check import check_file, read_file
from tuner.bring.recorded import read_calls
from tuner.bring.write import write_adapter

PROJECT = Path(__file__).resolve().parents[3]
SOFTMAX = '''
import torch, triton, triton.language as tl

@triton.jit
def softmax_rows(out_ptr, in_ptr, in_stride, out_stride, n_cols, BLOCK_SIZE: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK_SIZE)
    x = tl.load(in_ptr + row * in_stride + at, mask=at < n_cols, other=-float("inf")).to(tl.float32)
    e = tl.exp(x - tl.max(x, axis=0))
    tl.store(out_ptr + row * out_stride + at, (e / tl.sum(e, axis=0)).to(out_ptr.dtype.element_ty), mask=at < n_cols)
'''
# name → file, and the lines that launch its kernel once
KERNELS = {
    "add_kernel": (ADD, "x = torch.randn(1 << 24, device='cuda', dtype=torch.float16); kernels.add(x, x)"),
    "mm": (MATMUL, """
a, b = (torch.randn(4096, 4096, device='cuda', dtype=torch.bfloat16) for _ in range(2)); c = torch.empty_like(a)
grid = lambda meta: (kernels.triton.cdiv(4096, meta['BM']) * kernels.triton.cdiv(4096, meta['BN']),)
kernels.mm[grid](a, b, c, 4096, 4096, 4096, *a.stride(), *b.stride(), *c.stride())"""),
    "softmax_rows": (SOFTMAX, """
x = torch.randn(8192, 4000, device='cuda', dtype=torch.float16); y = torch.empty_like(x)
kernels.softmax_rows[(8192,)](y, x, x.stride(0), y.stride(0), 4000, BLOCK_SIZE=4096, num_warps=8)"""),
}
# what the author writes where `check` finds the proposed reference wrong: mm ends with a ReLU
CORRECTIONS = {"mm": ('args["A"] @ args["B"]', '(args["A"] @ args["B"]).relu()')}
DRIVER = "import sys; sys.path[:0] = [{project!r}, {folder!r}]\nimport torch, kernels\nfrom tuner.cache.client import record\n" \
         "with record({calls!r}):\n{lines}\n    torch.cuda.synchronize()\n"


def go_the_whole_way(name: str, folder: Path) -> dict[str, Any]:
    """Return what was checked and measured of one kernel, from its bare file on."""
    text, lines = KERNELS[name]
    (folder / "kernels.py").write_text(text)
    calls = folder / "calls.json"
    inside = "\n".join(f"    {line}" for line in lines.strip().splitlines())
    driver = DRIVER.format(project=str(PROJECT), folder=str(folder), calls=str(calls), lines=inside)
    subprocess.run([sys.executable, "-c", driver], check=True)
    bare, = check_file(folder / "kernels.py")
    kernel, = read_file(folder / "kernels.py")
    call = [each for each in read_calls(calls) if each.kernel == name][-1]
    draft = write_adapter(kernel, "kernels", call)
    (folder / "kernels_ridgepoint.py").write_text(draft.text)
    found, = check_file(folder / "kernels_ridgepoint.py", run=True)
    said = [each.what for each in found.problems]
    if name in CORRECTIONS and said:
        (folder / "kernels_ridgepoint.py").write_text(draft.text.replace(*CORRECTIONS[name]))
        found, = check_file(folder / "kernels_ridgepoint.py", run=True)
    return {"name": name, "bare": bare.as_json(), "left_to_do": draft.to_do, "adapter": draft.text, "said_of_the_draft": said,
            "operator": found.as_json(),
            "whole": found.measured is not None and not found.problems and bool(said) == (name in CORRECTIONS)}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    import torch
    import triton

    results = []
    for name in KERNELS:
        with tempfile.TemporaryDirectory() as folder:
            results.append(go_the_whole_way(name, Path(folder)))
    document = {"gpu": torch.cuda.get_device_name(), "torch": torch.__version__, "triton": triton.__version__, "kernels": results}
    if options.out:
        options.out.write_text(json.dumps(document, indent=1, default=str))
    for each in results:
        measured = each["operator"]["measured"] or {}
        print(each["name"], "whole" if each["whole"] else each["operator"]["problems"], each["said_of_the_draft"],
              measured.get("us"), measured.get("error"))
    return 0 if all(each["whole"] for each in results) else 1


if __name__ == "__main__":
    sys.exit(main())
