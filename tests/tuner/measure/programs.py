"""What the forks of `tests.warm.parent` run: kernels beside their references, interpreted; facts and code of compiled ones."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.warm.parent import INTERPRETER, run_program

# each case (operator, shape, dtype, configuration) at two seeds, its library's result, and that a wrong result is seen
RIGHT = """
import importlib, json, sys, torch
from tests.tuner.measure.interpreted import patch_language_once, round_to_fp8
from tuner.tuning.measure import accuracy
from tuner.tuning.operators import OPERATORS
patch_language_once()
round_to_fp8()
for name, shape, dtype, config in json.loads(sys.argv[1]):
    operator = OPERATORS[name]
    problem = importlib.import_module(operator.kernel_module).PROBLEMS[name](shape, dtype, torch.device("cpu"), 3)
    tolerance = {**accuracy.TOLERANCE, **operator.tolerance}[dtype]
    for seed in (1, 2):
        _, verdict = accuracy.check_config(problem, config, seed, tolerance)
        assert verdict.right, (name, shape, config, verdict)
    reference = problem.reference()
    theirs = problem.library()
    expected = reference if theirs.shape == reference.shape else reference[0]
    library = accuracy.compare_output(theirs, expected, tolerance)
    assert library.right, (name, library)
    problem.launch = lambda config: problem.out.mul_(1.05) if name != "transpose" else problem.out.copy_(problem.out.flip(0))
    problem.out.copy_(reference)
    assert not accuracy.compare_output(problem.launch(config), reference, tolerance).right, name
print("all right")
"""
# resource facts of configurations, one line each
FACTS = """
import importlib, json, sys, torch
from tuner.tuning.measure import offline
from tuner.tuning.operators import OPERATORS
for capability, name, shape, dtype, configs in json.loads(sys.argv[1]):
    offline.set_target(capability, 132)
    problem = importlib.import_module(OPERATORS[name].kernel_module).PROBLEMS[name](shape, dtype, torch.device("meta"), 3)
    for config in configs:
        print(json.dumps(offline.static_facts(problem.compile(config), capability)))
"""
# what stands in the code for sm_90 and what ptxas says of it (its warnings C75xx, which Triton does not show), one line each
CODE = """
import importlib, json, re, subprocess, sys, tempfile, torch, triton
from tuner.tuning.measure import offline
from tuner.tuning.operators import OPERATORS
offline.set_target("9.0", 132)
WORDS = (r"wgmma\\.mma_async|cp\\.async\\.cg|cp\\.async\\.bulk\\.tensor\\.[0-9]d\\.shared|ld\\.global\\.v4\\.b32|ld\\.global\\.b16"
         r"|ldmatrix")
for name, shape, config in json.loads(sys.argv[1]):
    operator = OPERATORS[name]
    problem = importlib.import_module(operator.kernel_module).PROBLEMS[name](shape, operator.dtypes[0], torch.device("meta"), 0)
    compiled = problem.compile(config)
    kernel = compiled[0] if isinstance(compiled, list) else compiled
    with tempfile.NamedTemporaryFile("w", suffix=".ptx") as file:
        file.write(kernel.asm["ptx"])
        file.flush()
        told = subprocess.run([triton.knobs.nvidia.ptxas.path, "-arch=sm_90a", "-v", file.name, "-o", "/dev/null"],
                              capture_output=True, text=True, check=True).stderr
    operands = re.findall(r"wgmma\\.mma_async\\S+ {[^}]*}, ({?)", kernel.asm["ptx"])
    words = sorted(set(re.findall(WORDS, kernel.asm["ptx"])))
    loops = [loop[0] for loop in re.finditer(r"^(\\$L\\w+):.*?bra(?:\\.uni)?\\s+\\1;", kernel.asm["ptx"], re.MULTILINE | re.DOTALL)]
    barriers = [loop.count("bar.sync") for loop in loops if "mma" in loop]
    print(json.dumps({"words": words, "warned": "C75" in told, "products": len(operands), "barriers": barriers,
                      "from_registers": sum(map(bool, operands)), **offline.static_facts(kernel, "9.0")}))
"""


def interpret(program: str, data: object = None) -> str:
    """Return what the program prints, with Triton's interpreter in place of its compiler; its sys.argv[1] is `data` as JSON."""
    return run_program(program, json.dumps(data), **{INTERPRETER: "1"})[0]


def compile_lines(program: str, data: object, folder: Path) -> list[Any]:
    """Return the lines of JSON that the program prints; Triton's binaries lie in `folder`."""
    return [json.loads(line) for line in run_program(program, json.dumps(data), TRITON_CACHE_DIR=str(folder))[0].splitlines()]


def facts_of(folder: Path, capability: str, name: str, shape: Mapping[str, int], dtype: str,
             configs: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the resource facts of each configuration of an operator, compiled for a GPU that is not here."""
    lines = compile_lines(FACTS, [(capability, name, shape, dtype, configs)], folder)
    assert len(lines) == len(configs)
    return lines


def code_of(folder: Path, *cases: tuple[str, Mapping[str, int], Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the facts and the code's words of each (operator, shape, configuration), compiled for sm_90."""
    return compile_lines(CODE, cases, folder)
