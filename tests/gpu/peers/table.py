"""What each operator can be compared with beside its library's own call: one function a peer, a line in PEERS."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

Launch = Callable[[], Any]
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


PEERS: Mapping[str, tuple[Callable[[Any], Iterator[tuple[str, Callable[[], Launch]]]], ...]] = {
    "matmul": (compiled,), "matmul_bias_act": (compiled,), "grouped_matmul": (compiled,),
    "attention": (back_ends, flex), "gqa_attention": (back_ends,), "decode_attention": (back_ends,),
    **dict.fromkeys(("softmax", "layernorm", "rmsnorm", "cross_entropy", "embedding", "rotary", "top_k", "conv2d", "int4_matmul",
                     "fp8_block_matmul"), (compiled,))}
