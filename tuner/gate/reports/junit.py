"""JUnit XML, as Jenkins, GitLab and GitHub's test reporters read it: one test case per kernel.

SLOWER is a failure, NO DATA an error, AMBIGUOUS skipped (nobody is blamed for what could not be decided; the exit code says 2),
PASS and FASTER pass. All are skipped where the build is the first that was measured. `time` of a case is the candidate's median in
seconds.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from typing import Any
from xml.etree import ElementTree as ET

from tuner.gate.reports import words
from tuner.gate.reports.words import GateDocument, KernelDocument, is_first_of_suite, kernel_name
from tuner.gate.stats.rule import finite_number

OUTCOME = {"SLOWER": "failure", "NO DATA": "error", "AMBIGUOUS": "skipped"}
PLURAL = {"failure": "failures", "error": "errors", "skipped": "skipped"}
# what XML 1.0 has no way to write, not even escaped (W3C, section 2.2)
_UNWRITABLE = re.compile("[^\\t\\n\\r\\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def junit_xml(of: GateDocument) -> bytes:
    """Return JUnit XML of a gate that ended; without a verdict it is one test case that is an error."""
    kernels = list(of.get("kernels", ())) if of.get("verdict") else []
    cases = [_case(of, kernel) for kernel in kernels] or [_undecided_case(of)]
    counts = Counter(child.tag for case in cases for child in case if child.tag in PLURAL)
    numbers = {"tests": str(len(cases)), **{PLURAL[tag]: str(counts[tag]) for tag in ("failure", "error", "skipped")}}
    name = f"Ridgepoint {of.get('suite', '')}".strip()
    numbers["time"] = f"{sum(float(case.get('time', 0)) for case in cases):.9f}"
    root = ET.Element("testsuites", {"name": _strip_unwritable(name), **numbers})
    suite = ET.SubElement(root, "testsuite", {"name": _strip_unwritable(name), **numbers})
    del root.attrib["skipped"]              # which Jenkins' schema (junit-10.xsd) knows of a test suite alone
    if stamp := str(of.get("finished") or of.get("created") or "")[:19]:
        suite.set("timestamp", _strip_unwritable(stamp))
    properties = ET.SubElement(suite, "properties")
    for key, value in _properties(of):
        ET.SubElement(properties, "property", {"name": key, "value": _strip_unwritable(value)})
    suite.extend(cases)
    out = ET.SubElement(suite, "system-out")
    said = [str(entry["says"]) for entry in of.get("standing") or () if entry.get("says")]
    out.text = _strip_unwritable("\n".join([words.headline(of), *said, *filter(None, [of.get("green")]), *words.error_rates(of)]))
    ET.indent(root)
    return bytes(ET.tostring(root, encoding="utf-8", xml_declaration=True)) + b"\n"


def _case(of: GateDocument, kernel: KernelDocument) -> ET.Element:
    verdict = str(kernel.get("verdict", ""))
    measured = finite_number(kernel.get("candidate_us")) or 0.0
    case = ET.Element("testcase", {"classname": _class(of), "name": _strip_unwritable(kernel_name(kernel))[:500],
                                   "time": f"{measured / 1e6:.9f}"})
    reason = _strip_unwritable(kernel.get("reason", ""))
    if tag := "skipped" if is_first_of_suite(of) else OUTCOME.get(verdict):
        ET.SubElement(case, tag, {"message": reason[:1000] or verdict, "type": verdict}).text = reason
    ET.SubElement(case, "system-out").text = _strip_unwritable("\n".join(_lines(kernel, verdict, str(kernel.get("reason", "")))))
    return case


def _lines(kernel: KernelDocument, verdict: str, reason: str) -> Sequence[str]:
    page = words.page_of(kernel)
    ratio, ratio_p95 = words.change_text(kernel.get("ratio_p50")), words.change_text(kernel.get("ratio_p95"))
    return list(filter(None, (
        f"{verdict}: {reason}" if reason else verdict,
        f"p50 {words.time_text(kernel.get('baseline_us'))} -> {words.time_text(kernel.get('candidate_us'))}, "
        f"{ratio} ({words.interval_text(kernel.get('ci'))}); p95 {ratio_p95}",
        *(f"{metric.get('metric')}: {metric.get('verdict')}: {metric.get('reason')}" for metric in kernel.get("metrics") or ()),
        f"evidence: {page}" if page else "")))


def _undecided_case(of: GateDocument) -> ET.Element:
    case = ET.Element("testcase", {"classname": _class(of), "name": "gate", "time": "0.000000000"})
    error: Any = of.get("error") or {}
    what = f"{error.get('what', '')} {error.get('hint', '')}".strip() or of.get("reason") or words.headline(of)
    ET.SubElement(case, "error", {"message": _strip_unwritable(what)[:1000],
                                  "type": of.get("verdict") or of.get("status") or "error"})
    return case


def _class(of: GateDocument) -> str:
    """Dots make packages in Jenkins' tree: those of the names are none."""
    return _strip_unwritable("ridgepoint." + str(of.get("suite") or "files").replace(".", "_"))[:200]


def _properties(of: GateDocument) -> list[tuple[str, Any]]:
    place = of.get("environment") or {}
    properties = [("verdict", of.get("verdict")), ("build", of.get("build")), ("against", of.get("against")),
                  *((name, place.get(name)) for name in ("gpu", "toolkit", "driver", "recorded")),
                  ("false SLOWER of the suite", words.share_text(of.get("alpha")) if of.get("alpha") is not None else None),
                  ("evidence", words.page_of(of))]
    return [(name, value) for name, value in properties if value]


def _strip_unwritable(value: Any) -> str:
    return _UNWRITABLE.sub("\N{REPLACEMENT CHARACTER}", str(value))
