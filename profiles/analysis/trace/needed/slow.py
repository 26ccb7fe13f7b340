"""Kernels that the work needs and that are slower than their ceiling: what each loses, and what could be faster in its place."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any
from urllib.parse import urlencode

import numpy as np

from profiles.analysis.core.shapes import tune_fields
from profiles.analysis.trace.needed.facts import Facts, Item
from profiles.analysis.trace.needed.needs import Needs
from profiles.ingest.arrays import Bools, stable_order, sums_by
from profiles.ingest.naming.names import short_name
from profiles.ingest.trace import SummaryTable, summary_columns

MOST = 50
KERNEL_CHARS, LOOKED_AT = 1_500, 400

# What is tried first in place of a kernel: the GPUs it is for, its role, kernels that are it already, the change. The first row
# that fits. Sources: PyTorch's `torch.compile` (modes), `torch.nn.attention`, `torch.backends.cudnn`, TunableOp, `torch.optim`.
_ANY, _AMD, _NVIDIA = r"", r"\bAMD\b|\bMI\d{2,3}", r"^(?!.*(?:\bAMD\b|\bMI\d{2,3}))"
_HOPPER = r"\b(?:H[128]00|H20|GH200)\b"
_PRODUCT, _ATTENTION = ("product", "product_helper"), ("attention",)
_BESIDE = ("norm", "softmax", "softmax_backward", "elementwise", "reduction", "copy", "cat", "fill")
_ROWS = (
    (_NVIDIA, _PRODUCT, r"triton", "`torch.compile(mode=\"max-autotune\")`: CUTLASS and Triton beside cuBLAS"),
    (_AMD, _PRODUCT, r"triton", "`PYTORCH_TUNABLEOP_ENABLED=1`: all of rocBLAS' and hipBLASLt's kernels are timed"),
    (_NVIDIA, _ATTENTION, r"cudnn|sm90", "`sdpa_kernel(SDPBackend.CUDNN_ATTENTION)`; on Hopper FlashAttention-3"),
    (_HOPPER, _ATTENTION, r"^(?!.*cudnn).*sm90", "FlashAttention-3 (`flash_attn_interface`)"),
    (_NVIDIA, ("convolution",), r"triton", "`torch.backends.cudnn.benchmark = True`, channels_last"),
    (_ANY, ("optimizer",), r"Fused(?:Adam|Sgd|Optimizer)|fused_(?:adam|sgd)", "`fused=True`"),
    (_ANY, _BESIDE, r"triton|fused_", "`torch.compile(model)`: one generated kernel for it and its neighbours"))
CHOICES = tuple((re.compile(gpu), roles, re.compile(is_it, re.IGNORECASE), change) for gpu, roles, is_it, change in _ROWS)


@dataclass(frozen=True)
class SlowKernel:
    """All launches of one kernel with one operator's shapes that no kind claims. Times in ns, within the steps."""

    kernel: str                         # full name
    operator: str
    sizes: str                          # of the problem: "2048 × 12288 × 4096"
    launches: int
    takes_ns: int
    least_ns: int
    choice: str                         # what else is tried, in words with code; "" unknown
    tune: Mapping[str, Any] = field(default_factory=dict)   # fields of a tune form; {} where the tuner has no such problem
    longest: int = 0                    # slice id

    @property
    def lost_ns(self) -> int:
        return self.takes_ns - self.least_ns

    def as_json(self) -> dict[str, Any]:
        return {**asdict(self), "tune": dict(self.tune), "short_name": short_name(self.kernel), "lost_ns": self.lost_ns,
                "of_ceiling_pct": 100 * self.least_ns / max(1, self.takes_ns)}


def slow_kernels(needs: Needs) -> list[SlowKernel]:
    """Return the kernels of known least time that take longer, most lost first, MOST of them."""
    facts = needs.facts
    if facts is None:
        return []
    place = np.full(facts.frame.rows, -1, np.int64)
    place[facts.every.rows] = np.arange(facts.every.rows.size)
    positions = place[needs.rows]
    inside = (positions >= 0) & (needs.took_ns > 0)
    takes, least = np.zeros(facts.every.rows.size, np.int64), np.zeros(facts.every.rows.size, np.int64)
    takes[positions[inside]], least[positions[inside]] = needs.took_ns[inside], needs.least_ns[inside]
    free = (takes > 0) & ~facts.taken & ~np.isnan(facts.floor_ns)
    number = np.array(facts.item)[free]
    sums = [sums_by(number, amounts[free], len(facts.items)) for amounts in (takes, least)]
    count = np.bincount(number, minlength=len(facts.items))
    order = stable_order(sums[1] - sums[0])[:MOST]
    return [_slow(facts, index, int(count[index]), int(sums[0][index]), int(sums[1][index]), free)
            for index in order.tolist() if sums[0][index] > sums[1][index]]


def _slow(facts: Facts, number: int, launches: int, takes_ns: int, least_ns: int, free: Bools) -> SlowKernel:
    item = facts.items[number]
    longest = max((position for position in facts.positions_of[number] if free[position]), key=lambda each: int(facts.ns[each]))
    row = int(facts.every.rows[longest])
    return SlowKernel(item.kernel[:KERNEL_CHARS], item.operator, item.work.text if item.work else "", launches, takes_ns, least_ns,
                      choice_of(item, facts.models[int(facts.model[longest])]), tune_fields(facts.frame, row, item.kernel),
                      int(facts.frame["id"][row]))


def choice_of(item: Item, gpu: str) -> str:
    """Return what is tried in place of a launch on a model of GPU, "" unknown."""
    role = "optimizer" if item.work is not None and item.work.kind == "optimizer" else item.role
    return next((change for fits, roles, is_it, change in CHOICES
                 if role in roles and fits.search(gpu) and not is_it.search(item.kernel[:LOOKED_AT])), "")


def slow_table(slow: list[SlowKernel]) -> SummaryTable:
    return SummaryTable("Needed, and slower than the ceiling",
        summary_columns("kernel: kernel | operator: text | sizes: text | launches: count | takes: ns | least: ns | "
                        "of the ceiling: pct | lost: ns | tune: tune | instead: text | longest: slice"),
        [[kernel.kernel, kernel.operator or None, kernel.sizes or None, kernel.launches, kernel.takes_ns, kernel.least_ns,
          100 * kernel.least_ns / max(1, kernel.takes_ns), kernel.lost_ns, urlencode(kernel.tune) or None,
          kernel.choice.replace("`", "") or None, kernel.longest]
         for kernel in slow],
        "Launches that no kind above claims, by what is lost: what tuning or a better library could win.")
