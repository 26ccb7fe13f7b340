"""A third half: the habits of before written in other ways, by people who know none of the libraries' names; torch alone."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional

from tests.gpu.natural.more import HEADS, HIDDEN, SIZE, drawn, linear, without_gradients

Step = Callable[[], object]
Pair = tuple[Step, Step]


def attention_by_einsum() -> Pair:
    q, k, v = (drawn(4, 2048, 16, SIZE) for _ in range(3))

    def written() -> Tensor:
        scores = torch.einsum("bqhd,bkhd->bhqk", q, k) * SIZE ** -0.5
        return torch.einsum("bhqk,bkhd->bqhd", scores.softmax(-1), v)

    def fused() -> Tensor:
        heads = [each.transpose(1, 2) for each in (q, k, v)]
        return functional.scaled_dot_product_attention(*heads).transpose(1, 2)
    return without_gradients(written), without_gradients(fused)


def experts_by_masks() -> Pair:
    """Every expert computes all tokens, and a mask keeps its own."""
    experts, tokens = 16, drawn(2048, 1024)
    up, down = drawn(experts, 1024, 2048), drawn(experts, 2048, 1024)
    chosen = torch.randint(experts, (2048,), device="cuda")
    order = chosen.argsort()
    ends = torch.bincount(chosen, minlength=experts).cumsum(0).to(torch.int32)

    def masked() -> Tensor:
        out = torch.zeros_like(tokens)
        for number in range(experts):
            mine = functional.silu(tokens @ up[number]) @ down[number]
            out += torch.where((chosen == number)[:, None], mine, 0)
        return out

    def grouped() -> Tensor:
        mine = functional.silu(torch._grouped_mm(tokens[order], up, offs=ends))
        out = torch.empty_like(tokens)
        out[order] = torch._grouped_mm(mine, down, offs=ends)
        return out
    return without_gradients(masked), without_gradients(grouped)


def average_of_weights_one_by_one() -> Pair:
    """An exponential moving average of 400 tensors, outside of any optimizer."""
    weights = [drawn(256, 256) for _ in range(400)]
    averages, others = ([torch.zeros_like(each) for each in weights] for _ in range(2))

    def one_by_one() -> None:
        for average, weight in zip(averages, weights, strict=True):
            average.mul_(0.999).add_(weight, alpha=0.001)

    def together() -> None:
        torch._foreach_mul_(others, 0.999)
        torch._foreach_add_(others, weights, alpha=0.001)
    return without_gradients(one_by_one), without_gradients(together)


def norm_by_hand() -> Pair:
    layers, x, weight = [linear(HIDDEN, HIDDEN) for _ in range(4)], drawn(8192, HIDDEN), drawn(HIDDEN)

    def by_hand(y: Tensor) -> Tensor:
        wide = y.float()
        return (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-6)).to(y.dtype) * weight

    def run(norm: Callable[[Tensor], Tensor]) -> Tensor:
        y = x
        for layer in layers:
            y = layer(norm(y))
        return y
    return (without_gradients(lambda: run(by_hand)),
            without_gradients(lambda: run(lambda y: functional.rms_norm(y, (HIDDEN,), weight, 1e-6))))


def rows_looked_up_by_products() -> Pair:
    """One-hot vectors times a table, in place of its rows."""
    table, tokens = drawn(32_000, 1024), torch.randint(32_000, (4096,), device="cuda")
    return (without_gradients(lambda: functional.one_hot(tokens, 32_000).to(torch.bfloat16) @ table),
            without_gradients(lambda: functional.embedding(tokens, table)))


def constants_sent_in_each_step() -> Pair:
    layers, x = [linear(1024, 1024) for _ in range(8)], drawn(4096, 1024)
    scales = torch.rand(1024).tolist()
    kept = torch.tensor(scales, dtype=torch.bfloat16, device="cuda")

    def run(scale: Callable[[], Tensor]) -> Tensor:
        y = x
        for layer in layers:
            y = layer(y) * scale()
        return y
    return (without_gradients(lambda: run(lambda: torch.tensor(scales, dtype=torch.bfloat16).cuda())),
            without_gradients(lambda: run(lambda: kept)))


def matrices_multiplied_one_by_one() -> Pair:
    a, b = drawn(64, 256, 512), drawn(64, 512, 256)
    return (without_gradients(lambda: torch.stack([a[at] @ b[at] for at in range(64)])), without_gradients(lambda: torch.bmm(a, b)))


def keys_repeated_by_expand_and_compiled() -> Pair:
    q, k, v = drawn(32, HEADS, 1, SIZE), drawn(32, 8, 8192, SIZE), drawn(32, 8, 8192, SIZE)

    def repeat(x: Tensor) -> Tensor:
        return x[:, :, None].expand(32, 8, 4, 8192, SIZE).reshape(32, HEADS, 8192, SIZE)

    def repeated(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return functional.scaled_dot_product_attention(q, repeat(k), repeat(v))
    compiled = torch.compile(repeated)
    grouped = q.view(32, 8, 4, SIZE)            # the four queries of a group as rows of one
    return (without_gradients(lambda: compiled(q, k, v)),
            without_gradients(lambda: functional.scaled_dot_product_attention(grouped, k, v)))


def mean_of_logits_over_all_words() -> Pair:
    """A trap: all logits of all tokens are read."""
    head, hidden = linear(32_000, 2048), drawn(4096, 2048)

    def step() -> Tensor:
        return head(hidden).float().logsumexp(-1).mean()
    return without_gradients(step), without_gradients(step)


def square_products_in_a_row() -> Pair:
    """A trap: each reads what the one before wrote."""
    layers, x = nn.ModuleList(linear(HIDDEN, HIDDEN) for _ in range(24)), drawn(64, HIDDEN)

    def step() -> Tensor:
        y = x
        for layer in layers:
            y = layer(y)
        return y
    return without_gradients(step), without_gradients(step)


OTHERS: tuple[Callable[[], Pair], ...] = (
    attention_by_einsum, experts_by_masks, average_of_weights_one_by_one, norm_by_hand, rows_looked_up_by_products,
    constants_sent_in_each_step, matrices_multiplied_one_by_one, keys_repeated_by_expand_and_compiled,
    mean_of_logits_over_all_words, square_products_in_a_row)
