"""`operators check`: what a kernel file holds, whether it compiles, and what is missing before it can be tuned."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from profiles.base.refused import Refused
from tuner.bring import process, spaces
from tuner.bring.calls.expression import read_call
from tuner.bring.calls.found import found_of, read_recorded
from tuner.bring.cuda import found
from tuner.bring.cuda.check import SUFFIXES, check_sources, read_sources
from tuner.bring.literals import UNKNOWN
from tuner.bring.references import NOT_INDEPENDENT, PROPOSED
from tuner.bring.report import Found, Problem
from tuner.bring.samples import FEW_KERNELS, GPU, SAMPLES, choose_samples
from tuner.bring.source import OPERATORS, Kernel, kernels_of
from tuner.bring.uses import Argument
from tuner.tuning.operators.operator import Operator
from tuner.tuning.space import Space
from tuner.tuning.team.description import make_operator

COMPILE_S = 30.0                                # one configuration for one GPU
DTYPE = "bf16"
Say = Callable[[int, int], None]
Keep = Callable[[dict[str, Any]], None]


def check_file(path: Path, name: str = "", shape: Mapping[str, int] | None = None, dtype: str = "", *,
               run: bool = False, compiles: bool = True, call: str = "", say: Say = lambda done, of: None,
               keep: Keep = lambda recorded: None, step: found.Step = lambda what, most_s: None) -> list[Found]:
    """Return what is found; `say` is told how many of how many compiles have ended. Without `compiles` the text alone is read.

    step  is told what is done before that, where it takes long

    With a `call` of the file's own host function, what it launches is found, and nothing else; `keep` is given its record.

    Raises Refused for a file that is none of Python's, holds no kernel, or not the one named.
    """
    shape = shape or {}
    if call and compiles and path.suffix in SUFFIXES:
        return found.check_call(path, name, call, dtype, shape, say, keep, step)
    if (sources := read_sources(path)) is not None:
        return check_sources(path, sources, name, shape, dtype, run, say, compiles)
    kernels = read_file(path)
    if name:
        kernels = [kernel for kernel in kernels if name in (kernel.name, "?") or kernel.kind in OPERATORS]
    if not kernels and not call:
        raise Refused(f"{path.name} holds no kernel {name}".rstrip()
                          + ": looked for @triton.jit, @triton.autotune, @helion.kernel, TritonOperator and CudaOperator; "
                            "CUDA C++ is read from .cu files and Kernel Tuner scripts")
    if not compiles or not has_triton():
        return _check_kernels(path.name, kernels, name, shape, dtype, None, compiles=compiles, run=run, say=say)
    if call:
        return check_call(path, name, call, dtype, say, keep)
    with process.Asked(path, kernels, COMPILE_S, runs=run) as child:
        return _check_kernels(path.name, kernels, name, shape, dtype, child, compiles=True, run=run, say=say)


def check_call(path: Path, name: str, call: str, dtype: str, say: Say = lambda done, of: None,
               keep: Keep = lambda recorded: None) -> list[Found]:
    """Return what is found of the kernels that one call launches; `keep` is given the record itself.

    Raises Refused for a call that cannot be read or made.
    """
    with asked_calls(path, call) as child:
        recorded = record_of(child, call, dtype)
        keep(recorded)
        each_found, jobs = [], []
        launched = read_recorded(path, recorded)
        for entry, kernel in launched:
            finding, more = found_of(entry, kernel, recorded, child.imported.get("stood_in", {}),
                                     SAMPLES if len(launched) <= FEW_KERNELS or name else 0)
            if not name or name in (finding.name, entry.name):
                each_found.append(finding)
                jobs += more
        if not each_found:
            raise Refused(f"the call launches no {name}, but {', '.join(entry.name for entry, _ in launched)}")
        _compile(each_found, jobs, False, child, say)
    return each_found


def asked_calls(path: Path, call: str) -> process.Asked:
    """Return the process that has imported the file, and can make the call. Raises Refused."""
    try:
        read_call(call)
    except Refused as refused:
        raise Refused(f"--call: {refused}") from refused
    if not has_triton():
        raise Refused("a call is made where torch and Triton are installed: pip install torch triton")
    return process.Asked(path, [], COMPILE_S, calls=True)


def record_of(asked: process.Asked, call: str, dtype: str) -> dict[str, Any]:
    """Return what the call launches. Raises Refused with why it launches nothing."""
    if "failed" in asked.imported:
        raise Refused(f"the file cannot be imported: {asked.imported['failed']}")
    recorded = asked.record(call, dtype)
    if "failed" in recorded:
        used = recorded.get("used")
        stood_in = f"; stood in for and used: {', '.join(used[:6])}" if used else ""
        raise Refused(f"the call fails: {recorded['failed']}{stood_in}")
    return recorded


def _check_kernels(file: str, kernels: Sequence[Kernel], name: str, shape: Mapping[str, int], dtype: str,
                   asked: process.Asked | None, *, compiles: bool, run: bool, say: Say) -> list[Found]:
    load = asked.imported if asked else {}
    if "failed" in load:
        return [replace_problem(_read(entry, shape), Problem(f"the file cannot be imported: {load['failed']}",
                                                                   "mend it, or install what it imports")) for entry in kernels]
    findings: list[Found] = []
    jobs: list[dict[str, Any]] = []
    for kernel in kernels:
        if kernel.kind not in OPERATORS:
            real = load.get("kernels", {}).get(kernel.name, {})
            if "configs" in real:
                kernel = replace(kernel, configs=tuple(real["configs"]), pruned=real["pruned"], key=tuple(real["key"]))
            finding = _read(kernel, shape)
            findings.append(finding)
            if asked:
                jobs += _jobs(kernel, finding, shape, dtype or DTYPE, SAMPLES if len(kernels) <= FEW_KERNELS or name else 0)
    for finding in findings:
        if load.get("stood_in"):
            finding.notes.append("stood in for or left out while the file was imported: " + ", ".join(list(load["stood_in"])[:8]))
    for adapter in load.get("adapters", []):
        finding, more = _read_adapter(adapter, shape, dtype, kernels)
        findings.append(finding)
        jobs += more
    if not asked:
        unread = Problem("an operator is read by running the file",
                         "install torch and Triton: pip install torch triton" if compiles else "")
        findings += [Found(entry.name, entry.kind, entry.line, problems=[unread]) for entry in kernels if entry.kind in OPERATORS]
    if name:
        findings = [finding for finding in findings if finding.name == name]
        if not findings:
            raise Refused(f"{file} holds no kernel {name}")
    if compiles:
        _compile(findings, [job for job in jobs if any(finding.name == job["name"] for finding in findings)], run, asked, say)
    return sorted(findings, key=lambda each: each.line)


def with_real_configs(path: Path, kernel: Kernel) -> Kernel:
    """Return a kernel with the list of its autotuner, from the imported file where the text does not tell it."""
    if kernel.configs is not None or not has_triton():
        return kernel
    with process.Asked(path, [kernel], COMPILE_S) as child:
        real = child.imported.get("kernels", {}).get(kernel.name, {})
    if "configs" not in real:
        return kernel
    return replace(kernel, configs=tuple(real["configs"]), pruned=real["pruned"], key=tuple(real["key"]))


def has_triton() -> bool:
    """Return whether torch and Triton are installed here, without importing them."""
    return all(importlib.util.find_spec(name) is not None for name in ("torch", "triton"))


def read_file(path: Path) -> list[Kernel]:
    """Return the kernels of a file. Raises Refused."""
    try:
        text = path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise Refused(f"{path}: {getattr(error, 'strerror', None) or 'no text'}") from error
    return kernels_of(text)


def replace_problem(finding: Found, problem: Problem) -> Found:
    finding.problems.insert(0, problem)
    return finding


def _read(kernel: Kernel, shape: Mapping[str, int]) -> Found:
    """Return what the text alone says of a kernel."""
    finding = Found(kernel.name, kernel.kind, kernel.line, arguments=[
        {"name": arg.name, "kind": arg.kind, "written": arg.written} for arg in kernel.arguments if arg.kind != "constexpr"])
    if kernel.kind == "helion.kernel":
        return _read_helion(kernel, finding)
    if kernel.configs is None:
        finding.problems.append(Problem("its configurations are computed: the text does not tell them",
                                        "install torch and Triton here"))
        return finding
    params = spaces.params_of(kernel)
    finding.parameters = [{"name": name, "values": list(values)} for name, values in params.items()]
    finding.default = spaces.default_of(kernel, params)
    finding.assumed = spaces.assumed_constexprs(kernel, params, shape)
    try:
        _count(finding, spaces.space_of(kernel, GPU))
    except ValueError as error:
        finding.problems.append(Problem(str(error)))
    if kernel.pruned:
        finding.pruned["prune_configs_by leaves some out for each shape"] = 0
    _name_what_is_missing(kernel, finding, params)
    return finding


def _read_helion(kernel: Kernel, finding: Found) -> Found:
    if kernel.configs:
        names = list(dict.fromkeys(name for config in kernel.configs for name in config))
        finding.parameters = [{"name": name, "values": [config[name] for config in kernel.configs if name in config]}
                              for name in names]
        finding.size = finding.valid = len(kernel.configs)
    finding.problems.append(Problem("nothing was compiled: Helion makes the space from the arguments, and tunes the kernel itself",
                                    "import the configurations that it finds (Tune, Configs, Import)"))
    return finding


def _count(finding: Found, space: Space) -> None:
    finding.size, finding.valid, finding.pruned = space.size, len(space), dict(space.pruned)
    if space.size and not len(space):
        finding.problems.append(Problem("no configuration of the space can run", "give smaller values"))


def _name_what_is_missing(kernel: Kernel, found: Found, params: Mapping[str, Any]) -> None:
    if not params:
        found.problems.append(Problem("nothing can be tuned: the kernel has no constexpr",
                                      "make its block sizes arguments annotated tl.constexpr"))
    if not any(argument.written for argument in kernel.arguments):
        found.problems.append(Problem("no argument is written that the text shows", "name the result as `out`", missing=True))
    if any(argument.kind == "descriptor" for argument in kernel.arguments):
        found.problems.append(Problem("it takes TMA descriptors that the host makes", "write them in `arguments`", missing=True))
    init = "manage.py operators init writes a TritonOperator with a place for them"
    found.problems.append(Problem("argument tensors for a shape, the launch grid, a reference, FLOP and bytes", init, missing=True))


def _jobs(kernel: Kernel, finding: Found, shape: Mapping[str, int], dtype: str, samples: int) -> list[dict[str, Any]]:
    """Return the samples to compile of a kernel that has no operator: the default and some others of the space."""
    if kernel.kind == "helion.kernel" or finding.size is None or any(arg.kind == "descriptor" for arg in kernel.arguments):
        return []
    try:
        space = spaces.space_of(kernel, GPU)
    except ValueError:
        return []
    arguments = [{"name": arg.name, "kind": arg.kind, "value": _value_of(arg, shape), "dtype": arg.dtype}
                 for arg in kernel.arguments
                 if arg.kind != "constexpr"]
    constexprs = {**finding.assumed, **spaces.known_constexprs(kernel, finding.default, shape)}
    return [{"name": kernel.name, "config": config, "arguments": arguments, "dtype": dtype, "shape": dict(shape),
             "constexprs": {name: value for name, value in constexprs.items() if name not in config}}
            for config in choose_samples(finding.default, space, samples)]


def _value_of(argument: Argument, shape: Mapping[str, int]) -> Any:
    if argument.name in shape:
        return shape[argument.name]
    if argument.default is not UNKNOWN and argument.default is not None:
        return argument.default
    return 1e-6 if argument.kind == "number" else 1024


def _read_adapter(told: Mapping[str, Any], shape: Mapping[str, int], dtype: str, kernels: Sequence[Kernel]
                  ) -> tuple[Found, list[dict[str, Any]]]:
    described = told.get("described")
    name = str(described["name"] if described else told.get("name", "?"))
    written = next((kernel for kernel in kernels if kernel.kind in OPERATORS and kernel.name in (name, "?")), None)
    facts = Found(name, written.kind if written else OPERATORS[0], written.line if written else 0)
    if described is None:
        facts.problems.append(Problem(f"it cannot be described: {told.get('failed')}"))
        return facts, []
    try:
        operator = make_operator(described)
    except ValueError as error:
        facts.problems.append(Problem(str(error)))
        return facts, []
    if told.get("reference"):
        facts.problems.append(Problem(str(told["reference"])[:400], missing="write the reference" in told["reference"]))
    if NOT_INDEPENDENT in told.get("says", ""):
        facts.notes.append(f"reference: what the default itself computes, {NOT_INDEPENDENT}: configurations are seen to agree, "
                           "not to be right")
    if PROPOSED in told.get("says", ""):
        facts.notes.append("reference: proposed from the kernel's name; compare it with what the kernel computes, then write its "
                           "docstring anew")
    dims = {dimension.name for dimension in operator.dims}
    preset = {**operator.presets[0], **{dim: value for dim, value in shape.items() if dim in dims}}
    chosen = dtype if dtype in operator.dtypes else operator.dtypes[0]
    if problems := operator.problems(preset, chosen):
        facts.problems += [Problem(text) for text in problems.values()]
        return facts, []
    return facts, _count_adapter(facts, operator, preset, chosen)


def _count_adapter(finding: Found, operator: Operator, shape: Mapping[str, int], dtype: str) -> list[dict[str, Any]]:
    try:
        space = operator.space(shape, dtype, GPU)
    except ValueError as error:
        finding.problems.append(Problem(str(error)))
        return []
    finding.parameters = [{"name": param.name, "values": list(param.values)} for param in space.params]
    finding.default = dict(operator.default_config(shape, dtype, GPU))
    _count(finding, space)
    return [{"name": finding.name, "config": config, "constexprs": {}, "arguments": [], "dtype": dtype, "shape": dict(shape)}
            for config in choose_samples(finding.default, space, SAMPLES)]


def _try_floats(findings: Sequence[Found], jobs: Sequence[Mapping[str, Any]], asked: process.Asked, told: dict[str, Any]) -> None:
    """Compile kernels once more in fp32 that take nothing shorter, and say so."""
    compiled = told.get("compiled", {})
    refused = {name for name, lines in compiled.items() if all("Expected dtype" in line.get("error", "") for line in lines)}
    again = [{**job, "dtype": "fp32"} for job in jobs if job["name"] in refused and job["dtype"] != "fp32"]
    if again:
        compiled |= asked.compile(again).get("compiled", {})
        for finding in findings:
            if finding.name in {job["name"] for job in again}:
                finding.assumed["dtype"] = "fp32"


def _compile(findings: Sequence[Found], jobs: list[dict[str, Any]], run: bool, asked: process.Asked | None, say: Say) -> None:
    if not asked:
        for finding in findings:
            finding.problems.append(Problem("nothing was compiled: torch and Triton are not installed here",
                                            "pip install torch triton, or run this where the workers run"))
        return
    first = {job["name"]: job for job in reversed(jobs)}
    answer = asked.compile(jobs, list(first.values()) if run else [], say) if jobs else {}
    _try_floats(findings, jobs, asked, answer)
    order = [job["config"] for job in jobs]
    for lines in answer.get("compiled", {}).values():         # several are compiled at once
        lines.sort(key=lambda line: (order.index(line["config"]) if line["config"] in order else len(order),
                                     int(line["gpu"].removeprefix("sm_"))))
    for finding in findings:
        if "failed" in answer and finding.name in first:
            finding.problems.insert(0, Problem(f"nothing was compiled: {answer['failed']}"))
        finding.compiled = answer.get("compiled", {}).get(finding.name, [])
        measured = answer.get("measured", {}).get(finding.name)
        finding.measured = measured if measured and "failed" not in measured else None
        if measured and measured.get("wrong"):
            finding.problems.append(Problem(f"its result is not the reference's: {measured['wrong']}",
                                            "mend the reference, the arguments or the kernel"))
        if measured and "failed" in measured:
            finding.problems.append(Problem(f"it does not run: {measured['failed']}"))
        if run and measured is None and finding.kind not in OPERATORS:
            finding.problems.append(Problem("nothing was run: there are no arguments for it", "manage.py operators init",
                                            missing=True))
        broken = {line["error"] for line in finding.compiled if "error" in line and not line["error"].startswith("compiles, and")}
        if finding.compiled and all("error" in line for line in finding.compiled):
            why = sorted(broken)[0] if broken else finding.compiled[0]["error"]
            is_old = bool(finding.recorded) and why.startswith("Triton ")      # with the host's own arguments
            finding.problems.insert(0, Problem(
                f"no sample compiles: {why}", "the call gives it these arguments: it is written for another Triton" if is_old
                else "if what was assumed of its arguments is wrong, give --shape, or write an operator"))
