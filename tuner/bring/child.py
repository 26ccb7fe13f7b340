"""The process that imports a kernel file and compiles samples of it for GPUs that need not be here.

Started by `process` as `python -m tuner.bring.child PARENT_PID`, or forked by a process that has imported it. Requests come on
standard input, a line of JSON each: the file to import, then what to compile of it, as often as there is something; it dies with
its parent. The answer is JSON, a line for each thing found, on the file descriptor that RIDGEPOINT_ANSWER_FD names: what the file
prints is not read as one. A byte on RIDGEPOINT_WHOLE_FD ends it. Every compile is a fork of its own, ended after `compile_s`
seconds. No GPU is seen without RIDGEPOINT_BRING_RUN.
"""

from __future__ import annotations

import json
import os
import re
import sys
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import product
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from profiles.base.refused import Refused
from tuner.bring.calls.choices import Choices
from tuner.bring.calls.compiling import compile_launch
from tuner.bring.calls.expression import read_call
from tuner.bring.calls.loading import asks_for_gpu, load_tolerantly
from tuner.bring.calls.needed_values import ValuesNeeded, WithoutValues
from tuner.bring.calls.recorder import Launch, Recorder
from tuner.bring.calls.session import Session
from tuner.bring.calls.stand_ins import stand_in_gpu
from tuner.bring.calls.standing.missing import Seen
from tuner.bring.forked import ENDLESS, bound_data, in_fork
from tuner.bring.source import OPERATORS
from tuner.tuning import wire
from tuner.tuning.kernels.problem import torch_dtype
from tuner.tuning.measure import offline
from tuner.tuning.measure.accuracy import TOLERANCE, check_config
from tuner.tuning.team import packages
from tuner.tuning.team.adapter import TritonOperator
from tuner.tuning.team.problem import make_problem

# ---- one launch of a team's operator on the GPU of this machine ----
# Is it right, and how long does the default take?

LAUNCHES, WARM_UPS = 50, 10


def run_default(adapter: TritonOperator, shape: Mapping[str, int], dtype: str, config: Mapping[str, Any]) -> dict[str, Any]:
    """Return {"gpu", "shape", "dtype", "config", "us", "error", "wrong"}, or {"failed"}.

    us     median of LAUNCHES launches by CUDA events, µs
    error  ‖out − reference‖ / ‖reference‖, and `wrong` why the result is not right ("" where it is): tuner.tuning.measure.accuracy
    """
    if not torch.cuda.is_available():
        return {"failed": "no GPU here"}
    try:
        problem = make_problem(adapter, shape, dtype, torch.device("cuda"), 0)
        _, verdict = check_config(problem, dict(config), 0, adapter.tolerance.get(dtype, TOLERANCE.get(dtype, TOLERANCE["bf16"])))
        for _ in range(WARM_UPS):
            problem.launch(dict(config))
        times_us = []
        for _ in range(LAUNCHES):
            begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            begin.record()
            problem.launch(dict(config))
            end.record()
            end.synchronize()
            times_us.append(begin.elapsed_time(end) * 1000)
    except Exception as error_met:
        return {"failed": f"{type(error_met).__name__}: {error_met}"[:600]}
    return {"gpu": torch.cuda.get_device_name(), "shape": dict(shape), "dtype": dtype, "config": dict(config),
            "us": sorted(times_us)[len(times_us) // 2], "error": verdict.relative_error,
            "wrong": "" if verdict.right else verdict.message}


# ---- the process that imports a kernel file ----

GPUS = {"sm_80": ("8.0", 108), "sm_90": ("9.0", 132), "sm_100": ("10.0", 148)}
AT_ONCE = 16                # compiles, of which each takes some processes
MAX_DATA_BYTES = 12 << 30
REFUSES = "Triton {} refuses it"
MESSAGE_CHARS = 600
STANDS_IN_FOR = "9.0"       # the GPU that is answered for while a file is imported and its call is made
DTYPE = "bf16"              # of tensors whose call names none
MOST_NAMED = 40             # modules that were stood in for
ELEMENTS = 1 << 20          # of a tensor that is only looked at by its type


def make_ready() -> None:
    """In the warm parent: make what tensors without memory need. What torch imports for that takes two seconds.

    It is not entered: that looks for a GPU, and a fork of a process that did can use none.
    """
    from torch._subclasses.fake_tensor import FakeTensorMode

    import tuner.bring.calls.pretending  # noqa: F401

    FakeTensorMode(allow_non_fake_inputs=True)


def main(argv: Sequence[str]) -> int:
    """Answer requests until there are no more; return the exit status."""
    wire.enter_child(int(argv[0]))
    requests = os.fdopen(os.dup(0), "rb")       # of our own: a file that reads its standard input finds none of it
    with open(os.devnull) as nothing:
        os.dup2(nothing.fileno(), 0)
    whole = int(os.environ["RIDGEPOINT_WHOLE_FD"])
    request = json.loads(requests.readline())
    bound_data(MAX_DATA_BYTES)
    with os.fdopen(int(os.environ["RIDGEPOINT_ANSWER_FD"]), "w") as answer:
        saying = threading.Lock()

        def say(**line: Any) -> None:
            with saying:
                answer.write(json.dumps(line, default=str) + "\n")
                answer.flush()

        choices = Choices()
        try:
            module, report, mode = load_file(Path(request["file"]), choices, fake=bool(request.get("calls")))
        except BaseException as error:          # the file may raise anything, and may exit
            say(failed=_say(error))
            return 0
        if report.modules:
            say(stood_in=dict(list(report.modules.items())[:MOST_NAMED]))
        adapters = {adapter.name: adapter for adapter in adapters_of(module)}
        say(adapters=[describe(adapter) for adapter in adapters.values()])
        for entry in request["kernels"]:
            kernel = getattr(module, entry["name"], None)
            if entry["kind"] not in OPERATORS and kernel is not None:
                say(kernel=entry["name"], **facts_of(kernel))
        os.write(whole, b".")
        session: Session | None = None
        for line in requests:
            command = json.loads(line)
            if "call" in command:
                session = Session(module, choices, mode, torch_dtype(command.get("dtype") or DTYPE))
                say(recorded=_record(session, command["call"], report))
            else:
                _compile_and_run(command, module, adapters, session.launches if session else [], request["compile_s"], say)
            os.write(whole, b".")
    return 0


def _record(session: Session, call: str, seen: Seen) -> dict[str, Any]:
    """Return what a call launches, and the names of stand-ins that it called."""
    seen.used.clear()
    try:
        recorded = session.record(read_call(call))
    except Refused as error:
        recorded = {"failed": str(error)}
    used = sorted(seen.used)[:MOST_NAMED]
    lost = [f"{at}: {why}" for at, why in seen.modules.items() if any(re.search(rf", {re.escape(at)}\b", each) for each in used)]
    if "failed" in recorded and lost:           # a kernel whose decorators this Triton refuses
        recorded["failed"] = f"{recorded['failed']}; it needs {lost[0]}"
    return {**recorded, "used": used}


def _compile_and_run(request: dict[str, Any], module: ModuleType, adapters: Mapping[str, TritonOperator], launches: list[Any],
                     compile_s: float, say: Callable[..., None]) -> None:
    endless: set[int] = set()

    def compile_here(asked: tuple[dict[str, Any], str]) -> None:
        job, gpu = asked
        sample = {"gpu": gpu, "config": job["config"], "error": "not tried: without end for another GPU"}
        adapter, kernel = adapters.get(job["name"]), getattr(module, job["name"], None)
        if "launch" in job:
            adapter, kernel = None, launches[job["launch"]]
        if adapter is None and kernel is None:
            sample["error"] = "it stands inside a function: no other file can import it"
        elif id(job) not in endless:
            sample = compile_one(job, gpu, adapter, kernel, compile_s)
        if sample.get("error", "").startswith(ENDLESS):
            endless.add(id(job))
        say(compiled=job["name"], **sample)

    with ThreadPoolExecutor(min(os.cpu_count() or 1, AT_ONCE)) as pool:
        list(pool.map(compile_here, product(request["compile"], request.get("gpus") or GPUS)))
    for job in request["run"] if sees_gpu() else ():
        if job["name"] in adapters:
            say(measured=job["name"], **run_default(adapters[job["name"]], job["shape"], job["dtype"], job["config"]))


def sees_gpu() -> bool:
    """Return whether this process may open a GPU, and launch on it."""
    return os.environ.get("RIDGEPOINT_BRING_RUN") == "1"


def load_file(path: Path, choices: Choices, fake: bool) -> tuple[ModuleType, Seen, Any]:
    """Import the file as `calls.loading` does, where a GPU is answered for that is not here.

    Return its module, what was stood in for, and with `fake` the mode in which tensors have no memory: the file is imported in it,
    as it is where it makes tensors on a GPU while it is imported.
    """
    if sees_gpu():
        return *load_tolerantly(path, choices), None
    stand_in_gpu(STANDS_IN_FOR)
    if not fake:
        try:
            return *load_tolerantly(path, choices, is_first_try=True), None
        except (RuntimeError, AssertionError) as error:
            if not asks_for_gpu(error):
                raise
    from torch._subclasses.fake_tensor import FakeTensorMode

    from tuner.bring.calls.pretending import pretended, stand_in_tensors
    from tuner.bring.calls.values import Values

    mode = FakeTensorMode(allow_non_fake_inputs=True)
    stand_in_tensors()
    launched = Recorder(keeps=False)            # what is launched while the file is imported
    launched.start()
    try:
        with pretended(mode, Values()):
            torch.empty(2, device="cuda") + 1       # what torch imports for it is not the file's
            return *load_tolerantly(path, choices), mode
    finally:
        launched.stop()


def adapters_of(module: ModuleType) -> list[TritonOperator]:
    """Return every operator that the module holds, by itself or in a list."""
    operators_by_id: dict[int, TritonOperator] = {}
    for value in list(vars(module).values()):
        for candidate in value if isinstance(value, list | tuple) else [value]:
            if isinstance(candidate, TritonOperator):
                operators_by_id[id(candidate)] = candidate
    return list(operators_by_id.values())


def describe(adapter: TritonOperator) -> dict[str, Any]:
    """Return the description of an operator, or why there is none, and what its reference says of tensors without values."""
    try:
        described = packages.describe_adapter(adapter)
    except Exception as error:
        return {"name": str(adapter.name)[:60], "failed": _say(error)}
    says = str(getattr(adapter.reference, "__doc__", None) or "")[:MESSAGE_CHARS]
    return {"described": described, "reference": _try_reference(adapter), "says": says}


def _try_reference(adapter: TritonOperator) -> str:
    """Return what is wrong with the arguments or the reference at the first preset; "" where nothing is seen to be."""
    try:
        args = dict(adapter.arguments(adapter.presets[0], torch_dtype(adapter.dtypes[0]), torch.device("meta")))
    except Exception as error:
        return f"`arguments` fails at {dict(adapter.presets[0])}: {_say(error)}"
    out = args.get(adapter.out)
    if not isinstance(out, torch.Tensor):
        return f"`arguments` gives no tensor {adapter.out!r}, which `out` names"
    try:
        with WithoutValues():
            right = adapter.reference(args)
    except ValuesNeeded:                    # whether it is right is seen where it runs
        return ""
    except Exception as error:
        return f"`reference` fails: {_say(error)}"
    if isinstance(right, torch.Tensor) and right.shape != out.shape and right.numel() != out.numel():
        return f"`reference` gives {list(right.shape)}, the kernel writes {list(out.shape)}"
    return ""


def facts_of(kernel: Any) -> dict[str, Any]:
    """Return the configurations of an autotuned kernel, as Triton itself has them; {} of any other."""
    while hasattr(kernel, "values") and hasattr(kernel, "fn"):          # heuristics above it
        kernel = kernel.fn
    if not hasattr(kernel, "configs") or not hasattr(kernel, "fn"):
        return {}
    return {"configs": [packages.config_json(config) for config in kernel.configs], "key": list(getattr(kernel, "keys", ())),
            "pruned": getattr(kernel, "early_config_prune", None) is not None or bool(getattr(kernel, "perf_model", None))}


def compile_one(job: Mapping[str, Any], gpu: str, adapter: TritonOperator | None, kernel: Any, limit_s: float) -> dict[str, Any]:
    """Compile one configuration in a fork; return its facts or why it does not compile."""
    result = in_fork(_compile, job, gpu, adapter, kernel, limit_s=limit_s)
    return {"gpu": gpu, "config": job["config"], **result}


def _compile(job: Mapping[str, Any], gpu: str, adapter: TritonOperator | None, kernel: Any) -> dict[str, Any]:
    began_s = time.monotonic()
    capability, sms = GPUS[gpu]
    try:
        offline.set_target(capability, sms)
        if adapter is not None:
            compiled = make_problem(adapter, job["shape"], job["dtype"], torch.device("meta"), 0).compile(job["config"])
        elif isinstance(kernel, Launch):
            compiled = compile_launch(kernel, job["config"])
        else:
            while hasattr(kernel, "fn") and (hasattr(kernel, "configs") or hasattr(kernel, "values")):
                kernel = kernel.fn              # below its autotuner and its heuristics
            compiled = kernel.warmup(grid=(1,), **arguments_of(job["arguments"], job["dtype"]), **_typed(job["constexprs"]),
                                     **job["config"])
        facts = offline.static_facts(compiled, capability)
        result = {name: facts.get(name) for name in ("registers", "spills", "smem_bytes", "occupancy_pct")}
        if too_much := offline.why_not_start(facts, capability):
            result = {"error": f"compiles, and does not fit: {too_much}"}
    except BaseException as error:
        result = {"error": _say(error)}
    return {**result, "seconds": round(time.monotonic() - began_s, 2)}


def arguments_of(arguments: Iterable[Mapping[str, Any]], dtype: str) -> dict[str, Any]:
    """Return tensors without memory and numbers, as the kernel's arguments are understood."""
    values: dict[str, Any] = {}
    for each in arguments:
        if each["kind"] in ("pointer", "index") and isinstance(named := getattr(torch, each.get("dtype") or "", None), torch.dtype):
            values[each["name"]] = torch.empty(ELEMENTS, dtype=named, device="meta")
        elif each["kind"] == "pointer":
            values[each["name"]] = torch.empty(ELEMENTS, dtype=torch_dtype(dtype), device="meta")
        elif each["kind"] == "index":
            values[each["name"]] = torch.empty(ELEMENTS, dtype=torch.int32, device="meta")
        else:
            values[each["name"]] = each["value"]
    return values


def _typed(constexprs: Mapping[str, Any]) -> dict[str, Any]:
    import triton.language as tl

    return {name: getattr(tl, value) if isinstance(value, str) and isinstance(getattr(tl, value, None), tl.dtype) else value
            for name, value in constexprs.items()}


def _say(error: BaseException) -> str:
    text = f"{type(error).__name__}: {error}".strip()
    if type(error).__name__ in ("CompilationError", "CompileTimeAssertionFailure", "UnsupportedLanguageConstruct"):
        origin: BaseException = error
        while type(origin.__cause__).__name__ == "CompilationError":        # of a function that the kernel calls
            origin = origin.__cause__                                           # type: ignore[assignment]
        cause = f"{type(origin.__cause__).__name__}: {origin.__cause__}" if origin.__cause__ is not None else ""
        line = getattr(getattr(origin, "node", None), "lineno", None)
        of_it = dict(enumerate(str(getattr(origin, "src", None) or "").splitlines(), 1)).get(int(line or 0), "").strip()
        message = (getattr(origin, "error_message", None) or cause or text)[:MESSAGE_CHARS // 2]
        where = f" (line {line} of the kernel{': ' if of_it else ''}{of_it[:MESSAGE_CHARS // 4]})" if line else ""
        text = f"{REFUSES.format(sys.modules['triton'].__version__)}: {message}{where}"
    return text[:MESSAGE_CHARS]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
