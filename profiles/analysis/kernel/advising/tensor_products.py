"""Tensor-core products far below their ceiling: which of the usual reasons the counters support, refute, or cannot tell.

Below LIMITS["ceiling_pct"] of the ceiling of its own precision (dense rate at the clock of the launch, `kernel.roofline`) a
product is looked at from six sides. The sides are those of NVIDIA's "Matrix Multiplication Background User's Guide" (tile and
wave quantisation, dimensions that are multiples of 16 bytes) and of CUTLASS's "Efficient GEMM in CUDA" (software pipelining,
epilogue, split-K and stream-K). The thresholds are rules of thumb of ours, except `busy` ones that name another source.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

from profiles.analysis.core.sentences import pct_text
from profiles.analysis.kernel.facts import LaunchFacts
from profiles.analysis.kernel.occupancy import waves_text

LIMITS: dict[str, float] = {
    "ceiling_pct": 60.0,         # of the ceiling of its precision; below it a product is looked at
    "reach_pct": 85.0,           # what the best kernels reach (bounds.THRESHOLDS["near_pct"]): the far end of the estimate
    "tail_loss_pct": 15.0,       # block slots that the last wave leaves empty
    "few_waves": 1.0,            # fewer: SMs stay without a block
    "stall_pct": 20.0,           # of the cycles between two issues, for data or at barriers: the pipeline is too shallow
    "deep_k": 4.0,               # K of the product, in multiples of the longer side of its result: split-K pays
}
_TILE = re.compile(r"(?<![0-9])(\d{2,3})x(\d{2,3})(?:x(\d{2,3}))?(?![0-9])")
_ALIGN = re.compile(r"align(\d{1,2})")
_STAGES = re.compile(r"(?:stages?_?(\d{1,2})|_(\d)stage)", re.IGNORECASE)
NAME_CHARS = 2_000               # of a kernel's name that are looked at


@dataclass(frozen=True)
class Side:
    """One possible reason. `supported`: True, False, or None where these counters cannot tell; `text` says why."""

    name: str
    supported: bool | None
    text: str


def reached_pct(facts: LaunchFacts) -> float | None:
    """Return the share of the ceiling of its precision, 0-100; None where it is no tensor-core product that arithmetic limits."""
    point = facts.point
    if not (point.precision or "").endswith("_tensor") or point.side == "memory" or not point.flop_s or not point.compute_roof:
        return None
    return 100.0 * point.flop_s / point.compute_roof


def is_below_ceiling(facts: LaunchFacts) -> bool:
    reached = reached_pct(facts)
    return reached is not None and reached < LIMITS["ceiling_pct"]


def gain_pct(facts: LaunchFacts) -> tuple[float, float] | None:
    """Return the share of its time that reaching 60 % and 85 % of the ceiling would save: an estimate, least and most."""
    reached = reached_pct(facts)
    if reached is None:
        return None
    least, most = (100.0 * max(0.0, 1.0 - reached / LIMITS[name]) for name in ("ceiling_pct", "reach_pct"))
    return least, most


def sides(facts: LaunchFacts) -> list[Side]:
    """Return every side in a fixed order."""
    name = facts.kernel[:NAME_CHARS]
    tile = tile_of(name)
    return [_waves(facts), _tile(facts, tile), _pipeline(facts, name), _alignment(name), _split_k(facts, tile, name), Side(
        "epilogue", None, "only the samples of its instructions tell how much of its time passes behind the products (section "
        "SourceCounters): where they are 25 % and more, it is an advice of its own")]


def tile_of(name: str) -> tuple[int, int] | None:
    """Return rows and columns of the result that a block computes, from names such as "…_128x256x64_…", else None."""
    sizes = [(int(match[1]), int(match[2])) for match in _TILE.finditer(name)]
    fitting = [(m, n) for m, n in sizes if 16 <= m <= 512 and 16 <= n <= 512]
    return max(fitting, key=lambda size: size[0] * size[1], default=None)


def _blocks(facts: LaunchFacts) -> int | None:
    return math.prod(facts.grid) if facts.grid else None


def _waves(facts: LaunchFacts) -> Side:
    occupancy = facts.occupancy
    if occupancy.waves is None:
        return Side("waves", None, "its grid or the GPU's block slots are not in the report")
    text = f"{waves_text(occupancy.waves)} waves"
    if occupancy.waves < LIMITS["few_waves"]:
        return Side("waves", True, f"{text}: {pct_text(100 * (1 - occupancy.waves))} of the GPU's block slots get no block")
    loss = occupancy.tail_loss_pct
    if loss is None:
        return Side("waves", None, f"{text}; how full the last one is cannot be computed")
    return Side("waves", loss >= LIMITS["tail_loss_pct"], f"{text}: the last one leaves {pct_text(loss)} of the block slots "
                                                          "empty")


def _tile(facts: LaunchFacts, tile: tuple[int, int] | None) -> Side:
    blocks = _blocks(facts)
    if tile is None or blocks is None:
        return Side("tile", None, "neither its name nor the report says the tile and the shape: whether M and N fill their "
                                  "tiles is unknown")
    return Side("tile", None, f"a tile of {tile[0]} × {tile[1]} (from its name) on {blocks:,} blocks: the shape is not in the "
                              "report, so what of the last tiles is padding is unknown")


def _pipeline(facts: LaunchFacts, name: str) -> Side:
    if not facts.stalls:
        return Side("pipeline depth", None, "no warp states in the report (section WarpStateStats)")
    share = {stall.reason: stall.share_pct for stall in facts.stalls}
    data, barrier = share.get("long_scoreboard", 0.0), share.get("barrier", 0.0)
    stages = _STAGES.search(name)
    words = f", with {stages[1] or stages[2]} stages by its name" if stages else ""
    return Side("pipeline depth", max(data, barrier) >= LIMITS["stall_pct"],
                f"warps wait {pct_text(data)} of their time for global memory and {pct_text(barrier)} at barriers{words}")


def _alignment(name: str) -> Side:
    alignments = [int(match[1]) for match in _ALIGN.finditer(name)]
    if not alignments:
        return Side("alignment", None, "its name does not say how its leading dimensions are aligned")
    elements = min(alignments)
    return Side("alignment", elements < 8, f"it reads {elements} element{'s' if elements > 1 else ''} at a time "
                                           f"(align{elements}): "
                + ("its leading dimensions are no multiples of 8" if elements < 8 else "its leading dimensions are aligned"))


def _split_k(facts: LaunchFacts, tile: tuple[int, int] | None, name: str) -> Side:
    blocks, flop, waves = _blocks(facts), facts.point.flop, facts.occupancy.waves
    if "splitk" in name.lower() or "split_k" in name.lower():
        return Side("split-K", False, "it splits K already")
    if tile is None or not blocks or not flop or waves is None:
        return Side("split-K", None, "K cannot be told without the tile and the grid")
    if waves >= LIMITS["few_waves"]:
        return Side("split-K", False, "its grid fills the GPU without splitting K")
    k = flop / (2.0 * blocks * tile[0] * tile[1])              # 2·M·N·K operations, M·N = blocks × tile
    side = math.sqrt(blocks * tile[0] * tile[1])
    return Side("split-K", k >= LIMITS["deep_k"] * side, f"K is about {k:,.0f} beside a result of {blocks:,} tiles of "
                                                         f"{tile[0]} × {tile[1]} (from its operations and its name)")


# cuDNN's choice for a convolution, from the kernel's name: the algorithm, and whether it runs on tensor cores.
#
# Names are those of cuDNN 7 to 9 (algorithms: cuDNN Developer Guide, `cudnnConvolutionFwdAlgo_t`: implicit GEMM,
# precomputed implicit GEMM, explicit GEMM, direct, FFT, Winograd). A name proves neither: where the report counted tensor
# instructions, the count decides.

ALGORITHMS: tuple[tuple[str, tuple[str, ...]], ...] = (          # the first whose word is in the name
    ("Winograd", ("winograd",)),
    ("FFT", ("fft2d", "fft1d", "fft3d", "cnn::fft", "fft_tiling")),
    ("explicit GEMM", ("explicit_convolve", "im2col")),
    ("implicit GEMM", ("implicit_convolve", "implicit_gemm", "implicitgemm", "precomputed_convolve", "scudnn", "cudnn_gemm")),
    ("direct", ("conv2d_grouped_direct", "conv_depthwise", "depthwise", "dgrad2d_grouped_direct", "wgrad2d_grouped_direct",
                "direct_conv", "convolve_direct", "dgrad_engine", "wgrad_alg0_engine", "wgrad_alg1_engine")),
    ("implicit GEMM", ("fprop", "dgrad", "wgrad")),
)
_TENSOR = ("tensorop", "tensor_op", "1688", "16816", "884", "8816", "hmma", "gmma", "tf32f32", "xmma_fprop_implicit_gemm_bf16",
           "xmma_fprop_implicit_gemm_f16", "xmma_dgrad_implicit_gemm_f16", "xmma_wgrad_implicit_gemm_f16", "tst_", "nvjet")
_LEGACY = ("scudnn", "convolve_sgemm", "simt", "ffma", "f32f32_f32f32", "dgrad_engine", "wgrad_alg", "fft2d", "winograd",
           "grouped_direct", "depthwise")


@dataclass(frozen=True)
class Convolution:
    """`on_tensor_cores` is None where the name does not tell."""

    algorithm: str
    on_tensor_cores: bool | None


def convolution_of(name: str) -> Convolution | None:
    """Return what a kernel's name says of a convolution, None where it is none."""
    lower = name[:NAME_CHARS].lower()
    algorithm = next((algorithm for algorithm, words in ALGORITHMS if any(word in lower for word in words)), None)
    if algorithm is None:                                       # cuFFT's own kernels ("regular_fft", "vector_fft") are none
        return None
    tensor = any(word in lower for word in _TENSOR)
    return Convolution(algorithm, True if tensor else False if any(word in lower for word in _LEGACY) else None)
