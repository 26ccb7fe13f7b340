"""The process in which NVIDIA's native report reader runs: `python -I ncu_child.py REPORT MEMORY_BYTES CPU_SECONDS [plain]`.

`plain`: counters of whole launches alone, nothing inside them (no disassembly, which is where damaged code may hurt).

A program of its own, importing nothing of this project: a damaged file may crash or hang the native code, and then
takes only this process down. Prints one JSON document per line on standard output: ``{"ranges": n, "results": n}``
first, then one per profiled launch, then ``{"end": true}``. Nothing but text crosses the pipe.
"""

import ctypes
import importlib.util
import json
import math
import resource
import signal
import sys
from pathlib import Path
from typing import Any

# Opcodes kept of an instanced metric: what the tensor pipe and the half-precision pipe ran.
OPCODES = ("HMMA", "IMMA", "DMMA", "BMMA", "HGMMA", "IGMMA", "BGMMA", "QGMMA", "QMMA", "OMMA", "UTC",
           "HFMA2", "HADD2", "HMUL2")
OPCODE_METRIC = "sass__inst_executed_per_opcode_with_modifier_all"
BASE_OPCODE_METRIC = "sass__inst_executed_per_opcode"         # without modifiers: the instruction mix, every opcode of it
NVTX, RANGES_JOIN = "nvtx__ranges", " | "                     # no metric of ncu's: what the program said it was doing
MAX_RANGES, MAX_RANGE_CHARACTERS = 20, 400
MAX_BASE_OPCODES = 300                                        # an architecture has fewer
SEVERITY = {0: "info", 1: "info", 2: "optimization", 3: "warning", 4: "error"}     # ncu_report.MsgType
SPEEDUP_SCOPE = {1: "local", 2: "global"}                                            # ncu_report.SpeedupType


def main(path: str, memory_bytes: int, cpu_seconds: int, plain: bool) -> None:
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)      # PR_SET_PDEATHSIG: never outlive the worker
    resource.setrlimit(resource.RLIMIT_AS, (memory_bytes, memory_bytes))
    resource.setrlimit(resource.RLIMIT_CPU, (cpu_seconds, cpu_seconds))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    import ncu_report  # after the limits: loading it is part of what they bound

    context = ncu_report.load_report(path)
    ranges = [context.range_by_idx(i) for i in range(context.num_ranges())]
    say({"ranges": len(ranges), "results": sum(r.num_actions() for r in ranges)})
    units: dict[str, str] = {}
    source = beside("ncu_child_source")
    files = source.SentFiles()
    for range_index, actions in enumerate(ranges):
        for index in range(actions.num_actions()):
            action = actions.action_by_idx(index)
            if action is None:
                say({"unreadable": True})
                continue
            whole = launch(ncu_report, action, range_index, units)
            say(whole if plain else whole | source.inside(action, files))
    say({"end": True})


def beside(name: str) -> Any:
    """Load the part of this program that lies in the file beside it.

    An isolated interpreter has no folder to import from.
    """
    spec = importlib.util.spec_from_file_location(name, Path(__file__).with_name(f"{name}.py"))
    if spec is None or spec.loader is None:
        raise ModuleNotFoundError(name=name)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def launch(ncu_report: Any, action: Any, range_index: int, units: dict[str, str]) -> dict[str, Any]:
    """Return one profiled launch.

    Names, every metric with a value, units not said before, rules.
    """
    metrics: dict[str, float | str] = {}
    new_units: dict[str, str] = {}
    breakdowns: dict[str, str] = {}
    opcodes: dict[str, float] = {}
    valueless = 0
    for name in action.metric_names():
        metric = action.metric_by_name(name)
        if metric is None or not metric.has_value():
            valueless += 1
            continue
        value = metric.value()
        if isinstance(value, float) and not math.isfinite(value):
            valueless += 1
            continue
        if name.startswith(("breakdown:", "group:")):
            breakdowns[name] = str(value)           # a list of metric names, not a value
            continue
        metrics[name] = value if isinstance(value, (int, float)) else str(value)
        if name not in units:
            units[name] = new_units[name] = metric.unit()
        if name == OPCODE_METRIC:
            opcodes |= {f"{name}[{opcode}]": count for opcode, count in kept_opcodes(metric, OPCODES).items()}
        if name == BASE_OPCODE_METRIC:
            opcodes |= {f"{name}[{opcode}]": count for opcode, count in kept_opcodes(metric, ()).items()}
    metrics |= opcodes
    if inside := ranges(action):
        metrics[NVTX] = inside
    return {
        "name": action.name(ncu_report.IAction.NameBase_DEMANGLED) or action.name(),
        "workload": action.workload_type(), "range": range_index,
        "metrics": metrics, "units": new_units, "valueless": valueless, "breakdowns": breakdowns,
        "rules": [rule(r) for r in action.rule_results()],
    }


def ranges(action: Any) -> str:
    """Return the names of the NVTX ranges that the launch lay in, outermost first.

    "" without `--nvtx`.
    """
    state = action.nvtx_state()
    names: list[str] = []
    for number in state.domains() if state is not None else ():
        domain = state.domain_by_id(number)
        if domain is not None:
            names += [*domain.push_pop_ranges(), *domain.start_end_ranges()]
    return RANGES_JOIN.join(str(name)[:MAX_RANGE_CHARACTERS] for name in names[:MAX_RANGES])


def kept_opcodes(metric: Any, beginning: tuple[str, ...]) -> dict[str, float]:
    """Return warp instructions executed per opcode, of those that begin so.

    () keeps the most frequent of all.
    """
    if not metric.has_correlation_ids():
        return {}
    names = metric.correlation_ids()
    counts: dict[str, float] = {}
    for i in range(metric.num_instances()):
        opcode = str(names.value(i))[:60]
        if not beginning or opcode.startswith(beginning):
            counts[opcode] = counts.get(opcode, 0) + metric.value(i)
    if beginning:
        return counts
    return dict(sorted(counts.items(), key=lambda pair: -pair[1])[:MAX_BASE_OPCODES])


def rule(result: Any) -> dict[str, Any]:
    message: dict[str, Any] = result.rule_message() if result.has_rule_message() else {"title": "", "message": "", "type": 0}
    speedup = result.speedup_estimation() if result.has_speedup_estimation() else None
    return {
        "identifier": result.rule_identifier(), "section": result.section_identifier(),
        "title": message["title"] or result.name(), "text": message["message"],
        "severity": SEVERITY.get(message["type"], "info"),
        "speedup_pct": finite(speedup["speedup"]) if speedup else None,
        "speedup_scope": SPEEDUP_SCOPE.get(speedup["type"]) if speedup else None,
        "focus": [{"name": f["name"], "value": finite(f["value"]), "info": f["info"]} for f in result.focus_metrics()],
    }


def finite(value: Any) -> float | None:
    return value if isinstance(value, (int, float)) and math.isfinite(value) else None


def say(document: dict[str, Any]) -> None:
    # a damaged string may hold half characters: they become "?", or the line would be no JSON
    line = json.dumps(document, allow_nan=False, ensure_ascii=False) + "\n"
    sys.stdout.buffer.write(line.encode("utf-8", "replace"))
    sys.stdout.buffer.flush()


if __name__ == "__main__":
    try:
        main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), "plain" in sys.argv[4:])
    except ModuleNotFoundError as error:
        say({"missing": str(error.name)})
    except MemoryError:
        say({"memory": True})
