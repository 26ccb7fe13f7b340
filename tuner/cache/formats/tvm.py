"""Tuning logs of TVM: AutoTVM's and Ansor's log lines, and MetaSchedule's database_tuning_record.json; one JSON document a line.

* AutoTVM (python/tvm/autotvm/record.py): {"input": [target, task, arguments, {}], "config": {"entity": [[name, kind, value], …]},
  "result": [times in s, error, cost, at]}; before 0.2 {"i": [target, task, arguments, {}, workload, {"e": …}], "r": …}.
* Ansor (src/auto_scheduler/measure_record.cc): {"i": [[workload key, target, …], [[], [step, …]]], "r": [times in s, error, …]}.
* MetaSchedule (src/meta_schedule/database): [workload, [[[instruction, …], [[which, decision], …]], times s, target, arguments]]

None of them names a GPU, MetaSchedule's no operator. Dimensions are the arguments in their order: t0_1 is the second of the first
tensor, a2 the third argument where it is a number.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from profiles.base.numbers import positive_number
from tuner.cache.formats.document import (
    MAX_ROWS,
    MAX_TEXT,
    Document,
    FormatError,
    Row,
    check_config,
    count_refusals,
    decode_json,
    decode_text,
)
from tuner.tuning.trial import storable

DTYPES = {"float32": "fp32", "float16": "fp16", "bfloat16": "bf16", "int8": "int8"}
MARKS = ('"entity"', '"result"'), ('"i"', '"r"', '"v"')          # of an AutoTVM line; of an older one or Ansor's
HINT = "Give a log of AutoTVM or Ansor, or MetaSchedule's database_tuning_record.json."


@dataclass(frozen=True)
class _Trial:
    task: str
    arguments: Any
    config: dict[str, Any]
    times_s: Any
    error: Any


def is_log(text: str) -> bool:
    """Return whether the head of a file looks like one of the three."""
    head = text.split("\n", 1)[0]
    if head.startswith("{"):
        return any(all(mark in head for mark in marks) for marks in MARKS)
    return head.startswith("[") and '"TENSOR"' in head and head[1:].lstrip()[:1].isdecimal()


def read(data: bytes, name: str, operator: str = "") -> Document:
    """Read the trials of one task with their median times; `operator` chooses it by name where a log holds several."""
    lines = [line for line in decode_text(data, name).splitlines() if line.strip()]
    if len(lines) > MAX_ROWS:
        raise FormatError(name, f"has more than {MAX_ROWS:,} lines", "Give it in parts.")
    trials, refusals = [], []
    for line in lines:
        trial = _read_line(line, name)
        if isinstance(trial, str):
            refusals.append(trial)
        else:
            trials.append(trial)
    tasks = sorted({trial.task for trial in trials})
    chosen = operator if operator in tasks else tasks[0] if len(tasks) == 1 else None
    if not trials:
        suffix = f" ({'; '.join(count_refusals(refusals))})" if refusals else ""
        raise FormatError(name, f"holds no trial of TVM{suffix}", HINT)
    if chosen is None:
        raise FormatError(name, f"holds trials of {len(tasks)} tasks: {', '.join(tasks[:8])[:300]}",
                          "Name one of them as its operator.")
    rows, dtypes = [], set()
    for trial in trials:
        row = _row(trial) if trial.task == chosen else f"of another task: {trial.task[:60]}"
        if isinstance(row, str):
            refusals.append(row)
        else:
            rows.append(row)
            dtypes.add(_dtype(trial.arguments))
    if not rows:
        raise FormatError(name, f"holds no trial that ran ({'; '.join(count_refusals(refusals))})", HINT)
    return Document("tvm", name, tuple(rows), operator=chosen[:60], dtype=dtypes.pop() if len(dtypes) == 1 else "",
                    refused=count_refusals(refusals), notes=("timed by TVM's runner",))


def _read_line(line: str, name: str) -> _Trial | str:
    try:
        trial = _parse(decode_json(line.encode(), name, infinite=True))
        return trial if isinstance(trial.arguments, list) else "a line that is none of TVM's"
    except FormatError:
        return "a line that is no JSON"
    except (KeyError, IndexError, TypeError, ValueError, AttributeError):
        return "a line that is none of TVM's"


def _parse(value: Any) -> _Trial:
    """Return a line's trial. KeyError, TypeError and their like where it has another form."""
    if isinstance(value, list):
        workload, ((instructions, decisions), times, _, arguments) = value
        if type(workload) is not int:
            raise TypeError
        config = {f"{instructions[index][0]}_{index}": decision for index, decision in decisions}
        return _Trial(f"workload {workload}", arguments, config, times, 0)
    if "config" in value:
        _, task, arguments = value["input"][:3]
        return _Trial(str(task), arguments, _entity(value["config"]["entity"]), value["result"][0], value["result"][1])
    inside, result = value["i"], value["r"]
    if isinstance(inside[0], list):
        key = json.loads(inside[0][0])
        steps = {f"step{index:02}_{step[0]}": step[1:] for index, step in enumerate(inside[1][1])}
        return _Trial(str(key[0]), key[1:], steps, result[0], result[1])
    return _Trial(str(inside[1]), inside[2], _entity(inside[5]["e"]), result[0], result[1])


def _entity(entity: Any) -> dict[str, Any]:
    return {name: value for name, _, value in entity}


def _row(trial: _Trial) -> Row | str:
    """Return a trial that ran with its median in ms, or why it cannot be used."""
    if trial.error != 0:
        return f"it did not run: TVM's error {str(trial.error)[:10]}"
    times = [positive_number(time_s) for time_s in trial.times_s] if isinstance(trial.times_s, list) else []
    seconds = [time_s for time_s in times if time_s is not None]
    if not seconds or len(seconds) != len(times) or max(seconds) >= 1e9:            # what TVM writes for a failure
        return "no finite time: it did not run"
    config = check_config(trial.config, lists=True)
    if isinstance(config, str):
        return config
    if not trial.task or len(trial.task) > MAX_TEXT or not storable(trial.task):
        return "a task without a name"
    return Row(config, dict(_dimensions(trial.arguments)), 1000 * statistics.median(seconds))


def _dimensions(arguments: Any) -> Iterator[tuple[str, int]]:
    for index, entry in enumerate(arguments):
        if type(entry) is int:
            yield f"a{index}", entry
        elif isinstance(entry, list):
            shape = next((part for part in entry[1:] if isinstance(part, list)), ()) if entry[:1] == ["TENSOR"] else entry
            yield from ((f"{'t' if entry[:1] == ['TENSOR'] else 'a'}{index}_{n}", size) for n, size in enumerate(shape)
                        if type(size) is int)


def _dtype(arguments: Any) -> str:
    """Return the first tensor's type in our words; "" where none is named."""
    for argument in arguments:
        if isinstance(argument, list) and argument[:1] == ["TENSOR"]:
            name = next((part for part in argument[1:] if isinstance(part, str)), "")
            return DTYPES.get(name, name[:16])
    return ""
