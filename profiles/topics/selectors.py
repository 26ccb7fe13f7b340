"""Reads for the topics' pages: the document, its tables as cells, and what all topics of a profile say."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from profiles.analysis.core.tunable import tuned_operator
from profiles.analysis.trace.account.causes import COVERED
from profiles.analysis.trace.plausibility.withhold import doubt_text
from profiles.ingest.naming.names import short_name
from profiles.models import Finding, Profile
from profiles.profile.finding_selectors import code_pieces, doubt_rows, finding_rows
from profiles.store.objects import topic_read
from profiles.store.timeline import timeline
from profiles.topics.table import TOPICS, Topic

FINDING = ("rule", "severity", "title", "advice", "numbers")
SHOWN_ROWS, MORE_ROWS = 50, 1_000         # of a table on a page, and with ?rows=all; files hold them all


@dataclass(frozen=True)
class TopicLine:
    """A topic as the profile page lists it; `answer` in pieces (text, is code), empty while it is not made."""

    topic: Topic
    answer: list[tuple[str, bool]]
    applies: bool
    numbers: dict[str, Any]         # of the document, for NUMBERS_OF; {} while it is not made


MOST_KNOWN = 1_000              # lines that a process remembers
NUMBERS_OF = ("causes", "needed")    # topics whose numbers the profile page draws: others have megabytes in large traces
_known: dict[tuple[int, str, int, int], TopicLine] = {}


def topic_lines(profile: Profile) -> list[TopicLine]:
    """Return every topic, and its answer where it is made; this makes nothing."""
    if profile.kind != Profile.Kind.TRACE:
        return []
    try:
        written = int(timeline(profile.pk).document["written"])
    except FileNotFoundError:
        return []
    return [_topic_line(profile.pk, topic, written) for topic in TOPICS]


def _topic_line(profile_id: int, topic: Topic, written: int) -> TopicLine:
    """A made document says the same for ever, unless it rests on facts of the database: those are read each time."""
    key = (profile_id, topic.name, topic.version, written)
    if key in _known:
        return _known[key]
    document = topic_read(profile_id, topic.name, topic.version, written)
    if document is None:
        return TopicLine(topic, [], True, {})
    numbers = document.get("numbers", {}) if topic.name in NUMBERS_OF else {}
    line = TopicLine(topic, code_pieces(document.get("answer", "")), document.get("applies", True), numbers)
    if topic.given is None:
        if len(_known) >= MOST_KNOWN:
            _known.clear()
        _known[key] = line
    return line


def lines_without_doubt(lines: list[TopicLine], profile: Profile) -> list[TopicLine]:
    """Return the lines for a page that says already what is in doubt: there it is not said again."""
    doubt = doubt_text(doubt_rows(profile))
    out = []
    for line in lines:
        text = "".join(f"`{piece}`" if code else piece for piece, code in line.answer)
        is_repeated = bool(doubt) and text.startswith(doubt)
        rest = "In doubt, as said above." if line.applies else text[len(doubt):].strip()
        out.append(replace(line, answer=code_pieces(rest)) if is_repeated else line)
    return out


def topics_of(profile: Profile) -> list[Topic]:
    """Return the topics that have something to say of a trace, and, where GPUs worked, those that are not made yet."""
    has_gpu = bool(profile.summary.get("devices"))
    return [line.topic for line in topic_lines(profile) if line.applies and (line.answer or has_gpu)]


def topic_findings(profile: Profile, topic: Topic, document: dict[str, Any]) -> list[Finding]:
    """Return a topic's findings: those that are kept as rows, then those that the account says, as details of this page."""
    rows = [row for row in finding_rows(profile) if row.source == topic.name]
    return rows + [Finding(profile=profile, source=topic.name, **{name: finding[name] for name in FINDING})
                   for finding in document.get("findings", ()) if finding["rule"] in COVERED]


@dataclass(frozen=True)
class KernelCell:
    """A kernel's name in a table, and where one can go from it; `pk` None where the kernel table does not list it."""

    name: str
    short_name: str
    pk: int | None
    tunable: bool


def shown_tables(profile: Profile, document: dict[str, Any], more: bool = False) -> list[dict[str, Any]]:
    """Return tables with cells as (value, unit, is text), the first rows of each.

    Cells of unit "kernel" are KernelCells.
    """
    most = MORE_ROWS if more else SHOWN_ROWS
    kernels = _kernels(profile, document, most)

    def cell(value: Any, column: dict[str, Any]) -> tuple[Any, str, bool]:
        if column["unit"] == "kernel" and value is not None:
            pk, label = kernels.get(value) or (None, short_name(value))
            value = KernelCell(value, label, pk, bool(tuned_operator(value)))
        return value, column["unit"], column["text"]

    return [{
        **table, "number": number, "names_kernels": any(column["unit"] == "kernel" for column in table["columns"]),
        "total": len(table["rows"]), "more": most < min(len(table["rows"]), MORE_ROWS),
        "rows": [[cell(value, column) for value, column in zip(row, table["columns"], strict=True)]
                 for row in table["rows"][:most]],
    } for number, table in enumerate(document["tables"])]


def _kernels(profile: Profile, document: dict[str, Any], most: int) -> dict[str, tuple[int, str]]:
    """Ids and labels of the kernels that columns of unit "kernel" name."""
    names = {row[key] for table in document["tables"] for key, column in enumerate(table["columns"]) if column["unit"] == "kernel"
             for row in table["rows"][:most] if row[key] is not None}
    rows = profile.kernels.filter(name__in=names).values_list("name", "pk", "short_name") if names else []
    return {name: (pk, label) for name, pk, label in rows}
