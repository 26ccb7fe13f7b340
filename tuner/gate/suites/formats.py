"""A suite as text: the TOML file of a team's repository, and the lines of the form, one kernel or one limit each.

    operator DIM=value … type [default | cache | {PARAMETER=value …}] [#tag]
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Mapping
from typing import Any

from profiles.base.refused import Refused
from profiles.base.words import pairs_text
from tuner.gate.suites.definition import (
    CONFIGS,
    Definition,
    DefinitionError,
    KernelDefinition,
    Problem,
    definition_document,
    read_definition,
)

MAX_BYTES = 512 * 1024
_HEADER = re.compile(r"\s*(\[\[?)\s*([^\[\]#]+?)\s*\]\]?\s*(#.*)?\Z")
_KEY = re.compile(r"\s*([A-Za-z0-9_-]+(?:\s*\.\s*[A-Za-z0-9_-]+)*)\s*=")
_BARE = re.compile(r"[A-Za-z0-9_-]+\Z")
_PLACE = re.compile(r"\(at line (\d+), column \d+\)\s*\Z")


def read_toml(data: bytes | str) -> Definition:
    """Return the definition in a file's bytes. DefinitionError: every mistake with its line."""
    try:
        text = data.decode("utf-8") if isinstance(data, bytes) else data
    except UnicodeDecodeError as error:
        raise _file_error(f"not UTF-8 text: byte {error.start}", 1 + error.object[:error.start].count(b"\n")) from error
    if len(text) > MAX_BYTES:
        raise _file_error(f"{len(text):,} characters; at most {MAX_BYTES:,}")
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        place = _PLACE.search(str(error))
        line = int(place[1]) if place else text.count("\n") + 1        # "at end of document"
        raise _file_error(f"not TOML: {_PLACE.sub('', str(error)).strip()}", line) from error
    except (RecursionError, ValueError) as error:        # nested a thousand deep; a number of a hundred thousand digits
        raise _file_error(f"not TOML that can be read: {type(error).__name__}") from error
    return read_definition(document, field_lines(text))


def _file_error(what: str, line: int | None = None) -> DefinitionError:
    return DefinitionError([Problem("", what[:300], line)])


def field_lines(text: str) -> dict[str, int]:
    """Return field -> the line it stands in, from 1: "runs", "kernel[0].shape". For messages only."""
    lines_by_field: dict[str, int] = {}
    counts: dict[str, int] = {}
    table = ""
    for number, line in enumerate(text.splitlines(), start=1):
        if header := _HEADER.match(line):
            table = _table_name(header[2], header[1] == "[[", counts)
            lines_by_field.setdefault(table, number)
        elif key := _KEY.match(line):
            name = re.sub(r"\s*\.\s*", ".", key[1])
            lines_by_field.setdefault(f"{table}.{name}".lstrip("."), number)
    return lines_by_field


def _table_name(name: str, one_of_many: bool, counts: dict[str, int]) -> str:
    """"kernel[2].rule" for the [kernel.rule] behind the third [[kernel]]."""
    name = name.replace('"', "").replace("'", "").replace(" ", "")
    if one_of_many:
        counts[name] = counts.get(name, -1) + 1
        return f"{name}[{counts[name]}]"
    first, dot, rest = name.partition(".")
    return f"{first}[{counts[first]}]{dot}{rest}" if first in counts else name


# ---- back into a file ----

def definition_toml(definition: Definition) -> str:
    """Return a file that reads back as the same definition."""
    document = definition_document(definition)
    kernels = document.pop("kernel", [])
    tables = {name: document.pop(name) for name in ("rule", "metrics", "policy") if name in document}
    lines = [f"{name} = {_toml_value(value)}" for name, value in document.items()]
    for name, table in tables.items():
        lines += ["", f"[{name}]", *(f"{_toml_name(key)} = {_toml_value(value)}" for key, value in table.items())]
    for kernel in kernels:
        lines += ["", "[[kernel]]", *(f"{name} = {_toml_value(value)}" for name, value in kernel.items())]
    return "\n".join(lines) + "\n"


def _toml_name(name: str) -> str:
    return name if _BARE.match(name) else _toml_text(name)


def _toml_value(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{_toml_name(key)} = {_toml_value(element)}" for key, element in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(_toml_value, value)) + "]"
    return _toml_text(str(value))


def _toml_text(text: str) -> str:
    """A basic string: JSON's escapes are TOML's, but DEL must be escaped too."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


MAX_LINES = 3_000
_CONFIG = re.compile(r"\{([^{}]*)\}")
_TAG = re.compile(r"(?:\A|\s)#\s*(.*)\Z")
_PAIR = re.compile(r"([A-Za-z_]\w{0,59})=(\S{1,200})\Z")
_WHOLE = re.compile(r"-?\d{1,15}\Z")
_FRACTION = re.compile(r"-?\d{1,15}\.\d{1,15}\Z")


def read_kernel_lines(text: str) -> list[dict[str, Any]]:
    """Return what `read_definition` takes as "kernel", one for each line that is not empty."""
    lines = [(number, line.strip()) for number, line in enumerate(text.splitlines(), start=1) if line.strip()]
    if len(lines) > MAX_LINES:
        raise Refused(f"at most {MAX_LINES:,} kernels, one a line")
    return [_read_kernel_line(number, line) for number, line in lines]


def _read_kernel_line(number: int, line: str) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    if tag := _TAG.search(line):
        fields["tag"], line = tag[1].strip(), line[:tag.start()]
    if config := _CONFIG.search(line):
        fields["config"] = dict(_read_pair(number, part) for part in re.split(r"[\s,]+", config[1].strip()) if part)
        line = line[:config.start()] + " " + line[config.end():]
    op, *rest = re.split(r"[\s,]+", line.strip())
    shape: dict[str, Any] = {}
    for part in filter(None, rest):
        if "=" in part:
            name, value = _read_pair(number, part)
            shape[name] = value
        elif part in CONFIGS and "config" not in fields:
            fields["config"] = part
        elif "dtype" not in fields:
            fields["dtype"] = part
        else:
            raise Refused(f'line {number}: "{part[:40]}" is not understood; write it like matmul M=4096 N=4096 K=4096 bf16 cache')
    return {"op": op, "shape": shape, **fields}


def _read_pair(number: int, part: str) -> tuple[str, Any]:
    pair = _PAIR.match(part)
    if pair is None:
        raise Refused(f'line {number}: "{part[:40]}" is not understood; write NAME=value')
    return pair[1], parse_value(pair[2])


def parse_value(text: str) -> Any:
    """Return a value as people write it: a number where it looks like one, true and false, else the text."""
    if _WHOLE.match(text):
        return int(text)
    if _FRACTION.match(text):
        return float(text)
    return {"true": True, "false": False}.get(text.lower(), text)


def kernel_line(kernel: KernelDefinition) -> str:
    shape = pairs_text(kernel.shape)
    config = "{" + pairs_text(kernel.config or {}) + "}" if kernel.config_from == "given" else kernel.config_from
    return " ".join(filter(None, (kernel.op, shape, kernel.dtype, config, f"#{kernel.tag}" if kernel.tag else "")))


def kernel_lines(definition: Definition) -> str:
    return "\n".join(kernel_line(kernel) for kernel in definition.kernels if kernel.enabled)


def read_limits(text: str) -> dict[str, dict[str, Any]]:
    """Return limits by metric, from lines like "registers max_increase=0.1"."""
    limits: dict[str, dict[str, Any]] = {}
    for number, line in enumerate(text.splitlines(), start=1):
        metric, *rest = line.split()[:20] or [""]
        if metric:
            limits[metric] = dict(_read_pair(number, part) for part in rest)
    return limits


def limits_lines(metrics: Mapping[str, Mapping[str, Any]]) -> str:
    return "\n".join(f"{name} {pairs_text({k: str(v).lower() if isinstance(v, bool) else v for k, v in limits.items()})}"
                     for name, limits in metrics.items())
