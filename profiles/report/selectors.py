"""Everything that is known of a profile on one page: for people to print, for scripts and assistants to read."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django.urls import reverse

from profiles.analysis.core.tunable import tuned_operator
from profiles.analysis.kernel import counters
from profiles.models import Finding, KernelStat, Profile
from profiles.profile import selectors as selectors_profile
from profiles.profile.finding_selectors import FindingLine, doubt_rows, finding_lines, integrity_mark
from profiles.topics import services
from profiles.topics.table import TOPICS

KERNELS, FINDINGS = 12, 12          # of each the first: the page is one page, the links lead to the rest
UNITS = "Times in ns, bytes in B, shares in percent (0-100)."
Address = Callable[[str], str]      # of a path: what stands before it


def summary(profile: Profile, address: Address = lambda path: path) -> dict[str, Any]:
    """Return all that is known of a profile as JSON.

    `answer` and the analyses' answers are sentences with names in backticks; unknown is null.
    """
    ready = profile.status == Profile.Status.READY
    documents = analyses(profile, address) if ready else []              # first: they add to the findings
    findings = finding_lines(profile) if ready else []
    mark, words = integrity_mark(profile)
    document: dict[str, Any] = {
        "profile": _facts(profile), "units": UNITS, "error": profile.error or None,
        "integrity": {"mark": mark, "said": words, "records_read": profile.integrity.get("records_read"),
                      "records_kept": profile.integrity.get("records_kept"), "truncated_at": profile.integrity.get("truncated_at"),
                      "plausibility": doubt_rows(profile)},
        "links": {"page": address(reverse("profile", args=[profile.pk])), "report": address(reverse("report", args=[profile.pk])),
                  "api": address(reverse("api-profile", args=[profile.pk]))},
    }
    if not ready:
        return document
    if profile.kind == Profile.Kind.TRACE:
        document["links"]["timeline"] = address(reverse("timeline", args=[profile.pk]))
    return document | {
        "answer": _with_backticks(selectors_profile.answer(profile, findings)), "gpus": _gpus(profile),
        "analyses": documents,
        "findings": [_finding(finding, alike, address) for finding, alike in _distinct(findings)[:FINDINGS]],
        "findings_in_all": len(findings),
        "kernels": [_kernel(kernel, address)
                    for kernel in selectors_profile.kernel_rows(profile).select_related("profile")[:KERNELS]],
        "kernels_in_all": profile.kernels.count(),
    }


def analyses(profile: Profile, address: Address = lambda path: path) -> list[dict[str, Any]]:
    """Return every topic's answer, with its tables by title.

    State "made", or "waiting" while a worker makes it.
    """
    if profile.kind != Profile.Kind.TRACE:
        return []
    answers = []
    for topic in TOPICS:
        try:
            document = services.document_of(profile, topic)
        except FileNotFoundError:
            return []
        api = address(reverse("api-topic", args=[profile.pk, topic.name]))
        answers.append({
            "name": topic.name, "title": topic.title, "question": topic.question, "state": "made" if document else "waiting",
            "applies": document["applies"] if document else None, "answer": document["answer"] if document else None,
            "page": address(reverse("topic", args=[profile.pk, topic.name])), "api": api,
            "tables": [{"title": table["title"], "rows": len(table["rows"]), "csv": f"{api}?table={index}&format=csv"}
                       for index, table in enumerate(document["tables"])] if document else []})
    return answers


def _facts(profile: Profile) -> dict[str, Any]:
    return {
        "id": profile.pk, "name": profile.name, "status": profile.status, "kind": profile.kind, "format": profile.format,
        "file": profile.file_name, "gpu": profile.gpu, "build": profile.build, "model": profile.model, "tags": profile.tags,
        "notes": profile.notes, "recorded": profile.recorded, "created": profile.created.isoformat(), "steps": profile.steps,
        "wall_ns": profile.wall_ns, "gpu_time_ns": profile.gpu_time_ns, "busy_pct": selectors_profile.busy_pct(profile),
        "launches": profile.launches,
    }


def _gpus(profile: Profile) -> list[dict[str, Any]]:
    """Where each GPU's wall time went: compute, exposed communication and copies, idle add up to it."""
    names = ("wall_ns", "busy_ns", "compute_ns", "communication_ns", "memory_ns", "idle_ns", "communication_overlapped_ns",
             "memory_overlapped_ns", "idle_causes")
    return [{"index": device["index"], "name": device["name"], "label": device.get("label") or f"GPU {device['index']}",
             **{name: device.get(name) for name in names}} for device in profile.summary.get("devices") or []]


def _distinct(findings: list[FindingLine]) -> list[tuple[Finding, int]]:
    """The first of what one rule finds on several GPUs or ranks, with how many more there are; each kernel's stay."""
    alike: dict[tuple[str, str, int | None], list[Finding]] = {}
    for line in findings:
        alike.setdefault((line.finding.source, line.finding.rule, line.finding.kernel_id), []).append(line.finding)
    return [(first, len(more)) for first, *more in alike.values()]


def _finding(finding: Finding, alike: int, address: Address) -> dict[str, Any]:
    return {
        "severity": finding.severity, "rule": finding.rule, "source": finding.source, "title": finding.title,
        "advice": finding.advice,
        "worth_ns": finding.worth_ns, "alike": alike,
        "numbers": {key: value for key, value in finding.numbers.items() if not isinstance(value, dict | list)},
        "kernel": finding.kernel.name if finding.kernel else None,
        "actions": _actions(finding.kernel, address) if finding.kernel else {}}


def _kernel(kernel: KernelStat, address: Address) -> dict[str, Any]:
    return {
        "name": kernel.name, "short_name": kernel.short_name, "share_pct": kernel.share_pct, "launches": kernel.launches,
        "total_ns": kernel.total_ns, "mean_ns": kernel.mean_ns, "p50_ns": kernel.p50_ns, "p95_ns": kernel.p95_ns,
        "bound": kernel.bound or None, "why": kernel.bound_reason or None, "occupancy_pct": kernel.occupancy_pct or None,
        "registers_per_thread": kernel.registers_per_thread, "counters": _counters(kernel), "actions": _actions(kernel, address)}


def _counters(kernel: KernelStat) -> dict[str, Any] | None:
    """What hardware counters say of all its launches; None where none were taken."""
    if kernel.profile.kind != Profile.Kind.COUNTERS:
        return None
    whole = counters.combine_launches([counters.from_json(row.facts) for row in kernel.counter_launches.filter(incomplete="")])
    if whole is None:
        return None
    return {"sm_pct": whole.sol.sm_pct, "memory_pct": whole.sol.memory_pct, "dram_pct": whole.sol.dram_pct,
            "occupancy_achieved_pct": whole.occupancy.achieved_pct, "roof_pct": whole.point.roof_pct,
            "flop_per_s": whole.point.flop_s, "dram_bytes_per_s": whole.point.dram_bytes_s}


def _actions(kernel: KernelStat, address: Address) -> dict[str, str]:
    """Addresses of the kernel's page and of forms that open filled in."""
    where = [kernel.profile_id, kernel.pk]
    addresses = {"page": address(reverse("kernel", args=where)), "capture": address(reverse("kernel-capture", args=where))}
    return addresses | ({"tune": address(reverse("kernel-tune", args=where))} if tuned_operator(kernel.name) else {})


def _with_backticks(pieces: list[tuple[str, bool]]) -> str:
    return "".join(f"`{text}`" if code else text for text, code in pieces)
