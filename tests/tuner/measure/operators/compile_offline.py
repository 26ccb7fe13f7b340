"""Compile an operator's recorded best configuration for a GPU that is not here; prints facts and tensor core instructions as JSON.

    python -m tests.tuner.measure.operators.compile_offline OPERATOR COMPUTE_CAPABILITY
"""

import json
import re
import sys

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from tuner.tuning.kernels.attention import attn_fwd
from tuner.tuning.kernels.matmul import matmul
from tuner.tuning.kernels.rowwise import layernorm_row, softmax_row

CASES = {
    "matmul": (matmul, dict.fromkeys(("a", "b", "c"), "*bf16") | dict.fromkeys(("M", "N", "K", "sam", "sbk", "scm"), "i32"),
               {"sak": 1, "sbn": 1, "scn": 1, "BM": 128, "BN": 256, "BK": 64, "GM": 8, "SPLIT_K": 1, "ACT": 0, "BT": False,
                "UNIT": 16, **dict.fromkeys(("bias", "scale", "work", "locks"))}, 8, 3),
    "softmax": (softmax_row, {"x": "*fp16", "y": "*fp16", "rows": "i32", "cols": "i32", "sx": "i32", "sy": "i32"},
                {"BLOCK": 4096, "STEPS": 3, "UNIT": 16}, 8, 3),
    "layernorm": (layernorm_row, dict.fromkeys("xwby", "*fp16") | {"cols": "i32", "sx": "i32", "eps": "fp32"},
                  {"BLOCK": 1024, "UNROLL": 1, "UNIT": 16}, 4, 2),
    "attention": (attn_fwd, dict.fromkeys("qkvo", "*fp16") | dict.fromkeys(("sz", "sh", "sm", "H", "N"), "i32")
                  | {"scale": "fp32"}, {"D": 64, "BM": 64, "BN": 64, "CAUSAL": True}, 4, 3),
}


def compiled(fn, types, constants, cc, num_warps, num_stages):
    names = fn.arg_names
    aligned = {(names.index(name),): [["tt.divisibility", 16]] for name, kind in types.items() if kind != "fp32"}
    source = ASTSource(fn=fn, signature={name: types.get(name, "constexpr") for name in names}, attrs=aligned,
                       constexprs={(names.index(name),): value for name, value in constants.items()})
    return triton.compile(source, target=GPUTarget("cuda", cc, 32),
                          options={"num_warps": num_warps, "num_stages": num_stages})


def main(name: str, capability: str) -> None:
    fn, types, constants, num_warps, num_stages = CASES[name]
    kernel = compiled(fn, types, constants, int(capability.replace(".", "")), num_warps, num_stages)
    dots = sorted(set(re.findall(r"wgmma|tcgen05\.mma|mma\.sync", kernel.asm["ptx"])))
    print(json.dumps({"smem_bytes": kernel.metadata.shared, "cubin_bytes": len(kernel.asm["cubin"]), "dots": dots}))


if __name__ == "__main__":
    main(*sys.argv[1:])
