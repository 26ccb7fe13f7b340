"""Reads about counters: the launches of a report, as rows and as JSON. Pages and API share them.

And NVIDIA's rules as pages show them, and one launch taken apart from its raw metrics.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypedDict

from django.db.models import QuerySet

from profiles.analysis.core.sentences import pct_of
from profiles.analysis.kernel import rules
from profiles.analysis.kernel.advising.advice import most_ns, why_left_out
from profiles.analysis.kernel.anatomy import Anatomy, Issue, Share, Throughput, anatomy
from profiles.analysis.kernel.counters import combine_launches, from_json
from profiles.analysis.kernel.facts import LaunchFacts
from profiles.analysis.kernel.meaning import meaning_of
from profiles.analysis.kernel.memory_chart import Chart, Waste
from profiles.analysis.kernel.occupancy import waves, waves_sentence
from profiles.analysis.kernel.pipes import Mix, Pipe
from profiles.base.answers import Scalar, make_answer
from profiles.ingest.trace import SummaryTable
from profiles.models import KernelStat, LaunchCounters, Profile
from profiles.rows import json_safe
from profiles.store.counters import metrics_of


def launch_rows(profile: Profile) -> QuerySet[LaunchCounters]:
    """The launches of a report in their order, for the table on its page."""
    return profile.counter_launches.select_related("kernel").defer("rules")


def counted_launches(profile: Profile, kernel: int = 0) -> QuerySet[LaunchCounters]:
    """Return the launches of a report in their order, with their rules; of one kernel where its id is given."""
    launches = profile.counter_launches.select_related("kernel")
    return launches.filter(kernel=kernel) if kernel else launches


class FocusJson(TypedDict):
    """A metric that a rule rests on."""

    name: str
    value: float | None
    info: str


class VendorRuleJson(TypedDict):
    """A finding of NVIDIA's guided analysis (`ingest.trace.Rule`)."""

    identifier: str
    section: str
    title: str
    severity: str
    text: str
    speedup_pct: float | None
    speedup_scope: str | None
    focus: list[FocusJson]


class LaunchJson(TypedDict):
    """A launch with hardware counters: facts, and the vendor's rule findings."""

    index: int
    kernel_id: int
    kernel: str
    duration_ns: float | None
    grid: str
    block: str
    incomplete: str
    facts: LaunchFacts
    rules: list[VendorRuleJson]


def launch_json(row: LaunchCounters) -> LaunchJson:
    """Return facts and rules of a launch."""
    return make_answer(LaunchJson, row, kernel=row.kernel.name)


class MetricJson(TypedDict):
    """A raw metric with its sentence, and which values are good."""

    metric: str
    value: Scalar
    unit: str
    meaning: str
    range: str
    source: str


def metric_rows(profile: Profile, launch: int) -> list[MetricJson]:
    """Return every raw metric of a launch, each with what it means."""
    return [_with_meaning(row) for row in metrics_of(profile.pk, launch)]


def _with_meaning(row: Mapping[str, Any]) -> Any:
    """Return a metric with its sentence and which values are good; its unit where the report states none."""
    meaning = meaning_of(row["metric"])
    return {**row, "unit": row["unit"] or meaning.unit, "meaning": meaning.sentence, "range": meaning.range,
            "source": meaning.source}


def kernel_rules(kernel: KernelStat) -> list[dict[str, Any]]:
    """Return NVIDIA's rules of all complete launches of a kernel, as `rule_rows` orders them."""
    rows = list(kernel.counter_launches.filter(incomplete=""))
    return rule_rows(rows, kernel.total_ns, [from_json(row.facts) for row in rows])


def rule_rows(rows: Iterable[LaunchCounters], total_ns: float | None, launches: Sequence[LaunchFacts]) -> list[dict[str, Any]]:
    """Return NVIDIA's rules of these launches, the largest estimate first; behind them those that are no advice about this kernel.

    `launches`: the facts of these launches, `total_ns` their time. `left_out` says why a rule is no advice; where it is `capped`,
    `worth_ns` is what the fault costs at most, less than NVIDIA's estimate.
    """
    listed = rules.merge_launch_rules([(row.duration_ns, row.rules) for row in rows])
    whole, time_ns = combine_launches(launches) if launches else None, float(total_ns or 0)
    reasons = why_left_out(listed, whole, time_ns, launches)
    shown = [_rule(rule, reason, most_ns(rule, whole, time_ns)) for rule, reason in zip(listed, reasons, strict=True)]
    return sorted(shown, key=lambda rule: (bool(rule["left_out"]), -(rule["worth_ns"] or 0.0)))


def _rule(rule: Mapping[str, Any], left_out: str, at_most_ns: float | None) -> dict[str, Any]:
    worth_ns = rule.get("worth_ns")
    capped = worth_ns is not None and at_most_ns is not None and at_most_ns < 0.995 * worth_ns
    return {**rule, "pieces": rules.pieces(rule["text"]), "left_out": left_out, "capped": capped,
            "worth_ns": at_most_ns if capped else worth_ns,
            "focus": [{**focus, "info": rules.plain(focus.get("info") or "")} for focus in rule["focus"]]}


SHOWN_PARTS = 8                          # of a side of the speed of light before "the rest"
SHOWN_OPCODES = 14
SHOWN_WAVES = 24


def chosen_launch(rows: Sequence[LaunchCounters], params: Mapping[str, str]) -> LaunchCounters | None:
    """Return the launch `?launch=INDEX`, else the longest of those that were measured."""
    whole = [row for row in rows if not row.incomplete]
    index_text = params.get("launch", "")
    if index_text.isascii() and index_text.isdecimal() and len(index_text) < 10:
        return next((row for row in whole if row.index == int(index_text)), None)
    return max(whole, key=lambda row: row.duration_ns or 0.0, default=None)


def anatomy_of(profile: Profile, launch: int) -> tuple[Anatomy, dict[str, str]]:
    """Return the anatomy of a launch and the unit of each metric."""
    rows = metrics_of(profile.pk, launch)
    breakdowns = profile.metadata.get("breakdowns")
    parts = anatomy({row["metric"]: row["value"] for row in rows}, breakdowns if isinstance(breakdowns, dict) else {})
    return parts, {row["metric"]: row["unit"] for row in rows}


def side_rows(anatomy: Anatomy) -> list[dict[str, Any]]:
    return [{"side": side, "first": side.parts[:SHOWN_PARTS], "rest": side.parts[SHOWN_PARTS:]} for side in anatomy.sides]


def memory_rows(anatomy: Anatomy) -> list[dict[str, Any]]:
    """Return the tables; each cell: value, unit, whether it is text, the key under which a baseline has it."""
    return [{
        "name": table.title, "number": number, "columns": table.columns,
        "rows": [[(value, column.unit, column.text, f"table:{table.title}:{row[0]}:{column.name}")
                  for value, column in zip(row, table.columns, strict=True)]
                 for row in table.rows]} for number, table in enumerate(anatomy.tables)]


def section_rows(anatomy: Anatomy, units: Mapping[str, str]) -> list[dict[str, Any]]:
    return [{"name": section.name, "lines": [{"line": line, "unit": units.get(line.metric, ""), "text": _text(line.value)}
                                             for line in section.lines]} for section in anatomy.sections]


def _text(value: float | str) -> str:
    return value if isinstance(value, str) else f"{value:,.10g}"


def wave_bars(launch: LaunchCounters) -> dict[str, Any] | None:
    """The waves of the grid as bars, the middle ones left out where there are many."""
    facts = launch.facts
    blocks, per_sm = facts["launch"].get("grid_size"), facts["occupancy"].get("blocks_per_sm")
    sms = facts["launch"].get("sm_count")
    if not (isinstance(blocks, int | float) and isinstance(sms, int | float) and per_sm):
        return None
    grid = waves(int(blocks), per_sm, int(sms))
    if grid is None:
        return None
    count = math.ceil(grid.waves)
    bars = [{"pct": 100.0, "title": f"wave {number}: full"} for number in range(1, count)]
    last = {"pct": grid.tail_pct, "title": f"wave {count}, the last: {grid.tail_pct:.3g} % full"}
    if len(bars) >= SHOWN_WAVES:
        half = SHOWN_WAVES // 2
        bars = [*bars[:half], {"gap": True, "title": f"{len(bars) - 2 * half} more, full"}, *bars[-half:]]
    return {"sentence": waves_sentence(grid, int(blocks), per_sm * int(sms), launch.duration_ns), "shown": [*bars, last]}


def steps(parts: Anatomy) -> list[dict[str, Any]]:
    rungs = parts.issue.ladder
    most = rungs[0][1] if rungs else 0.0
    return [{"name": name, "warps": value, "meaning": meaning, "pct": pct_of(value, most)}
            for name, value, meaning in rungs]


class SectionLineJson(TypedDict):
    label: str
    metric: str
    value: Scalar


class SectionJson(TypedDict):
    """A section of the report's details page, line by line."""

    name: str
    lines: list[SectionLineJson]


class AnatomyJson(TypedDict):
    """One launch of a kernel, taken apart: a field for each picture and table of its page."""

    profile: int
    kernel: int
    name: str
    launch: int
    duration_ns: float | None
    sides: list[Throughput]
    chart: Chart
    tables: list[SummaryTable]
    wastes: list[Waste]
    pipes: list[Pipe]
    mix: Mix | None
    issue: Issue
    shares: list[Share]
    sections: list[SectionJson]
    sentences: dict[str, str]


def anatomy_json(kernel: KernelStat, params: Mapping[str, str]) -> AnatomyJson | None:
    """Return the anatomy of a launch as JSON, None where no such launch was measured."""
    row = chosen_launch(list(kernel.counter_launches.all()), params)
    if row is None:
        return None
    parts, _ = anatomy_of(kernel.profile, row.index)
    document: AnatomyJson = json_safe({                 # a report of impossible numbers has impossible quotients
        "profile": kernel.profile_id, "kernel": kernel.pk, "name": kernel.name, "launch": row.index,
        "duration_ns": row.duration_ns, **parts.as_json()})
    return document


def tables_of(document: Mapping[str, Any]) -> dict[str, tuple[list[tuple[str, str]], list[list[Any]]]]:
    """Return every table of the page, as a file may hold them.

    name -> (columns with "text" or "number", rows).
    """
    tables: dict[str, tuple[list[tuple[str, str]], list[list[Any]]]] = {}
    tables["speed"] = ([("side", "text"), ("unit", "text"), ("part", "text"), ("pct_of_peak", "number"), ("metric", "text")],
                       [[side["name"], part["unit"], part["title"], part["pct"], part["metric"]]
                        for side in document["sides"] for part in side["parts"]])
    tables["links"] = ([("from", "text"), ("to", "text"), ("amount", "number"), ("unit", "text"), ("per_second", "number"),
                        ("pct_of_peak", "number"), ("metrics", "text")],
                       [[link["source"], link["target"], link["amount"], link["unit"], link["rate"], link["pct"],
                         " + ".join(link["metrics"])] for link in document["chart"]["links"]])
    for table in document["tables"]:
        tables[table["title"].lower().replace(" ", "-")] = (
            [(column["name"], "text" if column["text"] else "number") for column in table["columns"]], table["rows"])
    tables["pipes"] = ([("pipe", "text"), ("pct_of_peak", "number"), ("of", "text"), ("metric", "text")],
                       [[pipe["name"], pipe["pct"], pipe["of"], pipe["metric"]] for pipe in document["pipes"]])
    if document["mix"]:
        tables["opcodes"] = ([("opcode", "text"), ("group", "text"), ("warp_instructions", "number"), ("share_pct", "number")],
                             [[op["name"], op["group"], op["warps"], op["share_pct"]] for op in document["mix"]["opcodes"]])
    tables["details"] = ([("section", "text"), ("label", "text"), ("metric", "text"), ("value", "text")],
                         [[section["name"], line["label"], line["metric"], str(line["value"])]
                          for section in document["sections"] for line in section["lines"]])
    return {name: table for name, table in tables.items() if table[1]}
