"""Matrix products and convolutions.

Sizes are those of `operators.matmuls`. FLOP as torch.utils.flop_counter counts them: 2·m·n·k of a product, 2 · images · output
pixels · filters · channels of a group · taps of a convolution, the same again for each gradient that is asked of its backward.

Attention in the forms that PyTorch, flash-attn and serving engines call it.

FLOP: two products of 2·queries·keys·head size for each query head; a causal mask leaves the pairs of keys not behind their
query, half of them where both are equally many; the backward pass is 2.5 times the forward, whose scores it computes again
(Dao, FlashAttention-2, arXiv 2307.08691, section 4.1). torch.utils.flop_counter counts the same and leaves the mask aside.
Bytes: Q, K, V read and O written once; K and V of the KV heads alone (grouped-query attention).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import prod

from profiles.analysis.trace.layer.work import Call, Tensor, Work, sum_bytes
from profiles.analysis.trace.operators.matmuls import Problem, problem_of
from profiles.base.words import dims_text

_BIASED = {"addmm": 0, "baddbmm": 0, "addbmm": 0, "addmv": 0, "_addmm_activation": 0, "linear": 2}     # where a summand stands


def product(call: Call) -> Work | None:
    """Return the work of a product as `operators.matmuls` reads it, with its bias or summand read once.

    Bias and activation count no FLOP: a thousandth of it.
    """
    problem = problem_of("aten::" + call.op, {"Input Dims": call.dims, "Input type": call.types, "Concrete Inputs": call.concrete})
    return None if problem is None or problem.kind != "matmul" else _work(call, problem)


def _work(call: Call, problem: Problem) -> Work | None:
    if problem.m is None or problem.n is None or problem.k is None:
        return None
    moved, note = problem.bytes, ""
    position = _BIASED.get(call.op.rstrip("_") if call.op.startswith("add") or call.op.startswith("badd") else call.op)
    bias = call.tensor(position) if position is not None else None
    if moved is not None and bias is not None:
        moved = sum_bytes((moved, bias))
    if problem.groups > 1:
        note = f"grouped: the rows are shared out among {problem.groups} matrices"
    # a complex multiply-add is four real ones
    flop = 4 * problem.flop if problem.flop is not None and problem.dtype.startswith("complex") else problem.flop
    return Work("product", flop, moved, problem.dtype, problem.text, (problem.batch, problem.m, problem.n, problem.k), note)


def product_at(first: int) -> Callable[[Call], Work | None]:
    """Return a rule for custom products [m, k] · [k, n] whose operands stand at `first` and behind it (vLLM, SGLang)."""
    def rule(call: Call) -> Work | None:
        a, b = call.tensor(first), call.tensor(first + 1)
        if a is None or b is None or len(a.shape) < 2 or len(b.shape) != 2 or a.shape[-1] not in b.shape:
            return None
        k = a.shape[-1]
        n = b.shape[1] if b.shape[0] == k else b.shape[0]
        return _work(call, Problem("matmul", a.dtype, prod(a.shape[:-1]), n, k))
    return rule


def fused_experts(call: Call) -> Work | None:
    """Return the work of a fused mixture of experts (vLLM `fused_experts`, SGLang alike).

    Arguments: rows [T, h], w1 [E, 2f, h], w2 [E, h, f], then weights and ids [T, chosen].
    2·T·chosen·(2f·h + h·f) FLOP; of E experts at most T·chosen are read.
    """
    rows, w1, w2 = call.tensor(0), call.tensor(1), call.tensor(2)
    chosen = next((tensor for position in (4, 3) if (tensor := call.tensor(position)) is not None and len(tensor.shape) == 2), None)
    if rows is None or w1 is None or w2 is None or chosen is None:
        return None
    if len(w1.shape) != 3 or len(w2.shape) != 3 or len(rows.shape) != 2:
        return None
    (experts, up, hidden), tokens = w1.shape, rows.shape[0]
    if rows.shape[1] != hidden or w2.shape[:2] != (experts, hidden) or chosen.shape[0] != tokens or not experts:
        return None
    reached = min(experts, tokens * chosen.shape[1])
    flop = 2 * tokens * chosen.shape[1] * (up * hidden + hidden * w2.shape[2])
    weights = sum_bytes((w1, w2))
    moved = None if weights is None else sum_bytes((weights * reached // experts, rows, rows))
    return Work("product", flop, moved, w1.dtype, f"{tokens} rows, {chosen.shape[1]} of {experts} experts",
                note="as many experts are read as rows could reach")


# Where stride, padding and dilation do not stand among the first arguments the output is not known; gradients state it.
def convolution(call: Call) -> Work | None:
    """Return the work of a forward convolution, transposed ones included."""
    problem = problem_of("aten::" + call.op, {"Input Dims": call.dims, "Input type": call.types, "Concrete Inputs": call.concrete})
    image, weight = call.tensor(0), call.tensor(1)
    if problem is None or image is None or weight is None or len(weight.shape) < 3 or len(image.shape) != len(weight.shape):
        return None
    transposed = "transpose" in call.op or (call.op in ("convolution", "_convolution") and call.flag(6) is True)
    if transposed:          # each input pixel meets every tap: weight is [channels, filters of a group, taps…]
        flop = 2 * image.elements * prod(weight.shape[1:])
        return Work("convolution", flop, None, image.dtype, _sizes_text(weight.shape, image.shape), note="transposed")
    if problem.m is None or problem.flop is None:
        return None
    size = image.size
    moved = None if size is None else sum_bytes((image, weight, size * problem.m * weight.shape[0]))
    return Work("convolution", problem.flop, moved, image.dtype, _sizes_text(weight.shape, image.shape),
                (1, problem.m, weight.shape[0], prod(weight.shape[1:])))


def convolution_backward(call: Call) -> Work | None:
    """Return the work of both gradients, or of those that `output_mask` asks for.

    Each is as many FLOP as the forward (torch.utils.flop_counter, conv_backward_flop).
    """
    gradient, image, weight = (call.tensor(position) for position in range(3))
    if gradient is None or image is None or weight is None or not len(gradient.shape) == len(image.shape) == len(weight.shape) > 2:
        return None
    if call.flag(7) is True:
        flop = 2 * image.elements * prod(weight.shape[1:])
    elif gradient.shape[1] == weight.shape[0]:
        flop = 2 * gradient.elements * prod(weight.shape[1:])
    else:
        return None
    mask = call.values(10)
    flags = [bool(flag) for flag in mask[:2]] if len(mask) == 3 else [True, True]
    results = [tensor for tensor, is_needed in zip((image, weight), flags, strict=True) if is_needed]
    needed = [tensor for tensor, is_needed in ((weight, flags[0]), (image, flags[1])) if is_needed]
    note = "" if len(mask) == 3 else "both gradients: which were asked for is not recorded"
    return Work("convolution", flop * sum(flags), sum_bytes((gradient, *needed, *results)), image.dtype,
                "backward, " + _sizes_text(weight.shape, image.shape), note=note)


def one_gradient(call: Call) -> Work | None:
    """Return the work of `cudnn_convolution_backward_weight` and `…_input` (PyTorch 1.8 to 1.12)."""
    problem = problem_of("aten::" + call.op, {"Input Dims": call.dims, "Input type": call.types, "Concrete Inputs": call.concrete})
    return None if problem is None or problem.flop is None else Work("convolution", problem.flop, None, problem.dtype, problem.text)


def _sizes_text(weight: tuple[int, ...], image: tuple[int, ...]) -> str:
    """"3×3, 64 to 128 channels, 32×64×56×56"."""
    taps, shape = dims_text(weight[2:]), dims_text(image)
    return f"{taps}, {weight[1]} to {weight[0]} channels, {shape}"


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
    query, key, value = (call.tensor(form.query + offset) for offset in range(3))
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
    work = _form_work(form, query, key, value, pairs, size, size_v, (batch, heads, kv_heads, queries, keys, size), note)
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
    work = _form_work(form, query, key, value, pairs, size, value.shape[2], (sequences, heads, kv_heads, tokens, keys, size), note)
    text = f"{tokens} tokens of {sequences} × {_heads(heads, kv_heads)} × {size}"
    return replace(work, text=("backward, " if form.backward else "") + text + (", causal" if causal else ""))


def _form_work(form: Form, query: Tensor, key: Tensor, value: Tensor, pairs: int, size: int, size_v: int, sizes: tuple[int, ...],
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
