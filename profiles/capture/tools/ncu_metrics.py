"""Wildcards of metrics: which of a GPU's counters `sm__inst_*.sum` or `regex:…` names, by the list that ncu itself prints.

Plain names go to ncu as they are. Expressions are searched by RE2: no expression takes long, whatever somebody types.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable, Mapping, Sequence

from profiles.base.refused import Refused

REGEX = "regex:"
MAX_RESOLVED = 400                # base names of all wildcards together; ncu gathers a few in each pass
COMMON_SUFFIXES = tuple(                 # of counters, ratios and throughputs; a GPU's own list has more
    [f"{roll}{rest}" for roll in ("sum", "avg", "min", "max") for rest in (
        "", ".peak_sustained", ".per_second", ".per_cycle_active", ".per_cycle_elapsed", ".pct_of_peak_sustained_active",
        ".pct_of_peak_sustained_elapsed", ".peak_sustained_active", ".peak_sustained_elapsed")]
    + ["ratio", "pct", "max_rate"])
_QUERY_TIMEOUT_S = 120.0
_ROW = re.compile(r"([A-Za-z][A-Za-z0-9_.]*__[A-Za-z0-9_.]+)\s")      # of a table of names; wrapped descriptions are indented
_CHIP = re.compile(r"(?:Chip|Device) \S")

Suffixed = Callable[[Sequence[str]], Sequence[str]]      # base names -> every full name of theirs


def is_wildcard(name: str) -> bool:
    """Tell whether a metric has to be looked up before ncu is given it."""
    return name.startswith(REGEX) or "*" in name or "?" in name


def names_in(printed: str) -> list[str]:
    """Return the names in what `ncu --query-metrics` printed, those that every chip of the host has."""
    chips: list[dict[str, None]] = [{}]
    for line in printed.splitlines():
        if _CHIP.match(line) and chips[-1]:
            chips.append({})
        elif row := _ROW.match(line):
            chips[-1][row[1]] = None
    return [name for name in chips[0] if all(name in other for other in chips[1:])]


def query(program: str, *arguments: str) -> list[str]:
    """Return the names that this host's ncu knows for its GPU. Raises Refused."""
    try:
        done = subprocess.run([program, "--query-metrics", *arguments], capture_output=True, text=True, timeout=_QUERY_TIMEOUT_S)
    except (OSError, subprocess.SubprocessError) as error:
        raise Refused(f"{program} --query-metrics does not run: {error}") from error
    names = names_in(done.stdout)
    if done.returncode or not names:
        raise Refused(f"{program} --query-metrics says: {(done.stdout + done.stderr).strip()[:300]}")
    return names


def query_suffixed(program: str, *arguments: str) -> Suffixed:
    """Return a function from base names to all their full names, as ncu lists them."""
    def ask(bases: Sequence[str]) -> Sequence[str]:
        return query(program, "--query-metrics-mode", "suffix", "--metrics", ",".join(bases), *arguments) if bases else ()
    return ask


def resolve(wildcards: Sequence[str], bases: Sequence[str], suffixed: Suffixed) -> dict[str, list[str]]:
    """Return the metrics that each wildcard names.

    Base names (`sm__inst_*`: ncu adds sum, avg, min and max) or, where a suffix is asked for (`sm__inst_*.sum`), full ones.
    Raises Refused for one that names nothing and for more than MAX_RESOLVED in all.
    """
    names_by_wildcard = {name: _found(name, bases, suffixed) for name in wildcards}
    for name, matches in names_by_wildcard.items():
        if not matches:
            raise Refused(f"{name} matches none of the {len(bases):,} metrics of this GPU")
    counts = ", ".join(f"{name}: {len(matches):,}" for name, matches in names_by_wildcard.items())
    if sum(map(len, names_by_wildcard.values())) > MAX_RESOLVED:
        raise Refused(f"more than {MAX_RESOLVED} metrics ({counts}): narrow the wildcards")
    return names_by_wildcard


def replaced(metrics: Sequence[str], found: Mapping[str, Sequence[str]]) -> tuple[str, ...]:
    """Return the metrics with each wildcard's matches in its place, each once."""
    return tuple(dict.fromkeys(metric for name in metrics for metric in found.get(name, (name,))))


def _found(wildcard: str, bases: Sequence[str], suffixed: Suffixed) -> list[str]:
    if wildcard.startswith(REGEX):
        expression = wildcard.removeprefix(REGEX)
        base, dot, _ = expression.partition(r"\.")
        if not dot:
            return _matching(expression, bases)
        return _matching(expression, suffixed(_some(_matching(base, bases), wildcard)))
    base, dot, suffix = wildcard.partition(".")
    matches = _matching(_whole(base), bases)
    return _matching(_whole(f"*.{suffix}"), suffixed(_some(matches, wildcard))) if dot else matches


def _whole(pattern: str) -> str:
    """Return a wildcard as an expression of RE2 that matches names as a whole."""
    return "^" + re.escape(pattern).replace(r"\*", ".*").replace(r"\?", ".") + "$"


def _matching(expression: str, names: Sequence[str]) -> list[str]:
    import pyarrow as pa  # here: whoever only draws a form or announces a tool needs none of it
    import pyarrow.compute as pc

    try:
        matches = pc.match_substring_regex(pa.array(names, pa.string()), expression).to_pylist()
    except pa.ArrowInvalid as error:
        raise Refused(
            f"{REGEX}{expression[:80]} cannot be searched ({error}): RE2 knows no lookaround and no references") from error
    return [name for name, keep in zip(names, matches, strict=True) if keep]


def _some(bases: list[str], wildcard: str) -> list[str]:
    if len(bases) > 4 * MAX_RESOLVED:
        raise Refused(f"{wildcard} begins like {len(bases):,} metrics: narrow what stands before the dot")
    return bases
