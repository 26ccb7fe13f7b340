"""Matmul, grouped matmul, attention and decode attention: their spaces, and their kernels interpreted and compiled."""

import json
import math

import pytest

from tests.tuner.measure.chosen import GPUS, about, capability_of, cases_of_each
from tests.tuner.measure.programs import interpret
from tests.warm.parent import run_program
from tuner.tuning.operators import OPERATORS, find, limits
from tuner.tuning.operators.variants import union_space
from tuner.tuning.space import Constraint

H200, A100, B200 = limits("NVIDIA H200"), limits("NVIDIA A100-SXM4-80GB"), limits("NVIDIA B200")
NAMES = ("matmul", "matmul_bias_act", "grouped_matmul", "attention", "gqa_attention", "decode_attention")
LARGE, SKINNY = {"M": 4096, "N": 4096, "K": 4096}, {"M": 16, "N": 4096, "K": 4096}


def kernels(space):
    return {config["KERNEL"] for config in space.configs()}


def test_a_space_of_several_kernels_holds_each_configuration_once():
    space = union_space(({"A": (2, 1), "K": ("x",), "S": (1,)}, {"A": (1,), "K": ("x", "y"), "S": (1, 4)}),
                  (Constraint("too much", lambda c: c["A"] * c["S"] < 8 and c["K"] + str(c["S"]) != "y4"),))
    assert [tuple(config.values()) for config in space.configs()] == [(2, "x", 1), (1, "x", 1), (1, "x", 4), (1, "y", 1)]
    assert space.pruned == {"too much": 1} and space.params[0].values == (1, 2) and space.params[1].values == ("x", "y")


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("gpu", [H200, A100, B200, limits("Tesla T4")], ids=lambda gpu: gpu.gpu)
def test_default_and_published_designs_are_in_the_space(name, gpu):
    operator = find(name)
    for shape in operator.presets:
        space = operator.space(shape, operator.dtypes[0], gpu)
        assert operator.default_in(space, shape, operator.dtypes[0], gpu) == operator.default_config(shape, operator.dtypes[0], gpu)
        published = operator.published_starts(space, shape, operator.dtypes[0], gpu)
        assert len(set(map(str, published))) == len(published) and (gpu.capability < (9, 0) or published)


def test_each_gpu_is_offered_the_kernels_it_can_run():
    matmul, attention = OPERATORS["matmul"], OPERATORS["attention"]
    everywhere = {"tiles", "tma", "persistent", "waves and split"}
    assert kernels(matmul.space(LARGE, "bf16", H200)) == everywhere | {"specialised", "warp groups"}
    assert kernels(matmul.space(LARGE, "bf16", B200)) == everywhere
    old = matmul.space(LARGE, "bf16", A100)
    assert kernels(old) == {"tiles"} and old.pruned["TMA: from compute capability 9.0"] > 500
    odd = matmul.space({"M": 4096, "N": 4096, "K": 4095}, "bf16", H200)
    assert kernels(odd) == {"tiles"} and odd.pruned["TMA: rows that start at multiples of 16 bytes"] > 500
    assert not len(matmul.space(LARGE, "fp8", A100)) and len(matmul.space(LARGE, "fp8", H200)) > 500
    overlapped = {"one loop", "two stages", "tma", "specialised", "overlapped"}
    assert kernels(attention.space(attention.presets[0], "fp16", H200)) == overlapped
    assert kernels(attention.space({**attention.presets[0], "D": 32}, "fp16", H200)) == overlapped - {"overlapped"}
    tall = {head: {config["BN"] for config in attention.space({**attention.presets[0], "D": head}, "fp16", H200).configs()
                   if config["BM"] == 192} for head in (64, 128)}
    assert tall == {64: {64, 128}, 128: {64}}
    assert kernels(attention.space(attention.presets[0], "fp16", B200)) == overlapped - {"overlapped", "specialised"}
    assert kernels(find("gqa_attention").space(find("gqa_attention").presets[0], "bf16", A100)) == {"two stages"}


def test_sums_are_split_where_tiles_are_few():
    matmul = OPERATORS["matmul"]
    assert {config["SPLIT_K"] for config in matmul.space(LARGE, "bf16", H200).configs()} == {1}
    skinny = matmul.space(SKINNY, "bf16", H200)
    assert {config["SPLIT_K"] for config in skinny.configs()} == {1, 2, 4, 8, 16}
    assert all(config["BM"] <= 64 for config in skinny.configs() if config["KERNEL"] != "tiles")
    whole_waves = {"M": 128 * 12, "N": 256 * 11, "K": 4096}                # 132 tiles of 128 × 256
    assert not [c for c in matmul.space(whole_waves, "bf16", H200).configs()
                if c["KERNEL"] in ("waves and split", "persistent") and (c["BM"], c["BN"]) == (128, 256)]
    decode = find("decode_attention")
    many, few = ({config["SPLITS"] for config in decode.space({**decode.presets[0], "B": batch}, "bf16", H200).configs()}
                 for batch in (64, 1))
    assert max(many) == 2 and max(few) == 128


def test_what_an_older_configuration_does_not_name_means_what_it_always_meant():
    recorded = {"BM": 128, "BN": 256, "BK": 64, "GM": 8, "num_warps": 8, "num_stages": 3}
    full = OPERATORS["matmul"].complete(recorded)
    assert full == {**recorded, "KERNEL": "tiles", "SPLIT_K": 1, "STORE": "direct"}
    assert full in OPERATORS["matmul"].space(LARGE, "bf16", H200)
    assert OPERATORS["matmul"].complete({**recorded, "KERNEL": "tma"})["KERNEL"] == "tma"


def test_costs():
    assert find("matmul").flops(LARGE) == 137_438_953_472
    assert find("matmul").bytes(LARGE, "fp8") == 2 * 4096**2 + 2 * 4096**2          # two fp8 matrices read, a bf16 one written
    assert find("matmul_bias_act").bytes({**LARGE, "act": 1}, "bf16") == 3 * 2 * 4096**2 + 2 * 4096
    moe = {"M": 8, "E": 64, "N": 128, "K": 256}                                     # 8 rows reach 7.6 of 64 experts
    assert find("grouped_matmul").flops(moe) == 2 * 8 * 128 * 256
    assert find("grouped_matmul").bytes(moe, "bf16") == 2 * (8 * 256 + 8 * 128 + 8 * 128 * 256)
    gqa = {"B": 2, "H": 32, "KV": 8, "N": 4096, "D": 128, "causal": 1}
    assert find("gqa_attention").flops(gqa) == find("attention").flops(gqa) == 2 * 2 * 32 * 4096**2 * 128
    assert find("gqa_attention").bytes(gqa, "bf16") == 2 * 2 * 4096 * 128 * (32 + 8 + 8 + 32)
    decode = {"B": 16, "H": 32, "KV": 8, "N": 8192, "D": 128}
    assert find("decode_attention").bytes(decode, "bf16") == 2 * 16 * 128 * (2 * 8 * 8192 + 2 * 32)


def test_numbers_that_do_not_go_together_are_named():
    gqa = {"B": 1, "H": 32, "KV": 5, "N": 64, "D": 64, "causal": 0}
    assert find("gqa_attention").problems(gqa, "bf16") == {"KV": "KV must divide H = 32"}
    assert not find("gqa_attention").problems({**gqa, "KV": 4}, "bf16")
    assert set(find("gqa_attention").problems({**gqa, "D": 80}, "bf16")) == {"D"}
    assert find("matmul").problems({"M": 8, "N": 24, "K": 64}, "fp8") == {"N": "in fp8 N must be a multiple of 16"}
    assert not find("matmul").problems({"M": 8, "N": 24, "K": 64}, "bf16")


TILE = {"num_warps": 4, "num_stages": 2}
SMALL = {"BM": 32, "BN": 32, "BK": 32, "GM": 2, "SPLIT_K": 1, "STORE": "direct", **TILE}
EDGES, REST = {"M": 40, "N": 72, "K": 136}, {"M": 60, "N": 56, "K": 264}          # REST: 4 tiles for 3 programs
A = {"BM": 32, "BN": 16, **TILE}
G = {"BM": 16, "BN": 32, "BK": 32, "GM": 2, **TILE}
INTERPRETED = [
    ("matmul", EDGES, "fp16", {**SMALL, "KERNEL": "tiles", "SPLIT_K": 4}),
    ("matmul", EDGES, "fp16", {**SMALL, "KERNEL": "tma", "STORE": "halves"}),
    ("matmul", {"M": 30, "N": 40, "K": 136}, "fp16", {**SMALL, "KERNEL": "tma", "STORE": "tma", "SPLIT_K": 2}),
    ("matmul", EDGES, "fp16", {**SMALL, "KERNEL": "persistent", "STORE": "halves"}),
    ("matmul", EDGES, "fp16", {**SMALL, "KERNEL": "specialised", "STORE": "tma"}),
    ("matmul", REST, "fp16", {**SMALL, "KERNEL": "waves and split", "STORE": "direct"}),
    ("matmul", {"M": 30, "N": 24, "K": 304}, "fp16", {**SMALL, "KERNEL": "waves and split", "STORE": "halves"}),
    ("matmul", {"M": 40, "N": 64, "K": 96}, "fp8", {**SMALL, "KERNEL": "persistent", "STORE": "tma"}),
    *(("matmul_bias_act", {"M": 20, "N": 24, "K": 40, "act": act}, "fp16", {**SMALL, "KERNEL": "tma", "STORE": "tma"})
      for act in (1, 2, 3)),
    *(("attention", {"B": 1, "H": 1, "N": 70, "D": 16, "causal": 1}, "fp16", {**A, "KERNEL": kernel})
      for kernel in ("two stages", "tma", "specialised")),
    ("attention", {"B": 1, "H": 1, "N": 64, "D": 16, "causal": 0}, "fp16", {**A, "KERNEL": "specialised"}),
    *(("gqa_attention", {"B": 1, "H": 4, "KV": 2, "N": 33, "D": 16, "causal": causal}, "fp16", {**A, "BN": 32, "KERNEL": kernel})
      for kernel, causal in (("two stages", 0), ("tma", 1), ("specialised", 1))),
    *(("grouped_matmul", {"M": 30, "E": 4, "N": 40, "K": 48}, "fp16", {**G, "KERNEL": kernel})
      for kernel in ("tiles", "tma", "persistent")),
    ("grouped_matmul", {"M": 3, "E": 9, "N": 40, "K": 40}, "fp16", {**G, "KERNEL": "tma"}),
    *(("decode_attention", {"B": 1, "H": 6, "KV": 2, "N": 70, "D": 16}, "fp16", {"BN": 16, "SPLITS": splits, **TILE})
      for splits in (1, 8)),
    ("decode_attention", {"B": 1, "H": 4, "KV": 2, "N": 200, "D": 16}, "fp16", {"BN": 16, "SPLITS": 12, **TILE}),
]                                                        # more than eight: added up in bunches, the last of them not full
DEEP = [("decode_attention", {"B": 2, "H": 10, "KV": 2, "N": 400, "D": 32}, "fp16", {"BN": 16, "SPLITS": splits, **TILE})
        for splits in (3, 12, 24)]
CHECK = """
import importlib, json, sys, torch
from tests.tuner.measure.interpreted import patch_language_once
from tuner.tuning.measure import accuracy
from tuner.tuning.operators import OPERATORS
patch_language_once()
for name, shape, dtype, config in json.loads(sys.argv[1]):
    operator = OPERATORS[name]
    problem = importlib.import_module(operator.kernel_module).PROBLEMS[name](shape, dtype, torch.device("cpu"), 3)
    tolerance = operator.tolerance[dtype]
    _, verdict = accuracy.check_config(problem, config, 1, tolerance)
    assert verdict.right, (name, shape, config, verdict)
    first = problem.out.clone()
    problem.out.fill_(float("nan"))
    problem.launch(config)                                     # counts are back at zero, sums are added in the same order
    assert torch.equal(first, problem.out), (name, config)
    library = accuracy.compare_output(problem.library(), problem.reference(), tolerance)
    assert library.right, (name, library)
print("all right")
"""
# operator, shape, dtype, configuration, what its sm_90 code must hold. Small tiles compile fast and hold the same instructions.
MM = {"BM": 128, "BN": 64, "BK": 64, "GM": 8, "SPLIT_K": 1, "num_warps": 4, "num_stages": 3}
COMPILED = [
    ("matmul", LARGE, "bf16", {**MM, "KERNEL": "tma", "STORE": "tma"}, ["wgmma", "cp.async.bulk.tensor"]),
    ("matmul", LARGE, "fp8", {**MM, "KERNEL": "persistent", "STORE": "halves"}, ["wgmma", "e4m3", "cp.async.bulk.tensor"]),
    ("matmul", LARGE, "bf16", {**MM, "KERNEL": "specialised", "STORE": "direct"}, ["wgmma", "setmaxnreg"]),
    ("matmul", {"M": 1024, "N": 1280, "K": 4096}, "bf16", {**MM, "KERNEL": "waves and split", "STORE": "direct"},
     ["wgmma", "atom.global.gpu.acq_rel"]),
    ("matmul", SKINNY, "bf16", {**MM, "BM": 16, "KERNEL": "tiles", "STORE": "direct", "SPLIT_K": 4}, ["atom.global.gpu.acq_rel"]),
    ("matmul_bias_act", {**LARGE, "act": 2}, "bf16", {**MM, "KERNEL": "persistent", "STORE": "direct"}, ["wgmma"]),
    ("attention", {"B": 1, "H": 2, "N": 512, "D": 64, "causal": 1}, "fp16",
     {"BM": 64, "BN": 32, "KERNEL": "two stages", "num_warps": 4, "num_stages": 2}, ["wgmma"]),
    ("gqa_attention", {"B": 1, "H": 4, "KV": 2, "N": 512, "D": 64, "causal": 1}, "bf16",
     {"BM": 64, "BN": 32, "KERNEL": "tma", "num_warps": 4, "num_stages": 2}, ["wgmma", "cp.async.bulk.tensor"]),
    ("attention", {"B": 1, "H": 2, "N": 512, "D": 64, "causal": 1}, "fp16",
     {"BM": 128, "BN": 64, "KERNEL": "specialised", "num_warps": 4, "num_stages": 2}, ["wgmma", "setmaxnreg"]),
    ("gqa_attention", {"B": 1, "H": 4, "KV": 2, "N": 500, "D": 64, "causal": 0}, "bf16",
     {"BM": 256, "BN": 64, "KERNEL": "overlapped", "num_warps": 4, "num_stages": 3},
     ["wgmma.wait_group.sync.aligned 1", "setmaxnreg"]),
    ("attention", {"B": 1, "H": 2, "N": 512, "D": 128, "causal": 1}, "fp16",
     {"BM": 128, "BN": 128, "KERNEL": "overlapped", "num_warps": 4, "num_stages": 2},
     ["wgmma.wait_group.sync.aligned 1", "setmaxnreg.inc.sync.aligned.u32 \t240", "cp.async.bulk.tensor"]),
    ("fp8_block_matmul", {"M": 200, "N": 1032, "K": 640}, "fp8",
     {"BM": 128, "BN": 128, "BK": 128, "GM": 8, "KERNEL": "specialised", "num_warps": 4, "num_stages": 4}, ["setmaxnreg"]),
    ("fp8_block_matmul", {"M": 4096, "N": 7168, "K": 2048}, "fp8",
     {"BM": 192, "BN": 128, "BK": 128, "GM": 8, "KERNEL": "specialised", "num_warps": 4, "num_stages": 5},
     ["m64n128k32.f32.e4m3.e4m3", "setmaxnreg.inc.sync.aligned.u32 \t160"]),
    *(("attention", {"B": 1, "H": 2, "N": 1024 - 24 * causal, "D": 64, "causal": causal}, "fp16",
       {"BM": 192, "BN": 128, "KERNEL": "overlapped", "num_warps": 4, "num_stages": 3},
       ["wgmma.wait_group.sync.aligned 1", "setmaxnreg.inc.sync.aligned.u32 \t160"]) for causal in (0, 1)),
    ("grouped_matmul", {"M": 512, "E": 8, "N": 512, "K": 512}, "bf16",
     {"BM": 64, "BN": 64, "BK": 64, "GM": 8, "KERNEL": "persistent", "num_warps": 4, "num_stages": 3}, ["wgmma"]),
    ("decode_attention", {"B": 2, "H": 8, "KV": 2, "N": 1024, "D": 64}, "bf16",
     {"BN": 32, "SPLITS": 4, "num_warps": 4, "num_stages": 2}, ["mma.sync", "atom.global.gpu.acq_rel"]),
    ("matmul", LARGE, "bf16", {**MM, "BN": 256, "KERNEL": "warp groups", "STORE": "tma", "num_stages": 4},
     ["m64n256k16", "setmaxnreg.inc.sync.aligned.u32 \t240", "wgmma.wait_group.sync.aligned 1"]),
    ("matmul", LARGE, "fp8", {**MM, "BM": 192, "BN": 128, "BK": 128, "KERNEL": "warp groups", "STORE": "tma", "num_stages": 4},
     ["m64n128k32", "setmaxnreg.inc.sync.aligned.u32 \t160"]),
    ("matmul_bias_act", {**LARGE, "M": 1000, "act": 2}, "bf16",
     {**MM, "BM": 256, "BN": 128, "KERNEL": "warp groups", "STORE": "tma", "num_stages": 4}, ["m64n128k16", "stmatrix"]),
    ("conv2d", {"B": 4, "H": 28, "W": 28, "C": 128, "F": 512, "KS": 1, "S": 1, "P": 0}, "fp16",
     {"KERNEL": "product, warp groups", "BM": 128, "BN": 128, "BK": 64, "GM": 8, "num_warps": 4, "num_stages": 4}, ["m64n128k16"]),
    *(("int4_matmul", {"M": m, "N": 11008, "K": 4096}, dtype,
       {"KERNEL": "warp groups", "BM": bm, "BN": bn, "BK": bk, "GM": 8, "num_warps": 4, "num_stages": 4, "SPLIT_K": split},
       [f"m64n{bm}k16", f"sub.rn.{pair}", "prmt.b32"])
      for m, dtype, bm, bn, bk, split, pair in ((64, "bf16", 64, 512, 32, 1, "bf16x2"), (256, "bf16", 128, 256, 64, 1, "bf16x2"),
                                                (256, "fp16", 256, 128, 32, 1, "f16x2"))),
]
IN_GLUON = ("overlapped", "warp groups", "product, warp groups")
COMPILE = """
import importlib, json, sys, torch
from tuner.tuning.measure import offline
from tuner.tuning.operators import OPERATORS, limits
gpu = limits(sys.argv[1])
offline.set_target(gpu.compute_capability, gpu.sms)
for name, shape, dtype, config, _ in json.loads(sys.argv[2]):
    operator = OPERATORS[name]
    if operator.complete(config) not in operator.space(shape, dtype, gpu):
        print(json.dumps(None))
        continue
    problem = importlib.import_module(operator.kernel_module).PROBLEMS[name](shape, dtype, torch.device("meta"), 0)
    kernels = problem.compile(config)
    listed = kernels if isinstance(kernels, list) else [kernels]
    print(json.dumps(["".join(kernel.asm["ptx"] for kernel in listed), offline.static_facts(kernels, gpu.compute_capability)]))
"""


PTXAS = """
import subprocess, sys, triton
print(subprocess.run([triton.knobs.nvidia.ptxas.path, "-arch=sm_90a", "-v", sys.argv[1], "-o", "/dev/null"],
                     capture_output=True, text=True, check=True).stderr)
"""
HOPPER_ON, EVERYWHERE = ("tma", "persistent", "waves and split"), ("tiles", "two stages", "decode_attention")
TENSOR_CORES = {"8.0": "mma.sync", "10.0": "tcgen05.mma"}


def python(code, *args, **environ):
    return run_program(code, *args, **environ)[0].splitlines()


def compiled_for_each():
    """Return a parameter for each case of COMPILED and GPU that its kernel is for; `make test` takes the first of each kernel."""
    seen, params = set(), []
    for number, case in enumerate(COMPILED):
        name, kernel = case[0], case[3].get("KERNEL", case[0])
        which = find(name).kernel_module, kernel            # attention's kernels are gqa_attention's as well
        to = tuple(GPUS) if kernel in EVERYWHERE else tuple(GPUS)[1:] if kernel in HOPPER_ON else ("9.0",)
        for capability in to:
            taken = which not in seen and capability == capability_of(f"{kernel} {name}", to)
            params.append(pytest.param(case, capability, id=f"{name}-{kernel}-{number}-sm_{capability.replace('.', '')}",
                                       marks=(about(name), *(() if taken else (pytest.mark.deep_only,)))))
        seen.add(which)
    return params


@pytest.mark.torch
@pytest.mark.parametrize("cases", [*cases_of_each(INTERPRETED), *cases_of_each(DEEP, deep=True)])
def test_kernels_agree_with_their_references_and_with_themselves(cases):
    assert interpret(CHECK, cases) == "all right\n"


@pytest.mark.torch
@pytest.mark.parametrize(("case", "capability"), compiled_for_each())
def test_kernels_compile_as_they_are_meant(case, capability, binaries, tmp_path):
    """With the instructions they are written for, in no more shared memory than the space counted with.

    ptxas says where it puts a wait after each of overlapped products (C7510 to C7515), which Triton does not show.
    """
    name, shape, dtype, config, expected = case
    found = json.loads(*python(COMPILE, GPUS[capability], json.dumps([case]), TRITON_CACHE_DIR=str(binaries)))
    assert found is not None, "the space does not have it"
    ptx, facts = found
    assert facts["blocks_per_sm"] >= 1
    if capability != "9.0":
        small = name == "decode_attention" or config["BM"] < 64             # too small for Blackwell's tensor cores
        assert ("mma.sync" if small else TENSOR_CORES[capability]) in ptx
        return
    assert not [word for word in expected if word not in ptx]
    assert facts["spills"] == 0 and facts["smem_bytes"] <= counted_bytes(name, shape, dtype, config), facts
    if name == "fp8_block_matmul" or config.get("KERNEL") in IN_GLUON:
        (tmp_path / "kernel.ptx").write_text(ptx)
        said = "\n".join(python(PTXAS, str(tmp_path / "kernel.ptx")))
        assert "Used 1" in said and "Performance Loss" not in said, said


def counted_bytes(name, shape, dtype, config):
    """Shared memory by the space's own formulas."""
    from tuner.tuning.operators import attention, matmul
    size = 1 if dtype == "fp8" else 2
    if name == "fp8_block_matmul":
        return (config["BM"] + config["BN"]) * 128 * config["num_stages"] + 128 * config["BM"] + attention.BARRIERS_BYTES
    if name == "int4_matmul":
        words = 2 if config["BM"] <= 64 else 1
        return config["num_stages"] * config["BK"] * 4 * (config["BM"] + words * 64) + attention.BARRIERS_BYTES
    if name == "conv2d":
        return matmul.smem_bytes({**config, "KERNEL": "warp groups"}, size, 2, keeps_last_stage=True)
    if "attention" not in name:
        return matmul.smem_bytes({"STORE": "direct", **config}, size, 2, keeps_last_stage=True)
    if name != "decode_attention":
        return attention.smem_bytes(config, shape["D"], size, keeps_last_stage=True)
    return 2 * config["BN"] * shape["D"] * size * config["num_stages"] + 16 * shape["D"] * size


ROWS_OF_HALVES = """
import re, sys, torch
from tuner.tuning.measure import offline
from tuner.tuning.kernels.attention import PROBLEMS
offline.set_target("9.0", 132)
problem = PROBLEMS["attention"]({"B": 1, "H": 2, "N": 512, "D": 64, "causal": 1}, "fp16", torch.device("meta"), 0)
code = problem.compile({"BM": 128, "BN": 32, "num_warps": 4, "num_stages": 2, "KERNEL": "specialised"}).asm["ttgir"]
for half in re.split(r"partition[01]\\(", code)[1:]:
    found = re.finditer(r"(%\\S+) = tt.make_range {[^}]*end = (\\d+) : i32, start = (\\d+)", half)
    ranges = {each[1]: (int(each[3]), int(each[2])) for each in found}
    splats = dict(re.findall(r"(%\\S+) = tt.splat (%\\S+) ", half))
    for left, right in re.findall(r"arith.addi (%\\S+), (%\\S+) {[^}]*} : tensor<64xi32", half):
        by = re.search(re.escape(splats[left]) + r" = arith.(\\w+) (\\S+), (\\S+)", half)
        print(*ranges[right], by[1], by[3].lstrip("%").split("_")[0])
"""


@pytest.mark.torch
@about("attention")
def test_each_half_of_specialised_rows_is_moved_once(binaries):
    """Read from the compiler's own code: it added half a tile both to the range and to the start, and masked wrong rows."""
    assert python(ROWS_OF_HALVES, TRITON_CACHE_DIR=str(binaries)) == ["0 64 muli tall", "64 128 muli tall"]


def test_activation_constants():
    """GELU's tanh form through a sigmoid: 2·√(2/π) is the factor in the kernel."""
    assert math.isclose(1.5957691216057308, 2 * math.sqrt(2 / math.pi), rel_tol=1e-15)
