"""More of what models do by habit, a twin beside each, and traps that save nothing: recorded after their kinds were written."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional

Step = Callable[[], object]
Pair = tuple[Step, Step]
HIDDEN, HEADS, SIZE = 4096, 32, 128


def drawn(*shape: int, dtype: torch.dtype = torch.bfloat16) -> Tensor:
    return torch.randn(shape, device="cuda", dtype=dtype)


def linear(rows: int, columns: int, bias: bool = False) -> nn.Linear:
    return nn.Linear(columns, rows, bias=bias, device="cuda", dtype=torch.bfloat16)


def without_gradients(step: Step) -> Step:
    def run() -> object:
        with torch.no_grad():
            return step()
    return run


def vocabulary_that_is_no_multiple() -> Pair:
    """GPT-2's 50,257 words: rows of the head's weights that tensor cores cannot load aligned. The twin pads to 50,304."""
    def step(words: int) -> Step:
        head, body, tokens = linear(words, 1024), linear(1024, 1024), torch.randint(50_000, (8 * 1024,), device="cuda")
        hidden = drawn(8 * 1024, 1024)

        def train() -> None:
            functional.cross_entropy(head(functional.gelu(body(hidden))), tokens).backward()
            head.zero_grad()
            body.zero_grad()
        return train
    return step(50_257), step(50_304)


def queries_keys_values_apart() -> Pair:
    """Three thin products of one input in each of eight layers of a decode."""
    x = drawn(16, HIDDEN)
    apart = [[linear(HIDDEN, HIDDEN) for _ in range(3)] for _ in range(8)]
    together = [linear(3 * HIDDEN, HIDDEN) for _ in range(8)]

    def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        heads = [each.view(16, 1, HEADS, SIZE).transpose(1, 2) for each in (q, k, v)]
        return functional.scaled_dot_product_attention(*heads).transpose(1, 2).reshape(16, HIDDEN)

    def with_() -> Tensor:
        y = x
        for layer in apart:
            y = functional.layer_norm(attend(*(each(y) for each in layer)), (HIDDEN,))
        return y

    def without() -> Tensor:
        y = x
        for layer in together:
            y = functional.layer_norm(attend(*layer(y).chunk(3, dim=-1)), (HIDDEN,))
        return y
    return without_gradients(with_), without_gradients(without)


def recurrent_cells_in_a_loop() -> Pair:
    cell = nn.LSTMCell(1024, 1024, device="cuda", dtype=torch.bfloat16)
    whole = nn.LSTM(1024, 1024, device="cuda", dtype=torch.bfloat16)
    x = drawn(96, 64, 1024)

    def with_() -> Tensor:
        h, c = torch.zeros_like(x[0]), torch.zeros_like(x[0])
        out = []
        for each in x:
            h, c = cell(each, (h, c))
            out.append(h)
        return torch.stack(out)
    return without_gradients(with_), without_gradients(lambda: whole(x)[0])


def heads_one_by_one() -> Pair:
    projection = linear(3 * HIDDEN, HIDDEN)
    x = drawn(2, 1024, HIDDEN)

    def split() -> list[Tensor]:
        return [each.view(2, 1024, HEADS, SIZE).transpose(1, 2) for each in projection(x).chunk(3, dim=-1)]

    def with_() -> Tensor:
        q, k, v = split()
        return torch.cat([functional.scaled_dot_product_attention(q[:, h:h + 1], k[:, h:h + 1], v[:, h:h + 1], is_causal=True)
                          for h in range(HEADS)], dim=1)

    def without() -> Tensor:
        q, k, v = split()
        return functional.scaled_dot_product_attention(q, k, v, is_causal=True)
    return without_gradients(with_), without_gradients(without)


def causal_mask_as_a_tensor() -> Pair:
    q, k, v = (drawn(2, HEADS, 4096, SIZE) for _ in range(3))

    def with_() -> Tensor:
        mask = torch.ones(4096, 4096, dtype=torch.bool, device="cuda").tril()
        return functional.scaled_dot_product_attention(q, k, v, attn_mask=mask)
    return (without_gradients(with_),
            without_gradients(lambda: functional.scaled_dot_product_attention(q, k, v, is_causal=True)))


def attention_in_float32() -> Pair:
    projection = linear(3 * HIDDEN, HIDDEN)
    x = drawn(2, 2048, HIDDEN)

    def attend(dtype: torch.dtype) -> Tensor:
        q, k, v = (each.view(2, 2048, HEADS, SIZE).transpose(1, 2).to(dtype) for each in projection(x).chunk(3, dim=-1))
        return functional.scaled_dot_product_attention(q, k, v, is_causal=True).to(torch.bfloat16)
    return without_gradients(lambda: attend(torch.float32)), without_gradients(lambda: attend(torch.bfloat16))


def transposed_before_products() -> Pair:
    """`.contiguous()` of a transposed operand, which cuBLAS takes as it is."""
    x, weights = drawn(16, 2048, 2048), [drawn(2048, 2048) for _ in range(4)]

    def run(copied: bool) -> Tensor:
        y = x
        for weight in weights:
            turned = y.transpose(1, 2)
            y = (turned.contiguous() if copied else turned) @ weight
        return y
    return without_gradients(lambda: run(True)), without_gradients(lambda: run(False))


def convolutions_without_cudnn() -> Pair:
    model = nn.Sequential(*(nn.Conv2d(256, 256, 3, padding=1, device="cuda", dtype=torch.float16) for _ in range(4)))
    x = drawn(16, 256, 56, 56, dtype=torch.float16)

    def run(allowed: bool) -> Tensor:
        with torch.backends.cudnn.flags(enabled=allowed):
            out: Tensor = model(x)
            return out
    return without_gradients(lambda: run(False)), without_gradients(lambda: run(True))


def sorted_for_the_best_fifty() -> Pair:
    head, x = linear(128_256, 2048), drawn(64, 2048)

    def with_() -> Tensor:
        values, places = head(x).float().sort(dim=-1, descending=True)
        return places[:, :50].gather(1, torch.multinomial(values[:, :50].softmax(-1), 1))

    def without() -> Tensor:
        values, places = head(x).float().topk(50, dim=-1)
        return places.gather(1, torch.multinomial(values.softmax(-1), 1))
    return without_gradients(with_), without_gradients(without)


def bias_before_batch_norm() -> Pair:
    def step(bias: bool) -> Step:
        layers = [each for _ in range(6) for each in (
            nn.Conv2d(256, 256, 3, padding=1, bias=bias), nn.BatchNorm2d(256), nn.ReLU(inplace=True))]
        model = nn.Sequential(*layers).cuda().bfloat16().to(memory_format=torch.channels_last)
        x = drawn(64, 256, 56, 56).to(memory_format=torch.channels_last)

        def train() -> None:
            model(x).mean().backward()
            model.zero_grad()
        return train
    return step(True), step(False)


def rotary_tables_in_each_layer() -> Pair:
    layers = [linear(HIDDEN, HIDDEN) for _ in range(8)]
    x = drawn(1, 8192, HIDDEN)
    frequencies = 10_000.0 ** (-torch.arange(0, SIZE, 2, device="cuda", dtype=torch.float32) / SIZE)

    def tables() -> tuple[Tensor, Tensor]:
        angles = torch.arange(8192, device="cuda", dtype=torch.float32)[:, None] * frequencies
        angles = torch.cat([angles, angles], dim=-1)[None, :, None].expand(1, 8192, HEADS, SIZE)
        return angles.cos().to(torch.bfloat16), angles.sin().to(torch.bfloat16)

    def turn(y: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        heads = y.view(1, 8192, HEADS, SIZE)
        low, high = heads.chunk(2, dim=-1)
        return (heads * cos + torch.cat([-high, low], dim=-1) * sin).view(1, 8192, HIDDEN)

    def run(once: bool) -> Tensor:
        y, made = x, tables() if once else None
        for layer in layers:
            y = turn(layer(y), *(made or tables()))
        return y
    return without_gradients(lambda: run(False)), without_gradients(lambda: run(True))


def activations_over_the_host() -> Pair:
    first, second, x = linear(HIDDEN, HIDDEN), linear(HIDDEN, HIDDEN), drawn(4096, HIDDEN)
    return (without_gradients(lambda: second(first(x).cpu().cuda())), without_gradients(lambda: second(first(x))))


def activation_written_by_hand() -> Pair:
    """GELU by its formula between two products, pass by pass; the twin calls PyTorch's."""
    up, down, x = linear(4 * HIDDEN, HIDDEN), linear(HIDDEN, 4 * HIDDEN), drawn(8192, HIDDEN)

    def by_hand(y: Tensor) -> Tensor:
        return 0.5 * y * (1.0 + torch.tanh(math.sqrt(2.0 / math.pi) * (y + 0.044715 * torch.pow(y, 3.0))))
    return (without_gradients(lambda: down(by_hand(up(x)))),
            without_gradients(lambda: down(functional.gelu(up(x), approximate="tanh"))))


# ---- traps: the two steps do the same work ----


def rows_sorted_and_all_used() -> Pair:
    x = drawn(256, 32_768, dtype=torch.float32)

    def step() -> Tensor:
        return x.sort(dim=-1).values.cumsum(-1)
    return without_gradients(step), without_gradients(step)


def window_as_a_mask() -> Pair:
    """A band of 512 keys beside each query is no triangle: `is_causal=True` would compute something else."""
    q, k, v = (drawn(2, HEADS, 4096, SIZE) for _ in range(3))
    at = torch.arange(4096, device="cuda")
    mask = (at[:, None] - at).abs() < 512

    def step() -> Tensor:
        return functional.scaled_dot_product_attention(q, k, v, attn_mask=mask)
    return without_gradients(step), without_gradients(step)


def result_read_once_at_the_end() -> Pair:
    layers, x = [linear(HIDDEN, HIDDEN) for _ in range(12)], drawn(8192, HIDDEN)

    def step() -> Tensor:
        y = x
        for layer in layers:
            y = layer(y)
        return y.float().mean().cpu()
    return without_gradients(step), without_gradients(step)


MORE: tuple[Callable[[], Pair], ...] = (
    vocabulary_that_is_no_multiple, queries_keys_values_apart, recurrent_cells_in_a_loop, heads_one_by_one, causal_mask_as_a_tensor,
    attention_in_float32, transposed_before_products, convolutions_without_cudnn, sorted_for_the_best_fifty, bias_before_batch_norm,
    rotary_tables_in_each_layer, activations_over_the_host, activation_written_by_hand,
    rows_sorted_and_all_used, window_as_a_mask, result_read_once_at_the_end)
