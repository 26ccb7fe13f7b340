"""What cuDNN chose for each convolution of a trace: the algorithm by the kernel's name, and how far it is from its least time.

cuDNN chooses by heuristics; `torch.backends.cudnn.benchmark` lets it measure the algorithms for each shape once (PyTorch,
"Performance Tuning Guide", "Enable cuDNN auto-tuner"), and channels_last lets it use its tensor-core kernels without layout changes
("Channels Last Memory Format in PyTorch").
"""

from __future__ import annotations

import numpy as np

from profiles.analysis.core.intervals import gpus_of
from profiles.analysis.core.result import Finding
from profiles.analysis.core.sentences import pct_text, share_pct, time_text
from profiles.analysis.kernel.advising.tensor_products import Convolution, convolution_of
from profiles.analysis.trace.operators.grouping import (
    ROWS,
    Groups,
    OwnedWork,
    kernel_of,
    name_of,
    rest_rows,
    slice_of,
)
from profiles.analysis.trace.operators.tensor_cores import least_ns
from profiles.ingest.trace import Category, CellRows, SummaryTable, summary_columns

SLOW_PCT, SHARE_PCT = 30.0, 5.0         # of the least time; of the GPU time: a finding (rules of thumb)
_ON = {True: "yes", False: "no", None: "name does not say"}


def convolution_groups(owned: OwnedWork) -> Groups | None:
    """Return the kernels of convolutions by operator, shapes and name; None where there are none."""
    compute = owned.frame["category"][owned.rows] == Category.COMPUTE
    codes = np.unique(owned.kernel[compute])
    fits = [code for code in codes.tolist() if code >= 0 and convolution_of(owned.frame.names[code])]
    named = np.unique(owned.owner_name[owned.owner_name >= 0]).tolist()
    operators = [code for code in named if "conv" in owned.frame.names[code].lower()]
    rows = np.flatnonzero(compute & np.isin(owned.kernel, fits) & (np.isin(owned.owner_name, operators) | (owned.owner < 0)))
    return Groups(owned, rows, owned.owner_name, owned.owner_detail, owned.kernel) if rows.size else None


def reached_pct(owned: OwnedWork, index: int, total_ns: int, launches: int) -> float | None:
    """Return the least time of a convolution on tensor cores as a share of what it took; None where sizes or GPU are unknown."""
    problem = owned.problem(index)
    least = least_ns(problem, owned.device(index)[1]) if problem else None
    return min(100.0, 100.0 * launches * least / total_ns) if least and total_ns else None


def convolution_table(owned: OwnedWork, groups: Groups | None) -> SummaryTable | None:
    """Return one row per kernel, operator and shapes, most time first."""
    if groups is None:
        return None
    longest = groups.longest()
    columns = summary_columns("Kernel: kernel | Algorithm: text | On tensor cores: text | Operator: text | Product: text | "
                              "Launches: count | GPU time: ns | Share: pct | Of the least time: pct | Longest: slice")
    rows: CellRows = []
    for group in groups.order[:ROWS].tolist():
        total, launches, (name, _, kernel) = int(groups.ns[group]), int(groups.launches[group]), groups.keys[group].tolist()
        convolution, problem = _convolution(owned, kernel), owned.problem(int(longest[group]))
        rows.append([kernel_of(owned, kernel), convolution.algorithm, _ON[convolution.on_tensor_cores], name_of(owned, name),
                     (problem.text or None) if problem else None, launches, total, share_pct(total, owned.total_ns),
                     reached_pct(owned, int(longest[group]), total, launches), slice_of(owned, int(longest[group]))])
    rows += rest_rows(groups, columns, 5, 6, owned.total_ns)
    return SummaryTable("Convolutions by algorithm", columns, rows,
                        "The algorithm is told from the kernel's name (cuDNN 7 to 9). Of the least time: the product at the dense "
                        "peak of the tensor cores or the DRAM's bandwidth, whichever is longer, over the time taken; unknown "
                        "without shapes.")


def _convolution(owned: OwnedWork, kernel: int) -> Convolution:
    return convolution_of(owned.frame.names[kernel]) or Convolution("", None)


def convolution_findings(owned: OwnedWork, groups: Groups | None) -> list[Finding]:
    """Return a finding where slow convolutions take a share of the GPU's time: on CUDA cores, or far from their least time."""
    if groups is None:
        return []
    longest, slow = groups.longest(), []
    for group in groups.order[:ROWS].tolist():
        total = int(groups.ns[group])
        reached = reached_pct(owned, int(longest[group]), total, int(groups.launches[group]))
        convolution = _convolution(owned, int(groups.keys[group][2]))
        if convolution.on_tensor_cores is False or (reached is not None and reached < SLOW_PCT):
            slow.append((total, convolution, reached, int(groups.keys[group][2])))
    total_ns = sum(total for total, *_ in slow)
    share_pct = 100 * total_ns / max(1, owned.total_ns)
    if not slow or share_pct < SHARE_PCT:
        return []
    by_algorithm: dict[str, int] = {}
    for total, convolution, _, _ in slow:
        by_algorithm[convolution.algorithm] = by_algorithm.get(convolution.algorithm, 0) + total
    most = ", ".join(f"{name} {pct_text(100 * ns / total_ns)}" for name, ns in
                     sorted(by_algorithm.items(), key=lambda pair: -pair[1])[:3])
    measures = [(total, reached) for total, _, reached, _ in slow if reached is not None]
    won_ns = sum(total * (1 - reached / 100) for total, reached in measures) / gpus_of(owned.frame) if measures else None
    return [Finding(
        "convolution_algorithm", "medium", f"Slow convolutions take {time_text(total_ns)} ({pct_text(share_pct)} of the GPU time): "
        f"cuDNN runs them as {most}",
        "Sizes that stay the same: `torch.backends.cudnn.benchmark = True` lets cuDNN measure its algorithms. For its tensor-core "
        "kernels: FP16 or BF16 (autocast) or TF32, channels_last, and channels in multiples of 8.",
        {"gpu_ns": total_ns, "share_pct": share_pct, "kernels": len(slow)}, won_ns, owned.frame.names[slow[0][3]])]
