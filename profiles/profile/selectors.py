"""Reads for the page of one profile: what its row says, its kernel table, who refers to it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypedDict

from django.db.models import F, QuerySet, Sum

from profiles.analysis.core.sentences import pct_of, pct_text, plural, share_pct, time_text, verb
from profiles.analysis.core.tunable import tuned_operator
from profiles.analysis.trace.plausibility.withhold import doubt_text
from profiles.base.answers import make_answer
from profiles.models import Capture, KernelShape, KernelStat, Profile
from profiles.profile.counted_selectors import counted_kernels
from profiles.profile.finding_selectors import FindingLine, code_pieces, doubt_rows, integrity_mark, is_time_doubtful
from profiles.store.objects import tables_of


@dataclass(frozen=True)
class ProfileRow:
    """A profile as lists show it."""

    profile: Profile
    busy_pct: float | None          # of wall time over all GPUs, 0-100
    needed_pct: float | None        # of the steps' time over all GPUs, 0-100
    mark: str                       # "ok" | "warn" | "bad" | "" of the integrity report
    mark_text: str

    @property
    def live(self) -> bool:
        return self.profile.status in (Profile.Status.UPLOADED, Profile.Status.INGESTING)

    @property
    def progress(self) -> dict[str, Any]:
        progress = self.profile.summary.get("progress") if self.live else None
        return progress or {}


def profile_row(profile: Profile) -> ProfileRow:
    return ProfileRow(profile, busy_pct(profile), needed_pct(profile), *integrity_mark(profile))


def busy_pct(profile: Profile) -> float | None:
    """Return the share of the wall time that the GPUs were busy.

    None where the profile has no GPU timeline.
    """
    devices = profile.summary.get("devices") or []
    wall_ns = sum(device["wall_ns"] for device in devices)
    return share_pct(sum(device["busy_ns"] for device in devices), wall_ns)


def needed_pct(profile: Profile) -> float | None:
    """Return what of the steps' time the work needs at least; None where that is not known or not made yet."""
    share: float | None = profile.summary.get("needed_pct")
    return share


def kernel_rows(profile: Profile) -> QuerySet[KernelStat]:
    return profile.kernels.all()


@dataclass(frozen=True)
class KernelLine:
    """A kernel of the profile page and where one can go from it."""

    stat: KernelStat
    operator: str
    search: str         # what finds its launches in the timeline
    calculated_pct: float | None = None         # occupancy, where the file states none (`analysis.trace.findings`)
    counted: KernelStat | None = None           # where a report of the same GPU counted launches of the same shape


def kernel_table(profile: Profile, most: int | None = None) -> list[KernelLine]:
    """Return at most `most` kernels, most time first."""
    return kernel_lines(profile, list(kernel_rows(profile)[:most]))


def kernel_lines(profile: Profile, stats: Sequence[KernelStat]) -> list[KernelLine]:
    calculated = profile.summary.get("calculated_occupancy") or {}
    counted = counted_kernels(profile, stats)
    return [KernelLine(stat, tuned_operator(stat.name), stat.name[:300], calculated.get(stat.name),
                       counted.get(stat.pk)) for stat in stats]


SHAPE_COLUMNS = ("name", "short_name", "grid", "block", "operator", "dims", "dtype", "shapes", "launches", "total_ns", "mean_ns",
                 "p50_ns", "p95_ns", "min_ns", "max_ns", "share_pct", "roof_pct", "floor_ns", "shape")


def shape_rows(profile: Profile) -> QuerySet[KernelShape]:
    """Return the kernels of a profile by what they worked on, most time first; empty for sums, which state no launches."""
    return KernelShape.objects.filter(kernel__profile=profile).select_related("kernel").order_by("-total_ns", "pk")


@dataclass(frozen=True)
class KernelShapeLine:
    """A kernel of the profile page with one shape; rows of one kernel stand beside each other by time, not by kernel."""

    shape: KernelShape
    share_pct: float            # of the profile's kernel time

    @property
    def stat(self) -> KernelStat:
        return self.shape.kernel

    @property
    def mean_ns(self) -> float | None:
        return self.shape.total_ns / self.shape.launches if self.shape.launches else None


def shape_table(profile: Profile, most: int | None = None) -> list[KernelShapeLine]:
    """Return at most `most` kernel shapes, most time first."""
    return shape_lines(profile, shape_rows(profile)[:most])


def shape_lines(profile: Profile, rows: Iterable[KernelShape]) -> list[KernelShapeLine]:
    of_ns = profile.gpu_time_ns
    return [KernelShapeLine(row, pct_of(row.total_ns, of_ns)) for row in rows]


class KernelJson(TypedDict):
    """One kernel of a profile, summed over its launches (`KernelRow`); null is unknown, `bound` "" too."""

    id: int
    name: str
    short_name: str
    category: str
    launches: int
    total_ns: int | None
    mean_ns: float | None
    p50_ns: float | None
    p95_ns: float | None
    min_ns: int | None
    max_ns: int | None
    share_pct: float | None
    bound: str
    bound_reason: str
    registers_per_thread: int | None
    smem_bytes: int | None
    occupancy_pct: float | None


class ShapeJson(TypedDict):
    """A kernel's launches of one grid and block around one operator; `floor_ns`: least time of one by its shapes."""

    name: str
    short_name: str
    grid: str
    block: str
    operator: str
    dims: str
    dtype: str
    shapes: int
    launches: int
    total_ns: int
    p50_ns: float | None
    p95_ns: float | None
    min_ns: int
    max_ns: int
    roof_pct: float | None
    floor_ns: float | None
    mean_ns: float
    share_pct: float | None
    shape: int


def shape_json(line: KernelShapeLine) -> ShapeJson:
    """Return one row of `SHAPE_COLUMNS`."""
    return make_answer(ShapeJson, line.shape, name=line.stat.name, short_name=line.stat.short_name, mean_ns=line.mean_ns,
                       share_pct=line.share_pct, shape=line.shape.pk)


STRANGE_LANES = "records on lanes of a device that is not known"       # how the readers' remark begins


def answer(profile: Profile, findings: list[FindingLine]) -> list[tuple[str, bool]]:
    """The sentence at the top of a ready profile's page: what is in doubt before anything else, and alone where all rests on it."""
    doubts = doubt_rows(profile)
    text = doubt_text(doubts)
    if not text:
        return _answer(profile, findings)
    rest = [] if is_time_doubtful(profile) else [(" ", False), *_answer(profile, findings)]
    return [*code_pieces(text), *rest]


def _answer(profile: Profile, findings: list[FindingLine]) -> list[tuple[str, bool]]:
    """What a ready profile's numbers say first."""
    devices = profile.summary.get("devices") or []
    if profile.kind == Profile.Kind.COUNTERS:
        return _counters_answer(profile)
    if profile.kind == Profile.Kind.SUMMARY:
        return _summary_answer(profile)
    if not devices and profile.summary.get("headline"):
        return [(profile.summary["headline"], False)]
    strange = sum(count for remark, count in (profile.integrity.get("remarks") or {}).items() if remark.startswith(STRANGE_LANES))
    if not devices and strange:
        return [(f"{plural(strange, 'record')} on lanes of a device that is not known here, "
                 f"over {time_text(profile.wall_ns or 0)}: shown "
                 "in the timeline, counted neither as its work nor as the CPU's.", False)]
    if not devices:
        whole = not profile.integrity.get("truncated_at")
        none = "No GPU work in this trace" if whole else "The file ends early, and holds no GPU work as far as it goes"
        text = (f"{none}: {plural(profile.integrity.get('records_kept', 0), 'record')} of the CPU over "
                f"{time_text(profile.wall_ns or 0)}")
        top = profile.summary.get("cpu_top")
        share = [("; ", False), (top["name"], True),
                 (f" itself takes {pct_text(top['share_pct'])} of its threads' time", False)] if top else []
        return [(text, False), *share, (".", False)]
    lead = next((line for line in findings if line.finding.numbers.get("leads")), None)
    if lead:
        return [*lead.title, (".", False)]
    wall_ns = devices[0]["wall_ns"]
    who = f"GPU {devices[0]['index']}" if len(devices) == 1 else f"{len(devices)} GPUs"
    text = f"{who} busy {pct_text(busy_pct(profile) or 0)} of {time_text(wall_ns)}"
    rest = [("; ", False), *_lower(findings[0].title)] if findings else []
    return [(text, False), *rest, (".", False)]


def _lower(title: list[tuple[str, bool]]) -> list[tuple[str, bool]]:
    """A title as the second half of a sentence: its first word small, where it is no abbreviation or name."""
    (text, code), *more = title or [("", False)]
    return [(text[:1].lower() + text[1:] if not code and text[1:2].islower() else text, code), *more]


def _counters_answer(profile: Profile) -> list[tuple[str, bool]]:
    """What profiling did not measure comes first: its time is in no sum."""
    top = profile.kernels.first()
    kernels = profile.kernels.count()
    broken_off = profile.counter_launches.exclude(incomplete="").count()
    if top is None or broken_off == profile.launches:
        return [(f"{plural(profile.launches, 'launch')}, none of them measured to its end.", False)]
    lacking = f"{broken_off} of {plural(profile.launches, 'launch')} {verb(broken_off, 'was', 'were')} not measured to the end. " \
        if broken_off else ""
    if top.share_pct is None:
        return [(f"{lacking}{plural(profile.launches, 'launch')} of {plural(kernels, 'kernel')}; the report states no duration: "
                 "which takes most time is unknown.", False)]
    bound = f", {top.bound}-bound" if top.bound else ""
    whole = profile.launches - broken_off
    who = f"The other {whole}" if broken_off else f"{plural(whole, 'launch')} of {plural(kernels, 'kernel')}"
    text = f"{lacking}{who} {verb(whole, 'takes', 'take')} {time_text(profile.gpu_time_ns or 0)}"
    return [(f"{text}; ", False), (top.short_name, True), (f" takes {pct_text(top.share_pct)} of it{bound}.", False)]


def _summary_answer(profile: Profile) -> list[tuple[str, bool]]:
    top = profile.kernels.first()
    if top is None and profile.summary.get("headline"):
        return [(profile.summary["headline"], False)]
    if top is None:
        tables = profile.summary.get("tables") or []
        rows = sum(table["rows"] for table in tables)
        return [(f"{plural(rows, 'row')} in {plural(len(tables), 'table')}; none of them sums GPU kernels.", False)]
    kernels = plural(profile.kernels.count(), "kernel")
    takes = verb(profile.launches, "takes", "take")
    return [(f"{plural(profile.launches, 'launch')} of {kernels} {takes} {time_text(profile.gpu_time_ns or 0)}; ", False),
            (top.short_name, True), (f" takes {pct_text(top.share_pct or 0.0)} of it.", False)]


def tables(profile: Profile) -> list[dict[str, Any]]:
    """Tables of a summary, whole: title, note, columns {"name", "unit", "text"}, rows."""
    return tables_of(profile.pk)


def summary_tables(profile: Profile, rows: int) -> list[dict[str, Any]]:
    """Return tables of a summary with at most `rows` rows each.

    Cells are (value, unit, text) for a template.
    """
    return [{
        **table, "number": number, "total": len(table["rows"]),
        "rows": [[(cell, column["unit"], column["text"]) for cell, column in zip(row, table["columns"], strict=False)]
                 for row in table["rows"][:rows]],
    } for number, table in enumerate(tables(profile))]


_COMMAND = re.compile(r"`(nsys export [^`]+)`")


def command(profile: Profile) -> str:
    """The command that a failed profile's error says to run, "" where it names none."""
    match = _COMMAND.search((profile.error or {}).get("hint", ""))
    return match[1] if match else ""


def duplicates(profile: Profile) -> QuerySet[Profile]:
    """Other profiles of the very same bytes, oldest first."""
    if not profile.sha256:
        return Profile.objects.none()
    return Profile.objects.filter(sha256=profile.sha256).exclude(pk=profile.pk).order_by("created")


def uploads(profile: Profile) -> list[dict[str, Any]]:
    """Return the uploaded files: {"key", "name", "bytes", "sha256"}.

    Several where one profile holds a job's ranks.
    """
    return profile.metadata.get("files") or [
        {"key": profile.upload_key, "name": profile.file_name, "bytes": profile.upload_bytes, "sha256": profile.sha256}]


def metadata_rows(profile: Profile) -> list[tuple[str, str]]:
    """Return what the file states, flat and short."""
    return [(key, text[:400]) for key, text in _flat(profile.metadata)]


def _flat(metadata: dict[str, Any], above: str = "") -> Iterator[tuple[str, str]]:
    for key, value in metadata.items():
        if above == "" and key in ("files", "breakdowns"):
            continue
        if isinstance(value, dict):
            yield from _flat(value, f"{above}{key} · ")
        elif value not in (None, "", []):
            yield f"{above}{key}", str(value)


def comparable_profiles(profile: Profile) -> QuerySet[Profile]:
    """Ready profiles of the same kind, newest first; same model and GPU lead."""
    return Profile.objects.filter(status=Profile.Status.READY, kind=profile.kind).exclude(pk=profile.pk).order_by("-created")


def known_builds() -> list[str]:
    """Return builds that a form proposes."""
    return list(Profile.objects.exclude(build="").order_by("build").values_list("build", flat=True).distinct()[:200])


def captures_of(profile: Profile) -> QuerySet[Capture]:
    return profile.captures.select_related("target")


SORTS: dict[str, tuple[str, str, bool]] = {      # of the kernels of a page: (heading, column, most first)
    "name": ("Kernel", "short_name", False), "share": ("Share", "share_pct", True), "total": ("Time", "total_ns", True),
    "launches": ("Launches", "launches", True), "mean": ("Mean", "mean_ns", True), "bound": ("Bound", "bound", True),
}


@dataclass(frozen=True)
class SortColumn:
    """A heading of the kernels' table; `next` is the order that a click on it asks for."""

    title: str
    number: bool
    current: bool
    order: str                  # "ascending" | "descending"
    next: str


def sort_of(column: str) -> tuple[str, bool]:
    """Return the column and whether the largest stand first, of "mean" or "-mean" (the other way round); else by share."""
    name, turned = column.removeprefix("-"), column.startswith("-")
    return (name, SORTS[name][2] != turned) if name in SORTS else ("share", True)


def sort_columns(column: str) -> list[SortColumn]:
    name, descending = sort_of(column)
    return [SortColumn(title, key not in ("name", "bound"), key == name, "descending" if descending else "ascending",
                       f"-{key}" if key == name and descending == most_first else key)
            for key, (title, _, most_first) in SORTS.items()]


def top_kernels(profile: Profile, asked: str, most: int) -> list[KernelLine]:
    """Return the first kernels in the order that the page's address asks for; unknown values stand last."""
    name, descending = sort_of(asked)
    column = F(SORTS[name][1])
    order = column.desc(nulls_last=True) if descending else column.asc(nulls_last=True)
    return kernel_lines(profile, list(kernel_rows(profile).order_by(order, "pk")[:most]))


def time_by_bound(profile: Profile) -> dict[str, int]:
    """Return the kernel time in ns of each bound, "" for kernels of which it is unknown."""
    sums = kernel_rows(profile).order_by().values_list("bound").annotate(ns=Sum("total_ns"))
    return {bound: int(ns) for bound, ns in sums if ns}
