"""What each operator can be compared with beside its library's own call: one function a peer, a line in PEERS or HELION."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from importlib import metadata, util
from typing import Any

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

from tests.gpu.peers.pages import flex_pages, varlen_pages

Launch = Callable[[], Any]
Peer = Callable[[Any], Iterator[tuple[str, Callable[[], Launch]]]]        # Problem -> names, and what makes the launch of each
BACK_ENDS = {"SDPA flash": SDPBackend.FLASH_ATTENTION, "SDPA cuDNN": SDPBackend.CUDNN_ATTENTION,
             "SDPA efficient": SDPBackend.EFFICIENT_ATTENTION}


def compiled(problem: Any) -> Iterator[tuple[str, Callable[[], Launch]]]:
    """The library's own call under torch.compile; without CUDA graphs, as all others are launched."""
    def make() -> Launch:
        call: Launch = torch.compile(problem.library, mode="max-autotune-no-cudagraphs", fullgraph=True)
        return call

    yield "torch.compile", make


def back_ends(problem: Any) -> Iterator[tuple[str, Callable[[], Launch]]]:
    """Each back end of scaled_dot_product_attention alone."""
    for name, backend in BACK_ENDS.items():
        def make(backend: SDPBackend = backend) -> Launch:
            def call() -> torch.Tensor:
                with sdpa_kernel([backend]):
                    result: torch.Tensor = problem.library()
                    return result
            return call

        yield name, make


def flex(problem: Any) -> Iterator[tuple[str, Callable[[], Launch]]]:
    """FlexAttention with a causal block mask, compiled."""
    def make() -> Launch:
        from torch.nn.attention.flex_attention import create_block_mask, flex_attention

        attend, size = torch.compile(flex_attention, mode="max-autotune-no-cudagraphs"), problem.q.shape[2]
        mask = create_block_mask(lambda b, h, q, k: q >= k, None, None, size, size, device="cuda") if problem.causal else None
        return lambda: attend(problem.q, problem.k, problem.v, block_mask=mask, enable_gqa=problem.KV != problem.H)

    if problem.causal:              # without a mask it is one of SDPA's back ends in other words, and ten seconds of compiling
        yield "flex", make


@dataclass
class Budget:
    """What Helion's autotuner may take at one shape: a small part of its own default, so its number is no best of Helion's."""

    effort: str = "quick"          # Helion's word; its default is "full", without a limit of time
    seconds: int = 12              # after which it begins nothing new

    @property
    def label(self) -> str:
        return f"Helion ({self.effort}, {self.seconds} s of search)"


BUDGET = Budget()


@dataclass
class Searched:
    """A launch that was searched for; `about` says how long it was, and what was found."""

    call: Launch
    about: dict[str, Any] = field(default_factory=dict)

    def __call__(self) -> Any:
        return self.call()


def helion(operator: str) -> Peer:
    """The operator in Helion's language, its configuration searched for within BUDGET."""
    def peers(problem: Any) -> Iterator[tuple[str, Callable[[], Launch]]]:
        def make() -> Launch:
            if util.find_spec("helion") is None:
                raise RuntimeError("Helion is not installed here (tests/gpu/README.md has the wheels)")
            if getattr(problem, "fp8", False):
                raise RuntimeError("the Helion kernels are written for 16-bit types")
            from tests.gpu.peers import helion_kernels

            kernel = helion_kernels.kernel(operator, BUDGET.effort, BUDGET.seconds)
            given, began_s = helion_kernels.arguments(operator, problem), time.monotonic()
            kernel(*given)                                # searches
            took_s, config = round(time.monotonic() - began_s, 1), getattr(kernel.bind(given), "_config", None)
            return Searched(lambda: kernel(*given), {"effort": BUDGET.effort, "budget_s": BUDGET.seconds, "took_s": took_s,
                                                     "version": _version(), "config": dict(config or {})})

        yield BUDGET.label, make

    return peers


def _version() -> str:
    """Return Helion's version by its metadata; "" where only the package was unpacked."""
    try:
        return metadata.version("helion")
    except metadata.PackageNotFoundError:
        return ""


_LIBRARY: Mapping[str, tuple[Peer, ...]] = {
    "attention": (back_ends, flex), "gqa_attention": (back_ends,), "decode_attention": (back_ends,),
    "fp8_attention": (back_ends,), "paged_decode_attention": (flex_pages, varlen_pages, back_ends),
    **dict.fromkeys(("matmul", "matmul_bias_act", "grouped_matmul", "softmax", "layernorm", "rmsnorm", "cross_entropy", "embedding",
                     "rotary", "silu_mul", "top_k", "conv2d", "int4_matmul", "fp8_block_matmul"), (compiled,))}
HELION = ("matmul", "matmul_bias_act", "attention", "gqa_attention", "softmax", "layernorm", "rmsnorm", "cross_entropy",
          "embedding", "rotary", "silu_mul")             # what tests.gpu.peers.helion_kernels has
PEERS: Mapping[str, tuple[Peer, ...]] = {name: (*peers, helion(name)) if name in HELION else peers
                                         for name, peers in _LIBRARY.items()}
