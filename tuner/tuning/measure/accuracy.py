"""Correctness of a configuration: poisoned output, fresh inputs, a higher-precision reference."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch

from tuner.tuning.kernels.problem import OnSeveralGpus, Problem
from tuner.tuning.trial import Config

# ‖out − ref‖ / ‖ref‖ that a right result stays under: rounding of the output is 2⁻⁹ (bf16) and 2⁻¹² (fp16) at most per
# element; seen on an H200: 1.7e-3 (bf16 matmul), 2e-4 to 4e-4 (fp16). fp32 dots run in tf32.
TOLERANCE = {"bf16": 8e-3, "fp16": 2e-3, "fp32": 2e-3}
ELEMENT_FACTOR = 8         # one element may be off by this many tolerances of (|ref| + rms(ref))


@dataclass(frozen=True)
class Verdict:
    """`relative_error` over all elements; `worst` element against (|ref| + rms(ref)); inf if not finite."""

    relative_error: float
    worst: float
    unwritten: int              # elements that are not finite after the launch: never written, or NaN computed
    tolerance: float

    @property
    def right(self) -> bool:
        return (self.unwritten == 0 and self.relative_error <= self.tolerance
                and self.worst <= self.tolerance * ELEMENT_FACTOR)

    @property
    def message(self) -> str:
        if self.unwritten:
            return f"{self.unwritten:,} elements are not finite: never written, or computed as NaN"
        return (f"relative error {self.relative_error:.2g} (at most {self.tolerance:g}), "
                f"worst element {self.worst:.2g} (at most {self.tolerance * ELEMENT_FACTOR:g})")


def compare_output(out: torch.Tensor, reference: torch.Tensor, tolerance: float) -> Verdict:
    """Return how far `out` is from a finite float32 reference of the same shape."""
    values = out.float()                  # of fp8, too, which has no isfinite
    unwritten = int((~torch.isfinite(values)).sum().item())
    if unwritten:
        return Verdict(math.inf, math.inf, unwritten, tolerance)
    difference = (values - reference).abs_()
    norm = torch.linalg.vector_norm(reference).item()
    rms = norm / math.sqrt(reference.numel()) or 1.0
    relative = torch.linalg.vector_norm(difference).item() / (norm or 1.0)
    worst = (difference / (reference.abs() + rms)).max().item()
    return Verdict(relative, worst, 0, tolerance)


def check_config(problem: Problem, config: Config, seed: int, tolerance: float) -> tuple[Any, Verdict]:
    """Launch once on fresh inputs into a poisoned output; return Triton's kernel and the verdict.

    The reference comes first: a kernel that overwrites its inputs must not decide what is right.
    """
    problem.refill(seed)
    reference = problem.reference()
    if isinstance(problem, OnSeveralGpus):
        problem.poison()
        kernel = problem.launch(config)
        return kernel, compare_output(problem.gathered(), reference, tolerance)
    problem.out.fill_(math.nan)
    kernel = problem.launch(config)
    return kernel, compare_output(problem.out, reference, tolerance)
