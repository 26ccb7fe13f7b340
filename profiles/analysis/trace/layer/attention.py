"""Attention in the forms that PyTorch, flash-attn and serving engines call it.

FLOP: two products of 2·queries·keys·head size for each query head; a causal mask leaves the pairs of keys not behind their
query, half of them where both are equally many; the backward pass is 2.5 times the forward, whose scores it computes again
(Dao, FlashAttention-2, arXiv 2307.08691, section 4.1). torch.utils.flop_counter counts the same and leaves the mask aside.
Bytes: Q, K, V read and O written once; K and V of the KV heads alone (grouped-query attention).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from profiles.analysis.trace.layer.arguments import Call, Tensor
from profiles.analysis.trace.layer.work import Work, sum_bytes

BACKWARD_FACTOR = (5, 2)
SEQUENCES = 1 << 24


@dataclass(frozen=True)
class Form:
    """Where things stand among a call's arguments. `causal` -1: not among them."""

    causal: int
    heads_second: bool = True       # [batch, heads, tokens, size], else [batch, tokens, heads, size]
    query: int = 0
    backward: bool = False
    masks: bool = False             # `causal` holds a number: 0 is no mask (efficient attention)
    lengths: int = -1               # cumulative lengths of packed sequences [tokens, heads, size]


FORMS: dict[str, Form] = {          # native_functions.yaml of pytorch/pytorch; flash_attn_interface.py of Dao-AILab/flash-attention
    "scaled_dot_product_attention": Form(5),
    "_scaled_dot_product_attention_math": Form(5),
    "_scaled_dot_product_flash_attention": Form(4),
    "_scaled_dot_product_flash_attention_for_cpu": Form(4),
    "_scaled_dot_product_efficient_attention": Form(6),
    "_scaled_dot_product_cudnn_attention": Form(6),
    "_scaled_dot_product_fused_attention_overrideable": Form(5),
    "_cudnn_attention_forward": Form(10),
    "_flash_attention_forward": Form(8, heads_second=False, lengths=3),
    "_efficient_attention_forward": Form(9, heads_second=False, masks=True, lengths=4),
    "_scaled_dot_product_flash_attention_backward": Form(11, query=1, backward=True),
    "_scaled_dot_product_efficient_attention_backward": Form(11, query=1, backward=True),
    "_scaled_dot_product_cudnn_attention_backward": Form(14, query=1, backward=True),
    "_scaled_dot_product_fused_attention_overrideable_backward": Form(13, query=1, backward=True),
    "_cudnn_attention_backward": Form(14, query=1, backward=True),
    "_flash_attention_backward": Form(11, heads_second=False, query=1, backward=True, lengths=6),
    "_efficient_attention_backward": Form(14, heads_second=False, query=1, backward=True, masks=True, lengths=6),
    "_flash_attn_forward": Form(5, heads_second=False),
    "_flash_attn_varlen_forward": Form(9, heads_second=False, lengths=3),
    "_flash_attn_backward": Form(11, heads_second=False, query=1, backward=True),
    "_flash_attn_varlen_backward": Form(15, heads_second=False, query=1, backward=True, lengths=9),
}


def attention(call: Call) -> Work | None:
    """Return the work of one call of FORMS; None where the sizes of Q, K and V do not fit together."""
    form = FORMS[call.op]
    query, key, value = (call.tensor(form.query + at) for at in range(3))
    if query is None or key is None or value is None or not len(query.shape) == len(key.shape) == len(value.shape):
        return None
    causal = call.whole(form.causal) not in (0, None) if form.masks else call.flag(form.causal)
    if form.masks and not call.text(form.causal):
        causal = None
    if len(query.shape) == 3:
        return _packed(call, form, query, key, value, causal)
    if len(query.shape) != 4:
        return None
    heads_at, tokens_at = (1, 2) if form.heads_second else (2, 1)
    batch, heads, queries, size = query.shape[0], query.shape[heads_at], query.shape[tokens_at], query.shape[3]
    kv_heads, keys, size_v = key.shape[heads_at], key.shape[tokens_at], value.shape[3]
    if key.shape[3] != size or key.shape[0] != batch or not kv_heads or heads % kv_heads or value.shape[heads_at] != kv_heads:
        return None
    note = "" if causal is not None else "whether a causal mask halves it is not recorded: counted without"
    pairs = batch * heads * _pairs(queries, keys, bool(causal))
    work = _work(form, query, key, value, pairs, size, size_v, (batch, heads, kv_heads, queries, keys, size), note)
    text = f"{batch} × {_heads(heads, kv_heads)} × {queries} × {size}" if queries == keys else (
        f"{batch} × {_heads(heads, kv_heads)} × {queries} to {keys} × {size}")
    return replace(work, text=("backward, " if form.backward else "") + text + (", causal" if causal else ""))


def _packed(call: Call, form: Form, query: Tensor, key: Tensor, value: Tensor, causal: bool | None) -> Work | None:
    """[tokens, heads, size] of sequences one behind the other, whose lengths are not recorded: of all ways to share the tokens
    out, equal lengths have the fewest pairs (Σ n² ≥ (Σ n)² / sequences)."""
    lengths = call.tensor(form.lengths) if form.lengths >= 0 else None
    (tokens, heads, size), (keys, kv_heads, _) = query.shape, key.shape
    if lengths is None or len(lengths.shape) != 1 or not 2 <= lengths.shape[0] <= SEQUENCES or not kv_heads or heads % kv_heads:
        return None
    sequences = lengths.shape[0] - 1
    pairs = heads * _pairs(tokens, keys, bool(causal)) // sequences
    note = f"{sequences} sequences of equal length: the fewest operations these tokens can need" if sequences > 1 else ""
    work = _work(form, query, key, value, pairs, size, value.shape[2], (sequences, heads, kv_heads, tokens, keys, size), note)
    text = f"{tokens} tokens of {sequences} × {_heads(heads, kv_heads)} × {size}"
    return replace(work, text=("backward, " if form.backward else "") + text + (", causal" if causal else ""))


def _work(form: Form, query: Tensor, key: Tensor, value: Tensor, pairs: int, size: int, size_v: int, sizes: tuple[int, ...],
          note: str) -> Work:
    flop = 2 * pairs * (size + size_v)
    out = None if query.size is None else query.size * query.elements // max(size, 1) * size_v
    moved = sum_bytes((query, key, value, out))
    if form.backward:       # Q, K, V, O and its gradient read, three gradients written
        flop = flop * BACKWARD_FACTOR[0] // BACKWARD_FACTOR[1]
        moved = sum_bytes((moved, query, key, value, out))
    return Work("attention", flop, moved, query.dtype, sizes=sizes, note=note)


def _pairs(queries: int, keys: int, causal: bool) -> int:
    """Pairs of one head: with a mask half of a square, and all keys before it (after it, of more queries, all queries)."""
    if not causal:
        return queries * keys
    square = min(queries, keys)
    return square * square // 2 + abs(keys - queries) * square


def _heads(heads: int, kv_heads: int) -> str:
    return f"{heads} heads" if heads == kv_heads else f"{heads} heads ({kv_heads} KV)"


def cached_attention(call: Call) -> Work | None:
    """Return what is known of attention over a cache of pages (vLLM `unified_attention`): heads, no work.

    How many keys each sequence has stands in the engine's metadata, not among the arguments.
    """
    query = call.tensor(0)
    if query is None:
        return None
    return Work("attention", None, None, query.dtype, f"{query.shape[0] if query.shape else 0} tokens over a cache",
                note="the lengths of the sequences in the cache are not recorded")


def rule(name: str) -> Callable[[Call], Work | None]:
    return attention if name in FORMS else cached_attention
