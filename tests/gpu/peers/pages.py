"""What torch has for attention over a paged cache without gathering its pages: FlexAttention, varlen_attn with a table."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.nn.attention.flex_attention import BlockMask, flex_attention

Attend = Callable[..., torch.Tensor]


def over_pages(problem: Any, attend: Attend) -> Callable[[], torch.Tensor]:
    """Return a call of FlexAttention that reads the pools in place: a page is a block of its mask, the last one is masked."""
    pages, blocks, size = problem.table.shape[1], len(problem.k), problem.PAGE
    lengths, device = problem.lengths.long(), problem.q.device
    used = torch.arange(pages, device=device)[None, :] < (-(-lengths // size))[:, None]
    whole = (lengths // size).int()
    # block → which page of the sequence it is, or one behind its last
    order = torch.full((problem.B, blocks), pages, dtype=torch.int64, device=device)
    sequence, page = used.nonzero(as_tuple=True)
    order[sequence, problem.table[used].long()] = page
    everything = torch.zeros((problem.B, 1, 1, blocks), dtype=torch.int32, device=device)
    everything[:, 0, 0, :pages] = problem.table.clamp(min=0)
    last = torch.zeros_like(everything)
    last[:, 0, 0, 0] = problem.table.gather(1, (-(-lengths // size) - 1).clamp(min=0)[:, None])[:, 0].clamp(min=0)

    def is_there(b: torch.Tensor, h: torch.Tensor, q: torch.Tensor, kv: torch.Tensor) -> torch.Tensor:
        return order[b, kv // size] * size + kv % size < lengths[b]

    mask = BlockMask.from_kv_blocks((lengths % size > 0).int()[:, None, None], last, whole[:, None, None], everything,
                                    BLOCK_SIZE=(128, size), mask_mod=is_there, seq_lengths=(1, blocks * size))
    k, v = (pool.flatten(0, 1).transpose(0, 1)[None] for pool in (problem.k, problem.v))                # [1, KV, tokens, D]
    return lambda: attend(problem.q.unsqueeze(2), k, v, block_mask=mask, enable_gqa=problem.KV != problem.H).squeeze(2)


def flex_pages(problem: Any) -> Iterator[tuple[str, Callable[[], Callable[[], Any]]]]:
    """FlexAttention over the pages where they lie, compiled."""
    yield "flex, pages", lambda: over_pages(problem, torch.compile(flex_attention, mode="max-autotune-no-cudagraphs"))


def varlen_pages(problem: Any) -> Iterator[tuple[str, Callable[[], Callable[[], Any]]]]:
    """torch's FlashAttention with a block table, from torch 2.12 on, for the pages that it takes."""
    def make() -> Callable[[], Any]:
        from torch.nn.attention.varlen import varlen_attn

        starts = torch.arange(problem.B + 1, device=problem.q.device, dtype=torch.int32)
        return lambda: varlen_attn(problem.q, problem.k, problem.v, starts, None, 1, problem.N, enable_gqa=problem.KV != problem.H,
                                   seqused_k=problem.lengths, block_table=problem.table)

    yield "varlen, pages", make
