"""Habits of whole models of transformers and of training loops, a twin beside each: recorded after their kinds were written.

SCALE 1 is what a GPU records; a smaller one makes the same models small.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

Step = Callable[[], object]
Pair = tuple[Step, Step]
DEVICE, SCALE = os.environ.get("NATURAL_DEVICE", "cuda"), float(os.environ.get("NATURAL_SCALE", "1"))


def of(size: int) -> int:
    """Return a size at SCALE: a multiple of 16, at least 16."""
    return max(16, int(size * SCALE) // 16 * 16)


def placed(model: Any, dtype: torch.dtype = torch.bfloat16) -> Any:
    torch.manual_seed(1)
    return model.to(DEVICE).to(dtype)


def words(batch: int, tokens: int) -> Tensor:
    return torch.randint(of(8192), (batch, tokens), device=DEVICE)


def without_gradients(step: Step) -> Step:
    def run() -> object:
        with torch.no_grad():
            return step()
    return run


def qwen(how: str = "sdpa", layers: int = 4, **more: Any) -> Any:
    from transformers import Qwen2Config, Qwen2ForCausalLM

    config = Qwen2Config(hidden_size=of(2048), intermediate_size=of(5632), num_hidden_layers=layers, num_attention_heads=16,
                         num_key_value_heads=2, vocab_size=of(151_936), **more)
    config._attn_implementation = how
    return placed(Qwen2ForCausalLM(config))


def llama(layers: int = 2, dtype: torch.dtype = torch.bfloat16, **more: Any) -> Any:
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(hidden_size=of(2048), intermediate_size=of(8192), num_hidden_layers=layers, num_attention_heads=16,
                         num_key_value_heads=8, vocab_size=of(32_000), **more)
    config._attn_implementation = "sdpa"
    return placed(LlamaForCausalLM(config), dtype)


def train(model: Any, tokens: Tensor, optimizer: torch.optim.Optimizer | None = None,
          after: Callable[[Tensor], object] = lambda loss: None) -> Step:
    model.train()
    optimizer = optimizer or torch.optim.AdamW(model.parameters(), lr=1e-5, fused=DEVICE == "cuda")

    def step() -> None:
        loss = model(tokens, labels=tokens).loss
        loss.backward()
        after(loss)
        optimizer.step()
        optimizer.zero_grad()
    return step


def prompt_with_all_logits() -> Pair:
    """One prompt of Qwen2 with its 151,936 words."""
    model, prompt = qwen(layers=2).eval(), words(1, of(8192))
    return (without_gradients(lambda: model(prompt, use_cache=False).logits[:, -1].argmax(-1)),
            without_gradients(lambda: model(prompt, use_cache=False, logits_to_keep=1).logits[:, -1].argmax(-1)))


def eager_attention_in_prefill() -> Pair:
    prompt = words(4, of(2048))

    def step(how: str) -> Step:
        model = qwen(how).eval()
        return without_gradients(lambda: model(prompt, use_cache=False, logits_to_keep=1))
    return step("eager"), step("sdpa")


def generation_without_a_cache() -> Pair:
    """Eight tokens, each by the whole text before it again."""
    model, prompt = qwen(layers=2).eval(), words(4, of(1024))

    def step(cached: bool) -> Step:
        def run() -> Tensor:
            out: Tensor = model.generate(prompt, max_new_tokens=8, min_new_tokens=8, do_sample=False, use_cache=cached,
                                         pad_token_id=0)
            return out
        return without_gradients(run)
    return step(False), step(True)


def cache_that_grows_in_generation() -> Pair:
    """DynamicCache beside StaticCache, eight tokens after a long prompt."""
    model, prompt = qwen(layers=4).eval(), words(8, of(8192))

    def step(kind: str) -> Step:
        def run() -> Tensor:
            out: Tensor = model.generate(prompt, max_new_tokens=8, min_new_tokens=8, do_sample=False, pad_token_id=0,
                                         cache_implementation=kind, disable_compile=True)
            return out
        return without_gradients(run)
    return step("dynamic"), step("static")


def experts_of_qwen_moe_in_training() -> Pair:
    from transformers import Qwen2MoeConfig, Qwen2MoeForCausalLM

    tokens = words(2, of(1024))

    def step(how: str) -> Step:
        config = Qwen2MoeConfig(hidden_size=of(1024), intermediate_size=of(2048), moe_intermediate_size=of(512),
                                shared_expert_intermediate_size=of(1024), num_hidden_layers=2, num_attention_heads=16,
                                num_key_value_heads=16, num_experts=32, num_experts_per_tok=4, vocab_size=of(8192))
        config._experts_implementation = how
        config._attn_implementation = "sdpa"
        return train(placed(Qwen2MoeForCausalLM(config)), tokens)
    return step("eager"), step("grouped_mm")


def checkpoints_in_llama() -> Pair:
    tokens = words(4, of(1024))
    model = llama(4)
    model.gradient_checkpointing_enable()
    return train(model, tokens), train(llama(4), tokens)


def adamw_tensor_by_tensor() -> Pair:
    tokens = words(1, of(512))

    def step(**how: bool) -> Step:
        model = llama(4)
        return train(model, tokens, torch.optim.AdamW(model.parameters(), lr=1e-5, **how))
    return step(foreach=False, fused=False), step(fused=DEVICE == "cuda")


def convnext_channels_first() -> Pair:
    from transformers import ConvNextConfig, ConvNextForImageClassification

    def step(layout: torch.memory_format) -> Step:
        model = placed(ConvNextForImageClassification(ConvNextConfig())).to(memory_format=layout).eval()
        images = torch.randn(of(64), 3, 224, 224, device=DEVICE, dtype=torch.bfloat16).to(memory_format=layout)
        return without_gradients(lambda: model(images))
    return step(torch.contiguous_format), step(torch.channels_last)


def eager_attention_in_wav2vec2() -> Pair:
    from transformers import Wav2Vec2Config, Wav2Vec2Model

    sound = torch.randn(8, of(160_000), device=DEVICE, dtype=torch.bfloat16)

    def step(how: str) -> Step:
        config = Wav2Vec2Config(num_hidden_layers=6)
        config._attn_implementation = how
        model = placed(Wav2Vec2Model(config)).eval()
        return without_gradients(lambda: model(sound))
    return step("eager"), step("sdpa")


def eager_attention_in_bert_training() -> Pair:
    from transformers import BertConfig, BertForMaskedLM

    tokens = words(32, of(512))

    def step(how: str) -> Step:
        config = BertConfig(num_hidden_layers=6, vocab_size=of(8192), attention_probs_dropout_prob=0.0, hidden_dropout_prob=0.0)
        config._attn_implementation = how
        return train(placed(BertForMaskedLM(config)), tokens)
    return step("eager"), step("sdpa")


def loader_that_computes() -> Pair:
    """Each batch is made on the host while the GPU waits; the twin's batches were made before."""
    from torch.utils.data import DataLoader, Dataset

    class Slow(Dataset[Tensor]):
        def __len__(self) -> int:
            return 1 << 20

        def __getitem__(self, at: int) -> Tensor:
            end = time.perf_counter() + 0.002
            while time.perf_counter() < end:
                at += 1
            return torch.full((of(512),), at % of(8192))

    model, other = llama(2), llama(2)
    batches: Iterator[Tensor] = iter(DataLoader(Slow(), batch_size=8, num_workers=0))
    first = train(other, words(8, of(512)))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5, fused=DEVICE == "cuda")

    def step() -> None:
        tokens = next(batches).to(DEVICE)
        model(tokens, labels=tokens).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    return step, first


def loss_read_in_each_step() -> Pair:
    """A trap where the GPU is behind anyway: `.item()` once a step."""
    tokens = words(8, of(1024))
    return train(llama(2), tokens, after=lambda loss: loss.item()), train(llama(2), tokens)


def float64_by_numpy() -> Pair:
    """A table that NumPy made in float64 turns all that follows into it."""
    size = of(2048)
    wide, narrow = (torch.randn(size, size, device=DEVICE, dtype=dtype) for dtype in (torch.float64, torch.float32))
    x = torch.randn(size, size, device=DEVICE)
    return (without_gradients(lambda: torch.tanh(x.double() @ wide) @ wide),
            without_gradients(lambda: torch.tanh(x @ narrow) @ narrow))


def logits_picked_by_a_mask() -> Pair:
    """`logits[mask]` waits for how many there are; the twin ignores them in the loss."""
    model, other, tokens = llama(2), llama(2), words(4, of(1024))
    mask = torch.rand(tokens.shape, device=DEVICE) < 0.5
    optimizers = [torch.optim.AdamW(each.parameters(), lr=1e-5, fused=DEVICE == "cuda") for each in (model, other)]

    def picked() -> None:
        logits = model(tokens).logits
        functional.cross_entropy(logits[mask].float(), tokens[mask]).backward()
        optimizers[0].step()
        optimizers[0].zero_grad()

    def ignored() -> None:
        logits = other(tokens).logits
        functional.cross_entropy(logits.flatten(0, 1).float(), torch.where(mask, tokens, -100).flatten()).backward()
        optimizers[1].step()
        optimizers[1].zero_grad()
    return picked, ignored


def sampled_row_by_row() -> Pair:
    logits = torch.randn(of(64), of(32_000), device=DEVICE)

    def one_by_one() -> Tensor:
        return torch.stack([torch.multinomial(row.softmax(-1), 1) for row in logits])
    return without_gradients(one_by_one), without_gradients(lambda: torch.multinomial(logits.softmax(-1), 1))


class FourBits(nn.Module):
    """Weights of four bits, unpacked and scaled in each step."""

    def __init__(self, rows: int, columns: int) -> None:
        super().__init__()
        self.register_buffer("packed", torch.randint(0, 255, (rows, columns // 2), device=DEVICE, dtype=torch.uint8))
        self.register_buffer("scale", torch.rand(rows, 1, device=DEVICE, dtype=torch.bfloat16))

    def weight(self) -> Tensor:
        packed, scale = self.get_buffer("packed"), self.get_buffer("scale")
        both = torch.stack([packed & 15, packed >> 4], dim=-1).flatten(1)
        return (both.to(torch.bfloat16) - 8.0) * scale

    def forward(self, x: Tensor) -> Tensor:
        return functional.linear(x, self.weight())


def weights_of_four_bits_unpacked() -> Pair:
    size = of(4096)
    layers = [FourBits(size, size) for _ in range(8)]
    weights = [each.weight() for each in layers]
    x = torch.randn(32, size, device=DEVICE, dtype=torch.bfloat16)

    def unpacked() -> Tensor:
        y = x
        for each in layers:
            y = functional.rms_norm(each(y), (size,))
        return y

    def kept() -> Tensor:
        y = x
        for each in weights:
            y = functional.rms_norm(functional.linear(y, each), (size,))
        return y
    return without_gradients(unpacked), without_gradients(kept)


def graph_broken_by_a_print() -> Pair:
    """torch.compile of a model that looks at a value in the middle of each layer."""
    size = of(1024)
    layers = nn.ModuleList(nn.Linear(size, size, device=DEVICE, dtype=torch.bfloat16) for _ in range(16))
    x = torch.randn(64, size, device=DEVICE, dtype=torch.bfloat16)

    def broken(y: Tensor) -> Tensor:
        for each in layers:
            y = functional.gelu(each(y)) * 1.5 + y
            if y.abs().max().item() > 1e30:
                raise ValueError("too large")
        return y

    def whole(y: Tensor) -> Tensor:
        for each in layers:
            y = functional.gelu(each(y)) * 1.5 + y
        return y
    first, second = torch.compile(broken), torch.compile(whole)
    return without_gradients(lambda: first(x)), without_gradients(lambda: second(x))


MODELS: tuple[Callable[[], Pair], ...] = (
    prompt_with_all_logits, eager_attention_in_prefill, generation_without_a_cache, cache_that_grows_in_generation,
    experts_of_qwen_moe_in_training, checkpoints_in_llama, adamw_tensor_by_tensor, convnext_channels_first,
    eager_attention_in_wav2vec2, eager_attention_in_bert_training, loader_that_computes, loss_read_in_each_step, float64_by_numpy,
    logits_picked_by_a_mask, sampled_row_by_row, weights_of_four_bits_unpacked, graph_broken_by_a_print)
