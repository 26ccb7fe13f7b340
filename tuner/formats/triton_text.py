"""`triton.Config` lists: Python text as it stands in an autotune decorator, and Triton's own autotune cache files.

Text is read by a small reader of literals, never by Python: names, calls and arithmetic in it are refused and counted.
Cache files are what `triton.autotune(cache_results=True)` keeps: `<kernel>.autotune.json` {"key", "configs_timings": [[config,
times in ms], …]} (python/triton/runtime/autotuner.py, check_disk_cache).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tuner.formats.document import MAX_NESTING, MAX_ROWS, Document, FormatError, Row, config_of, counted, json_of, positive, text_of

OPTIONS = ("num_warps", "num_stages", "num_ctas", "maxnreg")     # of the launch, beside the kernel's own parameters
_DEFAULTS: Mapping[str, Any] = {"num_ctas": 1, "maxnreg": None}  # not written where they are what Triton takes anyway
_TOKEN = re.compile(r"""\s*(?:\#[^\n]*\n\s*)*(?:
    (?P<number>-?(?:\d[\d_]*\.\d*|\.\d+|\d[\d_]*)(?:[eE][+-]?\d+)?)(?![\w.]) | (?P<text>"(?:[^"\\\n])*"|'(?:[^'\\\n])*') |
    (?P<name>[A-Za-z_][\w.]*) | (?P<mark>[][{}(),:=]))""", re.VERBOSE)
MAX_CALL = 8_000                                                 # characters of one call: what no bracket closes ends there
_CALL = re.compile(r"\b(?:triton\.)?Config\s*\(")
_WORDS = {"True": True, "False": False, "None": None}


def write(configs: Iterable[Mapping[str, Any]]) -> str:
    """A list that one pastes into `@triton.autotune(configs=…)`."""
    return "[\n" + "".join(f"    {call(config)},\n" for config in configs) + "]\n"


def call(config: Mapping[str, Any]) -> str:
    options = {name: config[name] for name in OPTIONS if config.get(name, _DEFAULTS.get(name)) != _DEFAULTS.get(name)}
    meta = {name: value for name, value in config.items() if name not in OPTIONS}
    return f"triton.Config({', '.join([repr(meta), *(f'{name}={value!r}' for name, value in options.items())])})"


def read(data: bytes, name: str) -> Document:
    """Every `Config(…)` of a Python text."""
    text = text_of(data, name)
    rows: list[Row] = []
    refusals: list[str] = []
    for found in _CALL.finditer(text):
        if len(rows) + len(refusals) >= MAX_ROWS:
            raise FormatError(name, f"has more than {MAX_ROWS:,} configurations")
        config = _config(text[found.end():found.end() + MAX_CALL])
        if isinstance(config, str):
            refusals.append(config)
        else:
            rows.append(Row(config))
    if not rows:
        said = f" ({'; '.join(counted(refusals))})" if refusals else ""
        raise FormatError(name, f"holds no triton.Config with literal values{said}",
                          "Give Python text with triton.Config({...}, num_warps=…) in it.")
    return Document("triton", name, tuple(rows), refused=counted(refusals))


def read_cache(data: bytes, name: str) -> Document:
    """Triton's autotune cache: each configuration with its times in ms (median first), the fastest first."""
    document = json_of(data, name, infinite=True)          # a configuration that did not run has infinite times
    timings = document.get("configs_timings") if isinstance(document, dict) else None
    if not isinstance(timings, list) or len(timings) > MAX_ROWS:
        raise FormatError(name, 'has no "configs_timings" as Triton writes them')
    rows, refusals = [], []
    for pair in timings:
        config = _cached(pair)
        times = pair[1] if isinstance(pair, list) and len(pair) == 2 else None
        ms = positive(times[0] if isinstance(times, list) and times else times)
        if isinstance(config, str) or ms is None:
            refusals.append(config if isinstance(config, str) else "no finite time: it did not run")
        else:
            rows.append(Row(config, median_ms=ms))
    if not rows:
        raise FormatError(name, "holds no configuration with a time")
    rows.sort(key=lambda row: row.median_ms or 0)
    key = document.get("key")
    said = f"Triton's key: {', '.join(map(str, key))[:300]}" if isinstance(key, list) else ""
    return Document("triton-cache", name, tuple(rows), operator=name.removesuffix(".autotune.json")[:60],
                    refused=counted(refusals), notes=(said,) if said else ())


def _cached(pair: Any) -> dict[str, Any] | str:
    if not isinstance(pair, list) or len(pair) != 2 or not isinstance(pair[0], dict):
        return "no pair of configuration and times"
    said, kwargs = pair[0], pair[0].get("kwargs") or {}
    if not isinstance(kwargs, dict):
        return "kwargs that are no parameters by name"
    options = {name: said[name] for name in OPTIONS if said.get(name) is not None and said[name] != _DEFAULTS.get(name)}
    return config_of({**kwargs, **options})


def _config(text: str) -> dict[str, Any] | str:
    """The arguments of one call, from behind its bracket."""
    try:
        arguments, named = _Literals(text).arguments()
    except ValueError as error:
        return str(error)
    meta = arguments[0] if arguments else named.pop("kwargs", None)
    if not isinstance(meta, dict):
        return "its first argument is no dictionary of literals"
    options = dict(zip(("num_warps", "num_stages", "num_ctas", "maxnreg"), arguments[1:], strict=False)) | named
    unknown = set(options) - {*OPTIONS, "ir_override"}
    if unknown:
        return f"an option that Triton has not: {sorted(unknown)[0][:40]}"
    return config_of({**meta, **{name: value for name, value in options.items() if name in OPTIONS and value is not None}})


class _Literals:
    """A reader of Python literals: numbers, plain texts, True, False, None, lists, tuples and dictionaries."""

    def __init__(self, text: str) -> None:
        self.text, self.position = text, 0

    def arguments(self) -> tuple[list[Any], dict[str, Any]]:
        """Up to the closing bracket: what stands first, and what has a name."""
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
                    named[mark["name"]] = self.value(1)
            else:
                values.append(self.value(1))
            if not self._take(",") and not self._is_next(")", self.position):
                raise ValueError("something between its arguments that is no literal")
        return values, named

    def _skip_name(self) -> None:
        """A pre_hook is a function's name: it cannot be carried over, and is left out."""
        mark = self._peek()
        if mark is None or mark.lastgroup != "name":
            raise ValueError("a pre_hook that is no name")
        self.position = mark.end()

    def value(self, depth: int) -> Any:
        if depth > MAX_NESTING:
            raise ValueError(f"nests deeper than {MAX_NESTING} levels")
        mark = self._peek()
        if mark is None:
            raise ValueError("a value that is no literal")
        self.position = mark.end()
        if mark["number"] is not None:
            return _number(mark["number"])
        if mark["text"] is not None:
            return mark["text"][1:-1]
        if mark["name"] is not None:
            if mark["name"] not in _WORDS:
                raise ValueError(f"a name instead of a value: {mark['name'][:40]}")
            return _WORDS[mark["name"]]
        if mark["mark"] == "{":
            return self._dictionary(depth)
        if mark["mark"] in "[(":
            return self._sequence("]" if mark["mark"] == "[" else ")", depth)
        raise ValueError("a value that is no literal")

    def _dictionary(self, depth: int) -> dict[str, Any]:
        found: dict[str, Any] = {}
        while not self._take("}"):
            key = self.value(depth + 1)
            if not isinstance(key, str) or not self._take(":"):
                raise ValueError("a dictionary with a key that is no text")
            found[key] = self.value(depth + 1)
            if not self._take(",") and not self._is_next("}", self.position):
                raise ValueError("something in a dictionary that is no literal")
        return found

    def _sequence(self, end: str, depth: int) -> list[Any]:
        found: list[Any] = []
        while not self._take(end):
            found.append(self.value(depth + 1))
            if not self._take(",") and not self._is_next(end, self.position):
                raise ValueError("something in a list that is no literal")
        return found

    def _peek(self) -> re.Match[str] | None:
        return _TOKEN.match(self.text, self.position)

    def _is_next(self, mark: str, position: int) -> bool:
        found = _TOKEN.match(self.text, position)
        return bool(found and found["mark"] == mark)

    def _take(self, mark: str) -> bool:
        found = self._peek()
        if not found or found["mark"] != mark:
            return False
        self.position = found.end()
        return True


def _number(text: str) -> int | float:
    if len(text) > 40:
        raise ValueError("a number of more than 40 digits")
    return float(text) if set(text) & set(".eE") else int(text)


def fastest(rows: Sequence[Row]) -> Row | None:
    """The row of the smallest time; None when none has one."""
    return min((row for row in rows if row.median_ms is not None), key=lambda row: row.median_ms or 0, default=None)
