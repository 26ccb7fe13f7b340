"""What vLLM and SGLang take at the start of a capture, parameter by parameter, as their own sources state it.

vLLM 0.33.0: vllm/entrypoints/serve/profile/api_router.py, vllm/config/profiler.py. SGLang 0.5.23: sglang/srt/managers/io_struct.py
(`ProfileReq`), managers/scheduler_components/profiler_manager.py. tests/profiles/running/test_wheels.py reads them again.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

MOST_TEXT, MOST_OBJECT = 200, 2000
TEXT, INTEGER, BOOLEAN, OBJECT, TEXTS = "text", "integer", "boolean", "object", "texts"
START, STOP = "/start_profile", "/stop_profile"
VERSIONS = {"vllm": ("/version",), "sglang": ("/server_info", "/get_server_info")}      # the second of older ones
STEPS = {"vllm": "max_iterations", "sglang": "num_steps"}
PREFIX = "profile_prefix"
NEEDS = {
    "vllm": "vLLM has these routes only when it was started with --profiler-config (0.11 and before: VLLM_TORCH_PROFILER_DIR set)",
    "sglang": "SGLang writes where it is told to (before output_dir: where SGLANG_TORCH_PROFILER_DIR says)"}
_PREFIX = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")       # vLLM's own rule


@dataclass(frozen=True)
class Parameter:
    name: str
    kind: str
    says: str
    least: int = 0
    choices: tuple[str, ...] = ()


PARAMETERS: dict[str, tuple[Parameter, ...]] = {
    "vllm": (
        Parameter(PREFIX, TEXT, "before the traces' names"),
        Parameter("delay_iterations", INTEGER, "engine iterations that pass first"),
        Parameter("max_iterations", INTEGER, "engine iterations that are recorded; 0: until it is stopped"),
        Parameter("profiler_kwargs", OBJECT, "arguments of torch.profiler for this capture, as JSON"),
    ),
    "sglang": (
        Parameter("output_dir", TEXT, "below the server's folder"),
        Parameter("start_step", INTEGER, "forward step at which it begins"),
        Parameter("num_steps", INTEGER, "forward steps that are recorded"),
        Parameter("activities", TEXTS, "what is recorded", choices=("CPU", "GPU", "MEM", "RPD")),
        Parameter("profile_by_stage", BOOLEAN, "prefill and decode apart"),
        Parameter("profile_stages", TEXTS, "only these stages", choices=("prefill", "decode")),
        Parameter("with_stack", BOOLEAN, "Python stacks"),
        Parameter("record_shapes", BOOLEAN, "input shapes"),
        Parameter("profile_id", TEXT, "in the traces' names"),
        Parameter(PREFIX, TEXT, "before the traces' names"),
        Parameter("merge_profiles", BOOLEAN, "one trace of all ranks"),
        Parameter("detailed_annotations", BOOLEAN, "requests and KV lengths of each step"),
    ),
}


def read_parameters(kind: str, given: Mapping[str, Any], folder: str = "") -> tuple[dict[str, Any], dict[str, str]]:
    """Return parameters as they are sent, without those that were left empty, and what is wrong by name.

    Values are as JSON or as a form has them. `folder`: where the engine may write.
    """
    known = {each.name: each for each in PARAMETERS[kind]}
    found: dict[str, Any] = {}
    wrong: dict[str, str] = {str(name)[:60]: f"{kind} has no such parameter" for name in given if name not in known}
    for name in known.keys() & given.keys():
        value = given[name]
        if value is None or value in ("", []):
            continue
        try:
            found[name] = _read(known[name], value)
        except ValueError as error:
            wrong[name] = str(error)
    if "output_dir" in found and "output_dir" not in wrong and not _is_below(found["output_dir"], folder):
        wrong["output_dir"] = f"a folder below {folder}" if folder else "the server has no folder: leave it empty"
    return {name: found[name] for name in known if name in found and name not in wrong}, wrong


def _read(parameter: Parameter, value: Any) -> Any:
    kind = parameter.kind
    if kind == BOOLEAN:
        if isinstance(value, str):
            value = {"true": True, "on": True, "false": False, "off": False}.get(value.lower(), value)
        if not isinstance(value, bool):
            raise ValueError("true or false")
        return value
    if kind == INTEGER:
        if isinstance(value, str) and value.isdecimal() and len(value) < 10:
            value = int(value)
        if not isinstance(value, int) or isinstance(value, bool) or not parameter.least <= value <= 10**6:
            raise ValueError(f"a whole number from {parameter.least} to 1,000,000")
        return value
    if kind == OBJECT:
        return _object(value)
    if kind == TEXTS:
        values = value.replace(",", " ").split() if isinstance(value, str) else value
        if not isinstance(values, list) or not values or not set(map(str, values)) <= set(parameter.choices):
            raise ValueError(f"of {', '.join(parameter.choices)}")
        return list(dict.fromkeys(values))
    if not isinstance(value, str) or len(value) > MOST_TEXT or not value.isprintable():
        raise ValueError(f"a text of at most {MOST_TEXT} characters")
    if parameter.name in (PREFIX, "profile_id") and not _PREFIX.fullmatch(value):
        raise ValueError("letters, digits, '.', '_' and '-', the first a letter or digit, at most 128")
    return value


def _object(value: Any) -> dict[str, Any]:
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError) as error:
            raise ValueError("an object as JSON") from error
    if not isinstance(value, dict) or len(json.dumps(value)) > MOST_OBJECT:
        raise ValueError(f"an object as JSON, of at most {MOST_OBJECT:,} characters")
    return value


def _is_below(path: str, folder: str) -> bool:
    parts = path.split("/")
    return bool(folder) and ".." not in parts and (path == folder or path.startswith(folder.rstrip("/") + "/"))
