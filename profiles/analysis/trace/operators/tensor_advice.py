"""Findings about tensor cores: time of products that could use them and do not, one finding per reason."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import numpy as np

from profiles.analysis.core.result import Finding
from profiles.analysis.core.sentences import pct_text, plural, time_text
from profiles.analysis.trace.operators.grouping import ROWS, Groups
from profiles.analysis.trace.operators.missed import missed_product
from profiles.analysis.trace.operators.owned import OwnedWork
from profiles.analysis.trace.operators.tensor_cores import REASONS
from profiles.analysis.trace.operators.tree import readable
from profiles.ingest.trace import Category

LEAST_PCT, HIGH_PCT = 1.0, 10.0         # of all GPU time: below nothing is said, from here on it is high
COPY_PCT = 5.0                          # of all GPU time, spent in casts and layout copies
_COPIES = ("aten::copy_", "aten::contiguous", "aten::clone", "aten::to", "aten::_to_copy")


def advice(owned: OwnedWork, groups: Groups | None) -> list[Finding]:
    """Return the findings about tensor cores.

    `groups` are `missed.missed_kernels`'.
    """
    return [*_tensor_cores(owned, groups), *_copies(owned)]


def _tensor_cores(owned: OwnedWork, groups: Groups | None) -> list[Finding]:
    if groups is None:
        return []
    longest = groups.longest()
    cases: dict[str, list[tuple[int, int, dict[str, Any]]]] = defaultdict(list)
    for at in groups.order[:ROWS].tolist():
        total = int(groups.ns[at])
        case = missed_product(owned, int(longest[at]), total, int(groups.launches[at]))
        cases[case["code"]].append((total, int(longest[at]), case))
    findings = [_reason_finding(owned, code, each) for code, each in cases.items()]
    return sorted((each for each in findings if each), key=lambda each: -each.numbers["gpu_ns"])


def _reason_finding(owned: OwnedWork, code: str, cases: list[tuple[int, int, dict[str, Any]]]) -> Finding | None:
    total_ns = sum(total for total, _, _ in cases)
    share = 100 * total_ns / max(owned.total_ns, 1)
    words, helps = REASONS[code]
    if share < LEAST_PCT or not helps:
        return None
    worth = [case["worth_ns"] for _, _, case in cases if case["worth_ns"] is not None]
    _, at, first = cases[0]
    kernel = owned.frame.names[int(owned.kernel[at])]
    operator = readable(owned.frame.text(int(owned.owner[at])))
    on = "are not aligned on tensor cores" if code == "alignment" else "do not run on tensor cores"
    size = f" ({first['product']})" if first["product"] else ""
    return Finding(
        f"tensor_cores_{code}", "high" if share >= HIGH_PCT else "medium",
        f"Matrix products of {time_text(total_ns)} ({pct_text(share)} of the GPU time) {on}: {words}",
        f"Most of it is `{operator}`{size}: {first['why']}. {_upper(first['fix'])}.",
        {"gpu_ns": total_ns, "share_pct": share, "operators": len(cases)}, sum(worth) if worth else None, kernel)


def _upper(sentence: str) -> str:
    return sentence[:1].upper() + sentence[1:]


def _copies(owned: OwnedWork) -> list[Finding]:
    """Casts and layout changes: GPU time that computes nothing."""
    names = owned.frame.names
    codes = [code for code in np.unique(owned.owner_name[owned.owner_name >= 0]).tolist() if readable(names[code]) in _COPIES]
    rows = np.isin(owned.owner_name, codes) & (owned.frame["category"][owned.rows] == Category.COMPUTE)     # no transfers
    total_ns = int(owned.ns[rows].sum())
    share = 100 * total_ns / max(owned.total_ns, 1)
    if share < COPY_PCT:
        return []
    calls = int(np.unique(owned.owner[rows]).size)
    return [Finding("casts_and_copies", "medium" if share < 2 * HIGH_PCT else "high",
                  f"{time_text(total_ns)} ({pct_text(share)} of the GPU time) is `aten::copy_` and its like: casts between types "
                  f"and changes of layout, {plural(calls, 'call')}",
                  "Keep tensors in one type and layout from step to step (weights in BF16, channels_last throughout), or let "
                  "torch.compile fuse the cast into the kernel before it.",
                  {"gpu_ns": total_ns, "share_pct": share, "calls": calls}, float(total_ns))]
