"""What `ncu` prints without `--csv` → `Report`: a heading per launch, sections of metrics below lines of dashes, rules between.

It is the details page (or single metrics) as text: the rows are put into the table of that page's CSV and read as such, rounded as
they are printed. Lines of ncu itself and of the profiled program may stand anywhere.
"""

from __future__ import annotations

import re

from profiles.ingest.core.source import Source
from profiles.ingest.core.text_lines import cells_of, read_lines, spans_of
from profiles.ingest.ncu.csv_pages import MAX_CELLS, MAX_FAILED, MAX_LINES, RAW_HINT, Table, details_report
from profiles.ingest.ncu.report import accept_untimed, add_failed, failed_kernel
from profiles.ingest.trace import Report, TraceError

FORMAT = "ncu-text"
_MAX_LINE_BYTES = 1 << 20
_HEADING = re.compile(
    r"^ {1,4}(?P<name>\S.*?)"
    r"(?:(?:,\s+\d{4}-\w{3}-\d{2} \d{2}:\d{2}:\d{2})?|\s+(?P<grid>\(\d+, *\d+, *\d+\))x(?P<block>\(\d+, *\d+, *\d+\)))"
    r",\s+Context (?P<context>\d+),\s+Stream (?P<stream>\d+)(?:,\s+Device (?P<device>\d+),\s+CC (?P<cc>\d+\.\d+))?\s*$")
_SECTION = re.compile(r"^\s+Section: (?P<name>.*?)\s*$")
_RULE = re.compile(r"^\s{4}(?P<kind>OPT|WRN|INF|ERR)\s{2,}(?P<text>.*?)\s*$")
_SPEEDUP = re.compile(r"Est\.\s+(?P<scope>Local |Global )?Speedup:\s+(?P<percent>\d+(?:\.\d+)?)%")
_SNIFF = re.compile(r"^ {1,4}\S.*,\s+Context \d+,\s+Stream \d+.*$", re.MULTILINE)
_MARK = re.compile(r"^\s+Section: |^\s+Metric Name\s+Metric Unit\s+Metric Value", re.MULTILINE)
COLUMNS = ["ID", "Process ID", "Kernel Name", "Context", "Stream", "Block Size", "Grid Size", "Device", "CC", "Section Name",
           "Metric Name", "Metric Unit", "Metric Value", "Rule Name", "Rule Type", "Rule Description", "Estimated Speedup Type",
           "Estimated Speedup"]


def sniff(head: bytes) -> bool:
    if b"Context " not in head or b"Stream " not in head:
        return False
    text = head.decode("utf-8", "replace")
    return bool(_SNIFF.search(text)) and bool(_MARK.search(text))


def read(source: Source) -> Report:
    """Raises TraceError where no launch has a metric."""
    page = _Page()
    for number, line in enumerate(read_lines(source, _MAX_LINE_BYTES, "ncu", RAW_HINT), 1):
        if number > MAX_LINES:
            raise TraceError(f"line {number:,}", "the file goes on beyond what is read of a page of counters", RAW_HINT)
        page.take(line)
    page.end_rule()
    if not page.table.rows:
        raise TraceError("line 1", "a page of Nsight Compute without a launch that has metrics", RAW_HINT)
    report = details_report(page.table, FORMAT)
    accept_untimed(report)
    add_failed(report, page.table.failed)
    for launch in report.launches:
        if launch.incomplete:
            report.integrity.repair(f"kept out of sums: {launch.incomplete}")
    report.integrity.repair("lines of other output skipped", page.table.other_lines)
    report.integrity.end_early(source.damage)
    return report


class _Page:
    """Turns lines into rows of the details page's table."""

    def __init__(self) -> None:
        self.table = Table(COLUMNS, ",")
        self._launch: list[str] = []            # the first nine cells of each row
        self._count = 0
        self._section = ""
        self._spans: list[tuple[int, int]] = []
        self._rule: list[str] = []              # kind, then its lines

    def take(self, line: str) -> None:
        heading = _HEADING.match(line) if len(line) < 20_000 else None
        if (kernel := failed_kernel(line)) and len(self.table.failed) < MAX_FAILED:
            self.table.failed.append(kernel)
        if heading:
            self.end_rule()
            self._count += 1
            sides = heading["block"] or "", heading["grid"] or ""
            self._launch = [str(self._count), "0", heading["name"], heading["context"], heading["stream"], *sides,
                            heading["device"] or "", heading["cc"] or ""]
            self._spans, self._section = [], ""
        elif not self._launch:
            self.table.other_lines += bool(line.strip())
        elif section := _SECTION.match(line):
            self.end_rule()
            self._section, self._spans = section["name"], []
        elif spans := spans_of(line):
            self.end_rule()
            self._spans = spans if len(spans) == 3 else []
        elif rule := _RULE.match(line):
            self.end_rule()
            self._rule = [rule["kind"], rule["text"]]
        elif self._rule and line.startswith(" " * 8):
            self._rule.append(line.strip())
        elif self._spans and line.startswith("    ") and line.strip():
            self._metric(cells_of(line, self._spans))
        elif line.strip():
            self.end_rule()
            self._spans = []
            self.table.other_lines += 1

    def _metric(self, cells: list[str]) -> None:
        name, unit, value = cells
        if name == "Metric Name":
            return
        self._add([self._section, name, unit, value, "", "", "", "", ""])

    def end_rule(self) -> None:
        """Put down the rule that was begun."""
        if not self._rule:
            return
        kind, *lines = self._rule
        text, self._rule = " ".join(line for line in lines if line), []
        speedup = _SPEEDUP.search(text)
        self._add([self._section, "", "", "", self._section or "rule", kind, _SPEEDUP.sub("", text).strip(),
                   "local" if speedup and (speedup["scope"] or "").strip() == "Local" else "global" if speedup else "",
                   speedup["percent"] if speedup else ""])

    def _add(self, rest: list[str]) -> None:
        self.table.cells += len(COLUMNS)
        if self.table.cells > MAX_CELLS:
            self.table.beyond += 1
        else:
            self.table.rows.append([*self._launch, *rest])
