"""`triton.Config` lists: Python text of autotune decorators, and Triton's autotune cache.

Text is read by a small reader of literals, never by Python: names, calls and arithmetic in it are refused and counted.
Cache files are what `triton.autotune(cache_results=True)` keeps: `<kernel>.autotune.json` {"key", "configs_timings": [[config,
times in ms], …]} (python/triton/runtime/autotuner.py, check_disk_cache).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from profiles.base.numbers import positive_number
from tuner.cache.formats.document import (
    MAX_NESTING,
    MAX_ROWS,
    Document,
    FormatError,
    Row,
    check_config,
    count_refusals,
    decode_json,
    decode_text,
)

OPTIONS = ("num_warps", "num_stages", "num_ctas", "maxnreg")     # of the launch, beside the kernel's own parameters
_DEFAULTS: Mapping[str, Any] = {"num_ctas": 1, "maxnreg": None}  # not written where they are what Triton takes anyway
_TOKEN = re.compile(r"""\s*(?:\#[^\n]*\n\s*)*(?:
    (?P<number>-?(?:\d[\d_]*\.\d*|\.\d+|\d[\d_]*)(?:[eE][+-]?\d+)?)(?![\w.]) | (?P<text>"(?:[^"\\\n])*"|'(?:[^'\\\n])*') |
    (?P<name>[A-Za-z_][\w.]*) | (?P<mark>[][{}(),:=]))""", re.VERBOSE)
MAX_CALL = 8_000                                                 # characters of one call: what no bracket closes ends there
_CALL = re.compile(r"\b(?:triton\.)?Config\s*\(")
_WORDS = {"True": True, "False": False, "None": None}


def write(configs: Iterable[Mapping[str, Any]]) -> str:
    """Return a list to paste into `@triton.autotune(configs=…)`."""
    return "[\n" + "".join(f"    {config_call(config)},\n" for config in configs) + "]\n"


def config_call(config: Mapping[str, Any]) -> str:
    """Return a configuration as a `triton.Config(…)` call."""
    options = {name: config[name] for name in OPTIONS if config.get(name, _DEFAULTS.get(name)) != _DEFAULTS.get(name)}
    meta = {name: value for name, value in config.items() if name not in OPTIONS}
    return f"triton.Config({', '.join([repr(meta), *(f'{name}={value!r}' for name, value in options.items())])})"


def own_names(config: Mapping[str, Any]) -> list[str]:
    """Return the kernel's own parameters, sorted; options of a launch may stand beside any."""
    return sorted(set(config) - set(OPTIONS))


def read(data: bytes, name: str) -> Document:
    """Read every `Config(…)` of a Python text."""
    text = decode_text(data, name)
    rows: list[Row] = []
    refusals: list[str] = []
    for match in _CALL.finditer(text):
        if len(rows) + len(refusals) >= MAX_ROWS:
            raise FormatError(name, f"has more than {MAX_ROWS:,} configurations")
        config = _parse_call(text[match.end():match.end() + MAX_CALL])
        if isinstance(config, str):
            refusals.append(config)
        else:
            rows.append(Row(config))
    if not rows:
        suffix = f" ({'; '.join(count_refusals(refusals))})" if refusals else ""
        raise FormatError(name, f"holds no triton.Config with literal values{suffix}",
                          "Give Python text with triton.Config({...}, num_warps=…) in it.")
    return Document("triton", name, tuple(rows), refused=count_refusals(refusals))


def read_cache(data: bytes, name: str) -> Document:
    """Read Triton's autotune cache: configurations with ms (median first), fastest first."""
    document = decode_json(data, name, infinite=True)          # a configuration that did not run has infinite times
    timings = document.get("configs_timings") if isinstance(document, dict) else None
    if not isinstance(timings, list) or len(timings) > MAX_ROWS:
        raise FormatError(name, 'has no "configs_timings" as Triton writes them')
    rows, refusals = [], []
    for pair in timings:
        config = _read_cached(pair)
        times = pair[1] if isinstance(pair, list) and len(pair) == 2 else None
        ms = positive_number(times[0] if isinstance(times, list) and times else times)
        if isinstance(config, str) or ms is None:
            refusals.append(config if isinstance(config, str) else "no finite time: it did not run")
        else:
            rows.append(Row(config, median_ms=ms))
    if not rows:
        raise FormatError(name, "holds no configuration with a time")
    rows.sort(key=lambda row: row.median_ms or 0)
    key = document.get("key")
    note = f"Triton's key: {', '.join(map(str, key))[:300]}" if isinstance(key, list) else ""
    return Document("triton-cache", name, tuple(rows), operator=name.removesuffix(".autotune.json")[:60],
                    refused=count_refusals(refusals), notes=(note,) if note else ())


def _read_cached(pair: Any) -> dict[str, Any] | str:
    if not isinstance(pair, list) or len(pair) != 2 or not isinstance(pair[0], dict):
        return "no pair of configuration and times"
    fields, kwargs = pair[0], pair[0].get("kwargs") or {}
    if not isinstance(kwargs, dict):
        return "kwargs that are no parameters by name"
    options = {name: fields[name] for name in OPTIONS if fields.get(name) is not None and fields[name] != _DEFAULTS.get(name)}
    return check_config({**kwargs, **options})


def _parse_call(text: str) -> dict[str, Any] | str:
    """Return the arguments of one call, from behind its bracket, or why they are unreadable."""
    try:
        arguments, named = _LiteralReader(text).read_arguments()
    except ValueError as error:
        return str(error)
    meta = arguments[0] if arguments else named.pop("kwargs", None)
    if not isinstance(meta, dict):
        return "its first argument is no dictionary of literals"
    options = dict(zip(("num_warps", "num_stages", "num_ctas", "maxnreg"), arguments[1:], strict=False)) | named
    unknown = set(options) - {*OPTIONS, "ir_override"}
    if unknown:
        return f"an option that Triton has not: {sorted(unknown)[0][:40]}"
    return check_config({**meta, **{name: value for name, value in options.items() if name in OPTIONS and value is not None}})


class _LiteralReader:
    """Reads Python literals: numbers, plain texts, True, False, None, lists, tuples, dicts."""

    def __init__(self, text: str) -> None:
        self.text, self.position = text, 0

    def read_arguments(self) -> tuple[list[Any], dict[str, Any]]:
        """Return positional and named arguments up to the closing bracket."""
        values: list[Any] = []
        named: dict[str, Any] = {}
        while not self._take(")"):
            mark = self._peek()
            if mark and mark.lastgroup == "name" and self._is_next("=", mark.end()):
                self.position = mark.end()
                self._take("=")
                if mark["name"] == "pre_hook":
                    self._skip_name()
                else:
                    named[mark["name"]] = self.read_value(1)
            else:
                values.append(self.read_value(1))
            if not self._take(",") and not self._is_next(")", self.position):
                raise ValueError("something between its arguments that is no literal")
        return values, named

    def _skip_name(self) -> None:
        """Skip a function's name (pre_hook): it cannot be carried over."""
        mark = self._peek()
        if mark is None or mark.lastgroup != "name":
            raise ValueError("a pre_hook that is no name")
        self.position = mark.end()

    def read_value(self, depth: int) -> Any:
        if depth > MAX_NESTING:
            raise ValueError(f"nests deeper than {MAX_NESTING} levels")
        mark = self._peek()
        if mark is None:
            raise ValueError("a value that is no literal")
        self.position = mark.end()
        if mark["number"] is not None:
            return _parse_number(mark["number"])
        if mark["text"] is not None:
            return mark["text"][1:-1]
        if mark["name"] is not None:
            if mark["name"] not in _WORDS:
                raise ValueError(f"a name instead of a value: {mark['name'][:40]}")
            return _WORDS[mark["name"]]
        if mark["mark"] == "{":
            return self._read_dictionary(depth)
        if mark["mark"] in "[(":
            return self._read_sequence("]" if mark["mark"] == "[" else ")", depth)
        raise ValueError("a value that is no literal")

    def _read_dictionary(self, depth: int) -> dict[str, Any]:
        values: dict[str, Any] = {}
        while not self._take("}"):
            key = self.read_value(depth + 1)
            if not isinstance(key, str) or not self._take(":"):
                raise ValueError("a dictionary with a key that is no text")
            values[key] = self.read_value(depth + 1)
            if not self._take(",") and not self._is_next("}", self.position):
                raise ValueError("something in a dictionary that is no literal")
        return values

    def _read_sequence(self, end: str, depth: int) -> list[Any]:
        values: list[Any] = []
        while not self._take(end):
            values.append(self.read_value(depth + 1))
            if not self._take(",") and not self._is_next(end, self.position):
                raise ValueError("something in a list that is no literal")
        return values

    def _peek(self) -> re.Match[str] | None:
        return _TOKEN.match(self.text, self.position)

    def _is_next(self, mark: str, position: int) -> bool:
        token = _TOKEN.match(self.text, position)
        return bool(token and token["mark"] == mark)

    def _take(self, mark: str) -> bool:
        token = self._peek()
        if not token or token["mark"] != mark:
            return False
        self.position = token.end()
        return True


def _parse_number(text: str) -> int | float:
    if len(text) > 40:
        raise ValueError("a number of more than 40 digits")
    return float(text) if set(text) & set(".eE") else int(text)
