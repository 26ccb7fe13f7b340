"""What the pages of candidates show, and what their form says."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from typing import Any

from profiles.base.refused import Refused
from profiles.base.words import pairs_text
from tuner.candidates import code_view, selectors, services
from tuner.candidates.verdicts import QUICKENED, SIGN, SLOWED, TITLES, Verdict, slowdown_of_default
from tuner.ceilings.least_time import LeastTime
from tuner.models import Candidate
from tuner.texts import config_text, in_order
from tuner.tuning.operators import find

VERDICTS = [verdict.value for verdict in Verdict]
MARKS = {Verdict.FASTER: "mark-ok", Verdict.SAME: "mark-info", Verdict.SLOWER: "mark-bad", Verdict.AMBIGUOUS: "mark-warn",
         Verdict.WRONG: "mark-bad", Verdict.FAILED: "mark-bad"}
COUNTERS = (("duration_ns", "duration", "ns"), ("dram_pct", "DRAM", "%"), ("sm_pct", "SM", "%"),
            ("tensor_pct", "tensor cores", "%"), ("occupancy_pct", "occupancy", "%"), ("registers", "registers", ""))
LIVE = (Candidate.Status.WAITING, Candidate.Status.RUNNING)
_PAIR = re.compile(r"\s*([A-Za-z_][A-Za-z0-9_]{0,39})\s*=\s*([^\s,]{1,60})\s*\Z")


def line_of(candidate: Candidate) -> dict[str, Any]:
    """Return a line of the list."""
    return {"row": candidate, **selectors.row_json(candidate), "mark": mark_of(candidate.verdict),
            "sign": SIGN.get(candidate.verdict, "")}


def mark_of(verdict: str) -> str:
    return MARKS[Verdict(verdict)] if verdict in VERDICTS else ""


def page_of(candidate: Candidate) -> dict[str, Any]:
    """Return everything that a candidate's page shows."""
    answer = candidate.answer
    files = selectors.files_of(candidate.operator)
    base = next((file for file in files if file.path == candidate.base_path), None)
    same_base = base is not None and base.hash == candidate.base_hash
    live, least = candidate.status in LIVE, selectors.least_of(candidate)
    return {
        "candidate": candidate, "shape": in_order(candidate.operator, candidate.shape), "answer": answer,
        "live": live, "mark": mark_of(candidate.verdict),
        "sign": SIGN.get(candidate.verdict, ""), "standing": selectors.standing(candidate), "bars": bars_of(answer, least),
        "least": least,
        "checks": checks_of(answer), "counters": counters_of(answer), "compiled": answer.get("compiled"),
        "code": code_view.compare(base.text if base else "", candidate.text), "base": base,
        "base_changed": base is not None and not same_base,
        "attempts": [line_of(attempt) for attempt in selectors.attempts_of(candidate)],
        "config_text": config_text(candidate.config or {}),
        "default_text": config_text((answer.get("own") or {}).get("default") or {}),
        "known": find(candidate.operator), "waits": selectors.ability(candidate)["why"] if live else "",
        "acceptable": candidate.verdict in services.ACCEPTABLE, "clocks": _clocks(answer),
        "problem_fields": problem_fields(candidate), "command": command_of(candidate)}


def bars_of(answer: Mapping[str, Any], least: LeastTime | None = None) -> list[dict[str, Any]]:
    """Return the contenders with the ends of their bars and intervals in % of the longest, and what each reaches; ours first."""
    rows = [row for row in answer.get("rows", ()) if isinstance(row, dict) and row.get("median_us")]
    longest = max((row["high_us"] for row in rows), default=0)
    best = answer.get("best") or {}
    return [{**row, **selectors.reached(answer, row["median_us"], least),
             "title": TITLES.get(row["name"], row["name"]), "mark": mark_of(row.get("verdict", "")),
             "sign": SIGN.get(row.get("verdict", ""), ""), "width": _share(row["median_us"], longest),
             "from": _share(row["low_us"], longest), "to": _share(row["high_us"], longest),
             "config": config_text(best.get("config") or {}) if row["name"] == "best" else "",
             "entry": best.get("entry") if row["name"] == "best" else None} for row in rows]


def _share(us: float, longest: float) -> float:
    return round(100 * us / longest, 2) if longest else 0.0


def checks_of(answer: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return what was checked: {"what", "good", "said"}; `good` None where it only tells."""
    rows: list[dict[str, Any]] = []
    checks, again = answer.get("checks") or [], answer.get("again")
    for number, check in enumerate(checks, 1):
        rows.append({"what": f"results on fresh inputs, {number} of {len(checks)}", "good": check["right"],
                     "said": check["message"] or _errors(check)})
    if checks:
        changed = sorted({name for check in checks for name in check["changed"]})
        rows.append({"what": "inputs unchanged", "good": not changed, "said": ", ".join(changed)})
    if repeats := answer.get("repeats"):
        differing = repeats["differing"]
        rows.append({"what": "the same bits each time", "good": None if differing else True,
                     "said": f"{differing:,} elements differ between {repeats['launches']} launches" if differing else ""})
    if streams := answer.get("streams"):
        rows.append({"what": "no work on other streams", "good": not streams["late"],
                     "said": f"{streams['left_ms'] * 1000:.0f} µs left after {streams['launches']} launches; the operator's own "
                              f"leaves {streams['own_left_ms'] * 1000:.0f} µs"})
    timed = (answer.get("times") or {}).get("candidate")
    if timed:
        rows.append({"what": "results while it was timed", "good": not timed["wrong"],
                     "said": timed["wrong"] or f"{timed['compared']} launches compared, drawn by lot"})
    if (slowed := slowdown_of_default(answer)) is not None:
        rows.append({"what": "the operator's own as fast as before the file came", "good": 1 - QUICKENED <= slowed <= 1 + SLOWED,
                     "said": f"{100 * (slowed - 1):+.1f} %"})
    if again:
        rows.append({"what": "results on fresh inputs after it was timed", "good": again["right"],
                     "said": again["message"] or _errors(again)})
    if "replaced" in answer:
        rows.append({"what": "clock and comparison untouched", "good": not answer["replaced"],
                     "said": ", ".join(answer["replaced"])})
    return rows


def _errors(check: Mapping[str, Any]) -> str:
    if check.get("relative_error") is None:
        return ""
    return f"relative error {check['relative_error']:.2g}, worst element {check['worst_error']:.2g}"


def counters_of(answer: Mapping[str, Any]) -> dict[str, Any]:
    """Return {"rows": (title, value, unit), "why"} of ncu."""
    counted = answer.get("counters") or {}
    return {"rows": [(title, counted[name], unit) for name, title, unit in COUNTERS if counted.get(name) is not None],
            "why": counted.get("why", ""), "tool": counted.get("tool", "")}


def _clocks(answer: Mapping[str, Any]) -> str:
    clocks = (answer.get("device") or {}).get("clocks") or {}
    parts = [f"{clocks[name]} {unit}" for name, unit in (("sm_clock_mhz", "MHz SM"), ("temperature_c", "°C")) if clocks.get(name)]
    return ", ".join(parts)


def command_of(candidate: Candidate) -> str:
    """Return the command that submits the same once more."""
    shape = ",".join(f"{name}={value}" for name, value in in_order(candidate.operator, candidate.shape).items())
    config = ",".join(f"{name}={value}" for name, value in (candidate.config or {}).items())
    options = {"operator": candidate.operator, "shape": shape, "dtype": candidate.dtype, "config": config,
               "gpu": candidate.wanted_gpu or candidate.gpu}
    flags = " ".join(f"--{name} {shlex.quote(value)}" for name, value in options.items() if value)
    return f"manage.py candidates show {candidate.pk} --text | manage.py candidates submit - {flags}"


def problem_fields(candidate: Candidate) -> dict[str, Any]:
    """Return the query that fills a form with the candidate's operator, type, shape and GPU."""
    gpu = candidate.gpu or candidate.wanted_gpu
    shape = in_order(candidate.operator, candidate.shape)
    return {"operator": candidate.operator, "dtype": candidate.dtype, **shape, "gpu": gpu}


def typed_of(query: Mapping[str, str]) -> dict[str, str]:
    """Return what an address fills into the form: a problem's, or a candidate to go on from."""
    parent = _candidate(query.get("parent", ""))
    if parent is not None:
        shape = pairs_text(in_order(parent.operator, parent.shape))
        return {"operator": parent.operator, "dtype": parent.dtype, "shape": shape, "parent": str(parent.pk),
                "text": parent.text, "config": config_text(parent.config or {}), "gpu": parent.wanted_gpu, "note": ""}
    entry = find(query.get("operator", ""))
    if entry is None:
        return {"operator": query.get("operator", "")[:60]}
    sizes = {dim.name: query[dim.name] for dim in entry.dims if query.get(dim.name, "").isdecimal() and len(query[dim.name]) < 12}
    dtype = query.get("dtype", "")
    return {"operator": entry.name, "dtype": dtype if dtype in entry.dtypes else entry.dtypes[0],
            "shape": pairs_text(sizes or entry.presets[0]), "gpu": query.get("gpu", "")[:120]}


def _candidate(text: str) -> Candidate | None:
    return Candidate.objects.filter(pk=int(text)).first() if text.isdecimal() and len(text) < 19 else None


def submit(typed: Mapping[str, str], by: services.Submitter) -> Candidate:
    """Submit what the form says. Raises Refused."""
    parent = None
    if typed["parent"]:
        parent = _candidate(typed["parent"])
        if parent is None:
            raise Refused({"parent": "there is no such candidate"})
    shape = {name: _number("shape", name, value) for name, value in read_pairs("shape", typed["shape"]).items()}
    config = {name: read_value(value) for name, value in read_pairs("config", typed["config"]).items()}
    return services.candidate_create(by, operator=typed["operator"], text=typed["text"], shape=shape or None, dtype=typed["dtype"],
                                     config=config or None, note=typed["note"], parent=parent, gpu=typed["gpu"])


def read_pairs(field: str, text: str) -> dict[str, str]:
    """Return the pairs of "M=4096 N=4096". Raises Refused."""
    pairs: dict[str, str] = {}
    for part in text.replace(",", " ").split():
        match = _PAIR.match(part)
        if not match:
            raise Refused({field: f"{part[:60]}: expected NAME=VALUE"})
        pairs[match[1]] = match[2]
    return pairs


def _number(field: str, name: str, value: str) -> int:
    if not value.isdecimal() or not value.isascii() or len(value) > 12:
        raise Refused({field: f"{name}={value[:40]}: expected a whole number"})
    return int(value)


def read_value(text: str) -> Any:
    """Return a parameter's value as a person writes it: a number, True or False, else the word."""
    if text in ("True", "False", "true", "false"):
        return text.lower() == "true"
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text
