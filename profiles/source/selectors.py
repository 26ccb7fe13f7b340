"""Reads of the code inside a launch: lines, instructions, marks. Pages, API and the command line share them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from django.db.models import F

from profiles.analysis.core.sentences import share_pct
from profiles.analysis.core.tunable import tuned_operator
from profiles.analysis.kernel import instructions as code
from profiles.analysis.kernel import stalls
from profiles.analysis.kernel.instructions import SAMPLES, THREADS, Instructions, Line, Measure
from profiles.analysis.kernel.waits import Waits, hottest_instruction
from profiles.base.answers import plain
from profiles.ingest.trace import SourceFile
from profiles.models import KernelStat, LaunchCounters, Profile
from profiles.store import source as store
from profiles.store.counters import metrics_of

# Which result lies over a kernel's pages.


def baseline_of(params: Mapping[str, str]) -> tuple[KernelStat, str] | None:
    """Return the result that `?baseline=KERNEL` or `KERNEL-LAUNCH` names: the kernel and the launch, "" for all."""
    number, _, launch = params.get("baseline", "").partition("-")
    if not (number.isascii() and number.isdecimal() and len(number) < 18):
        return None
    kernel = KernelStat.objects.select_related("profile").filter(
        pk=int(number), profile__status=Profile.Status.READY).first()
    if kernel is None:
        return None
    is_launch = launch.isascii() and launch.isdecimal() and len(launch) < 10
    has_launch = is_launch and kernel.counter_launches.filter(incomplete="", index=int(launch)).exists()
    return (kernel, launch if has_launch else "")


LISTED = 200                 # rows of each table of the page; the files hold all
EXPLAINED = 60               # hottest instructions for which is looked what they wait for
EXCESS_SECTORS, SECTORS = "derived__memory_l2_theoretical_sectors_global_excessive", "memory_l2_theoretical_sectors_global"
EXCESS_WAVEFRONTS, WAVEFRONTS = "derived__memory_l1_wavefronts_shared_excessive", "memory_l1_wavefronts_shared"


@dataclass(frozen=True)
class Launch:
    """What is stored inside one launch."""

    profile: Profile
    row: LaunchCounters
    files: Sequence[SourceFile]
    inside: store.Inside
    instructions: Instructions

    @cached_property
    def totals(self) -> dict[str, Any]:
        """Every metric of the launch as a whole."""
        return {metric["metric"]: metric["value"] for metric in metrics_of(self.profile.pk, self.row.index)}

    @cached_property
    def lines(self) -> list[Line]:
        return code.lines(self.instructions)

    @cached_property
    def waits(self) -> dict[int, int]:
        """Row of a hot instruction -> row of what it likely waits for."""
        pipeline = Waits(self.instructions)
        rows = [np.array([row]) for row in code.hottest(self.instructions, SAMPLES, EXPLAINED)]
        hot = [hottest_instruction(pipeline, rows_of) for rows_of in [*rows, *(line.rows for line in self.lines[:EXPLAINED])]]
        return {spot.row: spot.waits_for for spot in hot if spot is not None and spot.waits_for is not None}

    def text(self, file: int | None, line: int | None) -> str | None:
        """The source line itself, where the report holds the file."""
        text = self.files[file].text if file is not None and file < len(self.files) else None
        lines = text.splitlines() if text else []
        return lines[line - 1].strip() if line is not None and 0 < line <= len(lines) else None

    def place(self, file: int | None, line: int | None) -> str:
        """"landscape.py:24"; "" where unknown."""
        if file is None or line is None or file >= len(self.files):
            return ""
        return f"{short_file(self.files[file].name)}:{line}"


def short_file(name: str) -> str:
    return name.replace("\\", "/").rsplit("/", 1)[-1] or name


def launch_of(profile: Profile, index: int) -> Launch | None:
    """The launch of that number, None where the report holds no instructions of it."""
    row = profile.counter_launches.select_related("kernel").filter(index=index).first()
    table = store.instructions_read(profile.pk, index) if row is not None else None
    if row is None or table is None:
        return None
    files, inside = store.index_read(profile.pk)
    return Launch(profile, row, files, inside.get(index, store.Inside()), Instructions(table))


def what_is_inside(profile_id: int) -> Mapping[int, store.Inside]:
    """Return what is stored of which launch of a report."""
    return store.index_read(profile_id)[1]


def launches_inside(kernel: KernelStat, kind: str) -> list[dict[str, Any]]:
    """Return the launches of a kernel that hold `kind`, the longest first.

    `kind`: "instructions" | "samples". Each: index, duration_ns, grid.
    """
    index = what_is_inside(kernel.profile_id)
    launches = kernel.counter_launches.only("index", "duration_ns", "grid", "kernel_id")
    rows = [row for row in launches if getattr(index.get(row.index, store.Inside()), kind)]
    rows.sort(key=lambda row: -(row.duration_ns or 0.0))
    return [{"index": row.index, "duration_ns": row.duration_ns, "grid": row.grid} for row in rows]


def chosen_index(listed: Sequence[Mapping[str, Any]], params: Mapping[str, str]) -> int | None:
    """The launch that the address asks for, or the longest; None where there is none."""
    number = params.get("launch", "")
    if number.isdecimal() and len(number) < 10 and any(row["index"] == int(number) for row in listed):
        return int(number)
    return int(listed[0]["index"]) if listed else None


def chosen_measure(instructions: Instructions, params: Mapping[str, str]) -> Measure | None:
    """Return what heats the lines: as asked, or samples, or what there is."""
    return next((measure for measure in instructions.measures if measure.name == params.get("metric")),
                next(iter(instructions.measures), None))


def source_page(kernel: KernelStat, params: Mapping[str, str]) -> dict[str, Any]:
    """Return everything the source page shows.

    `launch` is None where the report says nothing about instructions.
    """
    listed = launches_inside(kernel, "instructions")
    index = chosen_index(listed, params)
    launch = launch_of(kernel.profile, index) if index is not None else None
    page: dict[str, Any] = {"kernel": kernel, "profile": kernel.profile, "launches": listed, "launch": launch,
                            "has_samples": bool(launches_inside(kernel, "samples"))}
    if launch is None:
        return page
    instructions, measure = launch.instructions, chosen_measure(launch.instructions, params)
    checked = code.checks(instructions, launch.totals)
    return page | {
        "index": index, "measures": instructions.measures, "measure": measure, "answer": answer(launch, measure),
        "lines": line_rows(launch, LISTED), "hot": instruction_rows(launch, measure.name if measure else SAMPLES, LISTED),
        "line_count": sum(line.line is not None for line in launch.lines), "instruction_count": len(instructions),
        "sampled": instructions.has(SAMPLES), "has_lines": any(line.line is not None for line in launch.lines),
        "has_text": any(file.text for file in launch.files),
        "checks": checked, "wrong": [check for check in checked if not check.agrees], "marks": mark_rows(launch),
        "findings": finding_rows(kernel), "operator": tuned_operator(kernel.name),
        "has_sectors": instructions.has(EXCESS_SECTORS), "has_wavefronts": instructions.has(EXCESS_WAVEFRONTS),
    }


def finding_rows(kernel: KernelStat) -> list[dict[str, Any]]:
    """Return what the ingest found at lines of this kernel.

    Its name is left out: the page has it already.
    """
    return [{"title": finding.title.removeprefix(f"{kernel.short_name}: "), "advice": finding.advice, "worth_ns": finding.worth_ns}
            for finding in kernel.findings.filter(rule__startswith="source.").order_by(F("worth_ns").desc(nulls_last=True), "pk")]


def line_rows(launch: Launch, most: int | None = None) -> list[dict[str, Any]]:
    """Lines as rows, hottest first."""
    instructions = launch.instructions
    samples = float(instructions.values(SAMPLES).sum())
    rows = []
    for line in launch.lines[:most]:
        reason, count = next(iter(line.reasons.items()), ("", 0.0))
        own = line.values.get(SAMPLES, 0.0)
        rows.append({
            "file": line.file, "line": line.line, "place": launch.place(line.file, line.line),
            "file_name": launch.files[line.file].name if line.file is not None and line.file < len(launch.files) else "",
            "text": launch.text(line.file, line.line), "instructions": int(line.rows.size),
            "samples": own if instructions.has(SAMPLES) else None, "share_pct": share_pct(own, samples),
            "reason": reason, "reason_title": stalls.explain(reason).title if reason else "", "reason_pct": share_pct(count, own),
            **_counts(instructions, line.values),
        })
    return rows


def instruction_rows(launch: Launch, measure: str, most: int | None = None) -> list[dict[str, Any]]:
    """Return instructions as rows, the greatest `measure` first.

    All of them by address where `most` is None.
    """
    instructions = launch.instructions
    chosen = range(len(instructions)) if most is None else code.hottest(instructions, measure, most)
    names = [name for name in (SAMPLES, THREADS, "inst_executed", SECTORS, EXCESS_SECTORS, WAVEFRONTS, EXCESS_WAVEFRONTS)
             if instructions.has(name)]
    columns = {name: instructions.values(name) for name in dict.fromkeys([*names, measure])}
    sampled = columns.get(SAMPLES, np.zeros(len(instructions)))
    samples = float(sampled.sum())
    file, line = instructions.table["file"].to_pylist(), instructions.table["line"].to_pylist()
    rows = []
    for row in chosen:
        reason, count = next(iter(code.reasons_at(instructions, row).items()), ("", 0.0))
        other = launch.waits.get(row)
        rows.append({
            "offset": int(instructions.offset[row]), "hex": f"0x{int(instructions.offset[row]):04x}",
            "sass": instructions.readable_sass[row],
            "file": file[row], "line": line[row], "place": launch.place(file[row], line[row]),
            "samples": float(sampled[row]) if instructions.has(SAMPLES) else None,
            "share_pct": share_pct(float(sampled[row]), samples),
            "reason": reason, "reason_title": stalls.explain(reason).title if reason else "",
            "reason_pct": share_pct(count, float(sampled[row])), "value": float(columns[measure][row]),
            "waits_for": "" if other is None else instructions.readable_sass[other],
            "waits_for_offset": None if other is None else int(instructions.offset[other]),
            **_counts(instructions, {name: float(values[row]) for name, values in columns.items()}),
        })
    return rows


def _counts(instructions: Instructions, values: Mapping[str, float]) -> dict[str, Any]:
    """What was counted beside the samples; None where it was not collected."""
    def value(name: str) -> float | None:
        return values.get(name, 0.0) if instructions.has(name) else None

    return {"executed": value("inst_executed"), "threads": value(THREADS), "sectors": value(SECTORS),
            "excess_sectors": value(EXCESS_SECTORS), "wavefronts": value(WAVEFRONTS), "excess_wavefronts": value(EXCESS_WAVEFRONTS)}


def mark_rows(launch: Launch) -> list[dict[str, Any]]:
    """NVIDIA's marks with the place they stand at."""
    first = int(launch.instructions.address[0]) if len(launch.instructions) else 0
    names = {file.name: number for number, file in enumerate(launch.files)}
    rows = []
    for mark in launch.inside.marks:
        file = names.get(mark.file or "")
        offset = mark.address - first if mark.address is not None else None
        rows.append({"kind": mark.kind, "rule": mark.rule, "text": mark.text, "file": file, "line": mark.line, "offset": offset,
                     "place": launch.place(file, mark.line) or (f"0x{offset:04x}" if offset is not None and offset >= 0 else "")})
    return rows


def answer(launch: Launch, measure: Measure | None) -> dict[str, Any]:
    """The hottest place and what it waits for, as parts of the page's sentence."""
    by_line = any(line.line is not None for line in launch.lines)
    if not launch.instructions.has(SAMPLES):
        return {"sampled": False, "top": None, "by_line": by_line}
    rows = [row for row in line_rows(launch, 50) if row["line"] is not None] if by_line else instruction_rows(launch, SAMPLES, 1)
    top = rows[0] if rows else None
    named = next((line for line in launch.lines if line.line is not None), None) if by_line else None
    hot = hottest_instruction(Waits(launch.instructions), None if named is None else named.rows)
    few = sum(row["share_pct"] or 0.0 for row in rows[:5]) if by_line else None
    return {"sampled": True, "by_line": by_line, "top": top, "samples": float(launch.instructions.values(SAMPLES).sum()),
            "top_five_pct": few, "known": stalls.explain(top["reason"]) if top and top["reason"] else None,
            "waits_for": launch.instructions.readable_sass[hot.waits_for] if hot and hot.waits_for is not None else "",
            "waits_for_offset": int(launch.instructions.offset[hot.waits_for]) if hot and hot.waits_for is not None else None}


def source_json(launch: Launch) -> dict[str, Any]:
    """Return everything for the side-by-side view.

    Files with their text, instructions as columns, one column per measure and warp state. Numbers without a fraction travel as
    whole ones.
    """
    instructions = launch.instructions
    ptx = [str(text) for text in instructions.table["ptx"].to_pylist()]
    different = list(dict.fromkeys(ptx))
    number = {text: index for index, text in enumerate(different)}
    return {
        "profile": launch.profile.pk, "launch": launch.row.index, "kernel": launch.row.kernel.name,
        "files": [{"number": index, "name": file.name, "short": short_file(file.name), "text": file.text}
                  for index, file in enumerate(launch.files)],
        "measures": plain(instructions.measures),
        "reasons": [{"name": name, "title": stalls.explain(name).title, "meaning": stalls.explain(name).meaning,
                     "fix": stalls.explain(name).fix} for name, values in instructions.reasons.items() if values.any()],
        "instructions": {
            "offset": instructions.offset.tolist(), "sass": instructions.readable_sass, "ptx": [number[text] for text in ptx],
            "file": instructions.table["file"].to_pylist(), "line": instructions.table["line"].to_pylist(),
        },
        "ptx": different,
        "values": {measure.name: _plain(instructions.values(measure.name)) for measure in instructions.measures},
        "samples": {name: _plain(values) for name, values in instructions.reasons.items() if values.any()},
        "waits": {str(row): other for row, other in launch.waits.items()},
        "marks": mark_rows(launch),
        "checks": [{"metric": check.metric, "total": check.total, "added": check.added, "agrees": check.agrees}
                   for check in code.checks(instructions, launch.totals)],
    }


def _plain(values: Any) -> list[float]:
    return [int(value) if value == int(value) else round(value, 4) for value in values.tolist()]


def table_rows(launch: Launch, table: str) -> tuple[list[str], list[dict[str, Any]]]:
    """Return a whole table for a file: (columns, rows).

    "lines", or "instructions" with every metric of the report.
    """
    if table == "lines":
        rows = line_rows(launch)
        return list(rows[0]) if rows else ["line"], rows
    instructions = launch.instructions
    first = ["offset", "address", "sass", "ptx", "file", "line"]
    names = [launch.files[file].name if file is not None and file < len(launch.files) else None
             for file in instructions.table["file"].to_pylist()]
    columns = {"offset": instructions.offset.tolist(), "address": instructions.address.tolist(), "sass": instructions.readable_sass,
               "ptx": instructions.table["ptx"].to_pylist(), "file": names, "line": instructions.table["line"].to_pylist(),
               **{name: instructions.table[name].to_pylist() for name in instructions.metrics}}
    return [*first, *instructions.metrics], [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
