"""What is said of CUDA C++ kernels that one call of their host function launches: `operators check --call`, pages, the API."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from profiles.base.refused import Refused
from tuner.bring import process
from tuner.bring.calls.changed import read_changed
from tuner.bring.calls.expression import CallExpression, read_call
from tuner.bring.calls.found import is_contiguous
from tuner.bring.cuda.adapting import macros_for, read_kernel, write_called_cuda
from tuner.bring.cuda.check import COMPILE_S, compile_jobs
from tuner.bring.cuda.formulas import RecordedCuda, threads_of
from tuner.bring.cuda.source import CudaSource, read_cuda
from tuner.bring.cuda.space import TYPES
from tuner.bring.cuda.ties import followed
from tuner.bring.cuda.understand import understand_cuda
from tuner.bring.references import NOT_INDEPENDENT
from tuner.bring.report import Found, Problem
from tuner.bring.samples import FEW_KERNELS, GPU, SAMPLES, choose_samples
from tuner.bring.write import Draft
from tuner.tuning.cuda.defines import as_macro
from tuner.tuning.cuda.functions import BLOCK
from tuner.tuning.space import Constraint, Param, Space
from tuner.tuning.team.expressions import Expression

CHILD = "tuner.bring.cuda.child"
KINDS = {"int": "integer", "float": "number", "bool": "flag", "none": "none", "str": "text", "tensor": "pointer", "tuple": "struct"}
REFERENCE = f"reference: what the default itself computes, {NOT_INDEPENDENT}: configurations are seen to agree, not to be right"


Step = Callable[[str, float], None]           # what is done now, and for how many seconds at most


def record_call(path: Path, call: str, dtype: str, macros: Mapping[str, int], step: Step = lambda what, most_s: None
                ) -> dict[str, Any]:
    """Return what one call of the file's host function launches; `macros`: those that a build gives by -D, with their numbers.

    Raises Refused with why it launches nothing.
    """
    try:
        read_call(call)
    except Refused as refused:
        raise Refused(f"--call: {refused}") from refused
    request = {"file": str(path.resolve()), "call": call, "dtype": dtype, "macros": dict(macros)}
    last = [b""]

    def look(told: bytes) -> None:
        steps = [line for line in told.splitlines() if line.startswith(b'{"step":')]
        if steps and steps[-1] != last[0]:
            last[0] = steps[-1]
            now = json.loads(last[0])["step"]
            step(now["what"], now["most_s"])

    answer = process.ask_child(CHILD, request, 1, COMPILE_S, lambda done, of: None, look)
    recorded: dict[str, Any] = answer.get("recorded", {"failed": answer.get("failed", "no answer")})
    if "failed" in recorded:
        raise Refused(f"the call fails: {_say_death(recorded['failed'])}")
    return recorded


def _say_death(text: str) -> str:
    """Return what the death of the process that makes the call means."""
    if "ended with -11:" in text or "ended with -7:" in text:           # SIGSEGV, SIGBUS
        return "the host function reads memory of a tensor, which has none here, or calls what has no stand-in"
    if "symbol lookup error" in text:
        return f"the host function calls what has no stand-in: {text.rpartition(':')[2].strip()}"
    return text


def sources_of(path: Path, told: Mapping[str, Any] | None = None) -> dict[str, CudaSource]:
    """Return the kernels of a file that can be read, by name, the first of each; of its own headers what a call launches.

    Raises Refused.
    """
    sources: dict[str, CudaSource] = {}
    launched = {each["kernel"] for each in (told or {}).get("launches", ())}
    for others in (False, True):
        if not others or launched - sources.keys():
            for each in read_cuda(path, others):
                if not each.function.problem:
                    sources.setdefault(each.function.name, each)
    return sources


def check_call(path: Path, name: str, call: str, dtype: str, macros: Mapping[str, int], say: Callable[[int, int], None],
               keep: Callable[[dict[str, Any]], None], step: Step = lambda what, most_s: None) -> list[Found]:
    """Return what is found of the kernels that one call launches; `keep` is given the record itself, `step` told what is done now.

    Raises Refused.
    """
    record = record_call(path, call, dtype, macros, step)
    keep(record)
    understood = [pair for pair in understand_cuda(record, sources_of(path, record)) if name in ("", pair[0].name)]
    launched = list(dict.fromkeys(launch["kernel"] for launch in record["launches"]))
    if not understood:
        raise Refused(f"the call launches {', '.join(launched)}" + (f", no {name}" if name else ", which cannot be read"))
    findings, jobs = [], []
    for entry, source in understood:
        finding, more = found_of(entry, source, record, SAMPLES if len(understood) <= FEW_KERNELS or name else 0, macros)
        findings.append(finding)
        jobs += more
    compile_jobs(findings, jobs, say)
    return findings


def found_of(each: RecordedCuda, source: CudaSource, told: Mapping[str, Any], samples: int, macros: Mapping[str, int] | None = None
             ) -> tuple[Found, list[dict[str, Any]]]:
    """Return what is found of one kernel of the call, and the samples to compile."""
    launch, kernel = each.launch, read_kernel(source, each, told)
    found = Found(source.function.name, source.kind, source.line)
    written = {argument.name for argument in kernel.arguments if argument.written}
    found.arguments = [_argument(name, value, name in written) for name, value in launch["arguments"].items()]
    found.parameters = [{"name": name, "values": list(values)} for name, values in each.params.items()]
    found.default = dict(each.default)
    found.recorded = {
        "call": told["call"], "grid": launch["grid"], "grid_formula": ", ".join(map(str, each.grid)),
        "constexprs": {name: {"value": value["value"], "chosen": each.chosen.get(name, "")}
                       for name, value in launch["constexprs"].items()},
        "options": {name: value for name, value in launch["options"].items() if name == BLOCK[0] or value > (name in BLOCK)},
        "heuristics": [], "dims": dict(each.dims), "key": [], "gluon": False, "restores": []}
    found.notes = [*each.untuned, *read_changed(launch, kernel, told.get("inputs", ())).notes(), REFERENCE]
    if each.here:
        found.notes.insert(0, f"tuned at the call's own sizes alone: {', '.join(each.here[:6])} follow them in no simple way")
    if told.get("passed_over"):
        found.notes.append(f"calls of libraries, not recorded, what they write is not known: {', '.join(told['passed_over'][:8])}")
    if told.get("failed_at"):
        found.notes.append(f"the call did not end, after these launches: {told['failed_at']}")
    found.problems += [Problem(sentence, missing=True) for sentence in each.unsure]
    if not any(len(values) > 1 for values in each.params.values()):
        found.problems.append(Problem("nothing can be tuned: the host was seen to choose nothing for it", ""))
    space = space_of(each)
    found.size, found.valid, found.pruned = space.size, len(space), dict(space.pruned)
    configs = choose_samples(found.default, space, samples) if each.params else [{}]
    return found, [_job(each, source, config, macros or {}) for config in configs]


def space_of(each: RecordedCuda) -> Space:
    """Return the space of what is tuned, without blocks of more threads than a GPU has."""
    text = threads_of(each)
    rules = []
    if text:
        rule = Expression(text, list(each.params))
        rules.append(Constraint("threads per block", lambda config: rule.value(config) <= GPU.threads, tuple(rule.names)))
    params = [Param(name, values) for name, values in each.params.items()]
    return Space.enumerate(params, rules) if params else Space.listed([])


def _job(each: RecordedCuda, source: CudaSource, config: Mapping[str, Any], macros: Mapping[str, int]) -> dict[str, Any]:
    template = {name: config.get(name, value) for name, value in each.template.items()}
    values = [as_macro(value) if isinstance(value, int) else TYPES.get(value, value) for value in template.values()]
    defines = {name: as_macro(value) for name, value in {**macros_for(source, macros), **config}.items()
               if name not in template and name not in BLOCK}
    defines |= followed(source.tied, config)
    threads = {**each.launch["options"], **config}
    return {"name": source.function.name, "config": dict(config), "text": source.text, "file": str(source.file),
            "expression": source.function.qualified + (f"<{', '.join(values)}>" if values else ""),
            "threads": threads[BLOCK[0]] * threads[BLOCK[1]] * threads[BLOCK[2]], "defines": defines,
            "loose": sorted(frozenset(source.holds.defines) - source.holds.guarded)}


def _argument(name: str, value: Mapping[str, Any], written: bool) -> dict[str, Any]:
    kind = KINDS.get(value["kind"], value["kind"])
    if value["kind"] == "tensor":
        return {"name": name, "kind": kind, "written": written, "dtype": value["dtype"], "shape": list(value["shape"]),
                "strides": list(value["strides"]), "contiguous": is_contiguous(value["shape"], value["strides"])}
    plain = value.get("value")
    text = f"{len(plain)} words" if isinstance(plain, list) else plain
    return {"name": name, "kind": kind, "written": written, "value": text}


Drafts = list[tuple[RecordedCuda, CudaSource, Draft | Refused]]


def drafts_of(path: Path, record: Mapping[str, Any], call: CallExpression, name: str = "", macros: Mapping[str, int] | None = None
              ) -> Drafts:
    """Return (what was recorded, kernel, its adapter or Refused) of each kernel that a record launches. Raises Refused."""
    drafts: Drafts = []
    for each, source in understand_cuda(record, sources_of(path, record)):
        if name in ("", each.name):
            try:
                drafts.append((each, source, write_called_cuda(each, source, record, call, path.name, macros or {})))
            except Refused as refused:
                drafts.append((each, source, refused))
    return drafts


def draft_of_call(path: Path, name: str, call: str, dtype: str, macros: Mapping[str, int]) -> Draft:
    """Return the adapter of the one kernel that a call launches, or of that named. Raises Refused."""
    record = record_call(path, call, dtype, macros)
    drafts = drafts_of(path, record, read_call(call), name, macros)
    if len(drafts) != 1:
        names = ", ".join(entry.name for entry, _, _ in drafts) or f"no {name}"
        raise Refused(f"the call launches {names}: name one as {path.name}:NAME")
    draft = drafts[0][2]
    if isinstance(draft, Refused):
        raise draft
    return draft


