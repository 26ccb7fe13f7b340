"""What models do by habit, each beside a twin that does without: `CASES`, one function a case.

A case returns two steps, with the habit and without it. Steps take nothing and are run many times.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional

from tests.gpu.natural.layers import KV_HEADS, SIZE, Decoder

Step = Callable[[], object]
Pair = tuple[Step, Step]


def decoder(**habits: object) -> Decoder:
    torch.manual_seed(1)
    with torch.device("cuda"):
        return Decoder(**habits).to(torch.bfloat16)     # type: ignore[arg-type]


def ids(batch: int, tokens: int, vocabulary: int = 32_000) -> Tensor:
    return torch.randint(vocabulary, (batch, tokens), device="cuda")


def inference(model: nn.Module, *arguments: object, **named: object) -> Step:
    model.eval()

    def step() -> None:
        with torch.no_grad():
            model(*arguments, **named)
    return step


def training(model: nn.Module, tokens: Tensor, optimizer: torch.optim.Optimizer | None = None, clip: bool | None = None,
             to_none: bool = True) -> Step:
    model.train()
    optimizer = optimizer or torch.optim.AdamW(model.parameters(), fused=True)

    def step() -> None:
        logits = model(tokens)
        functional.cross_entropy(logits.flatten(0, 1), tokens.flatten()).backward()
        if clip is not None:
            nn.utils.clip_grad_norm_(model.parameters(), 1.0, foreach=clip)
        optimizer.step()
        optimizer.zero_grad(set_to_none=to_none)
    return step


def logits_of_gpt2_prompts() -> Pair:
    from transformers import GPT2Config, GPT2LMHeadModel

    model = GPT2LMHeadModel(GPT2Config(n_embd=1024, n_layer=4, n_head=16)).cuda().bfloat16()
    prompt = ids(16, 1024)
    return inference(model, prompt), inference(model, prompt, logits_to_keep=1)


def scores_in_vit() -> Pair:
    from transformers import ViTConfig, ViTModel

    def model(how: str) -> nn.Module:
        config = ViTConfig(hidden_size=1024, num_hidden_layers=8, num_attention_heads=16, intermediate_size=4096, image_size=384)
        config._attn_implementation = how
        return ViTModel(config).cuda().bfloat16()
    images = torch.randn(32, 3, 384, 384, device="cuda", dtype=torch.bfloat16)
    return inference(model("eager"), images), inference(model("sdpa"), images)


def scores_in_training() -> Pair:
    tokens = ids(2, 2048)
    return training(decoder(attention="written"), tokens), training(decoder(), tokens)


def scores_in_whisper() -> Pair:
    from transformers import WhisperConfig, WhisperModel

    def model(how: str) -> nn.Module:
        config = WhisperConfig(d_model=1024, encoder_layers=6, decoder_layers=2, encoder_attention_heads=16,
                               decoder_attention_heads=16, encoder_ffn_dim=4096, decoder_ffn_dim=4096)
        config._attn_implementation = how
        return WhisperModel(config).cuda().bfloat16()
    features = torch.randn(16, 80, 3000, device="cuda", dtype=torch.bfloat16)
    begin = torch.full((16, 4), 50258, device="cuda").clamp_max(51864)
    return (inference(model("eager"), input_features=features, decoder_input_ids=begin),
            inference(model("sdpa"), input_features=features, decoder_input_ids=begin))


def keys_repeated_in_decode() -> Pair:
    def step(how: str) -> Step:
        model = decoder(attention=how)
        caches = [(torch.randn(32, KV_HEADS, 4096, SIZE, device="cuda", dtype=torch.bfloat16),
                   torch.randn(32, KV_HEADS, 4096, SIZE, device="cuda", dtype=torch.bfloat16)) for _ in model.layers]
        return inference(model, ids(32, 1), caches=caches)
    return step("repeat"), step("fused")


def cache_concatenated() -> Pair:
    model = decoder(layers=4)
    shape = (16, KV_HEADS, 6000, SIZE)
    start = [(torch.randn(shape, device="cuda", dtype=torch.bfloat16), torch.randn(shape, device="cuda", dtype=torch.bfloat16))
             for _ in model.layers]
    token = ids(16, 1)

    def grows() -> None:
        with torch.no_grad():
            caches = start
            for _ in range(4):
                grown: list[tuple[Tensor, Tensor]] = []
                model(token, caches=caches, grown=grown)
                caches = grown

    def written() -> None:
        with torch.no_grad():
            for _ in range(4):
                model(token, caches=start)
    return grows, written


def adapters_not_merged() -> Pair:
    tokens = ids(4, 2048)
    return inference(decoder(rank=16), tokens, last=True), inference(decoder(), tokens, last=True)


def weights_cast_each_step() -> Pair:
    model, narrow, tokens = decoder().float(), decoder(), ids(4, 32)

    def cast() -> None:
        with torch.no_grad(), torch.autocast("cuda", torch.bfloat16):
            model(tokens, last=True)
    return cast, inference(narrow, tokens, last=True)


class Narrow(nn.Module):
    """A linear layer whose weights are int8 and are made bf16 in each step."""

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__()
        weight = linear.weight.detach().float()
        self.register_buffer("scale", weight.abs().amax(1, keepdim=True) / 127)
        self.register_buffer("weight", (weight / self.get_buffer("scale")).round().to(torch.int8))

    def forward(self, x: Tensor) -> Tensor:
        return functional.linear(x, self.get_buffer("weight").to(x.dtype) * self.get_buffer("scale").to(x.dtype))


def weights_dequantised_each_step() -> Pair:
    model, wide, tokens = decoder(), decoder(), ids(16, 16)
    for layer in model.layers:
        for name in ("q", "k", "v", "o", "gate", "up", "down"):
            setattr(layer, name, Narrow(getattr(layer, name)))
    return inference(model, tokens, last=True), inference(wide, tokens, last=True)


def forward_recomputed() -> Pair:
    tokens = ids(2, 2048)
    return training(decoder(recompute=True), tokens), training(decoder(), tokens)


def dropout_at_inference() -> Pair:
    tokens, model, other = ids(4, 2048), decoder(dropout=0.1), decoder(dropout=0.1)
    without = inference(other, tokens, last=True)

    def step() -> None:
        model.train()
        with torch.no_grad():
            model(tokens, last=True)
    return step, without


def mask_built_in_each_layer() -> Pair:
    tokens = ids(2, 4096)
    return inference(decoder(layers=4, attention="mask"), tokens, last=True), inference(decoder(layers=4), tokens, last=True)


def resnet_channels_first() -> Pair:
    from transformers import ResNetConfig, ResNetForImageClassification

    def step(layout: torch.memory_format) -> Step:
        model = ResNetForImageClassification(ResNetConfig()).cuda().bfloat16().to(memory_format=layout)
        images = torch.randn(128, 3, 224, 224, device="cuda", dtype=torch.bfloat16).to(memory_format=layout)
        labels = torch.randint(2, (128,), device="cuda")
        optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9, fused=True)

        def train() -> None:
            model(images, labels=labels).loss.backward()
            optimizer.step()
            optimizer.zero_grad()
        return train
    return step(torch.contiguous_format), step(torch.channels_last)


class Block(nn.Module):
    """Two convolutions with group norm, as diffusion models' UNets have them."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.convolutions = nn.ModuleList(nn.Conv2d(channels, channels, 3, padding=1) for _ in range(2))
        self.norms = nn.ModuleList(nn.GroupNorm(32, channels) for _ in range(2))

    def forward(self, x: Tensor) -> Tensor:
        h = x
        for convolution, norm in zip(self.convolutions, self.norms, strict=True):
            h = convolution(functional.silu(norm(h)))
        return x + h


def unet_channels_first() -> Pair:
    def step(layout: torch.memory_format) -> Step:
        model = nn.Sequential(*(Block(320) for _ in range(4))).cuda().bfloat16().to(memory_format=layout)
        return inference(model, torch.randn(16, 320, 64, 64, device="cuda", dtype=torch.bfloat16).to(memory_format=layout))
    return step(torch.contiguous_format), step(torch.channels_last)


def experts_of_mixtral() -> Pair:
    from transformers import MixtralConfig, MixtralForCausalLM

    def model(how: str) -> nn.Module:
        config = MixtralConfig(hidden_size=2048, intermediate_size=1024, num_hidden_layers=2, num_attention_heads=16,
                               num_key_value_heads=8, num_local_experts=32, num_experts_per_tok=4)
        config._experts_implementation = how
        return MixtralForCausalLM(config).cuda().bfloat16()
    tokens = ids(4, 1024)
    return inference(model("eager"), tokens, logits_to_keep=1), inference(model("grouped_mm"), tokens, logits_to_keep=1)


def gradients_clipped_one_by_one() -> Pair:
    tokens = ids(1, 256)
    return training(decoder(layers=4), tokens, clip=False), training(decoder(layers=4), tokens, clip=True)


def gradients_zeroed() -> Pair:
    tokens = ids(1, 256)
    return training(decoder(layers=4), tokens, to_none=False), training(decoder(layers=4), tokens)


def momentum_tensor_by_tensor() -> Pair:
    def step(**how: bool) -> Step:
        model = decoder(layers=4)
        return training(model, ids(1, 256), torch.optim.SGD(model.parameters(), 0.1, momentum=0.9, **how))
    return step(foreach=False, fused=False), step(fused=True)


def float32_without_tensor_cores() -> Pair:
    model, tokens = decoder().float(), ids(2, 1024)

    def step(allowed: bool) -> Step:
        run = inference(model, tokens, last=True)

        def train() -> None:
            torch.backends.cuda.matmul.allow_tf32 = allowed
            run()
            torch.backends.cuda.matmul.allow_tf32 = False
        return train
    return step(False), step(True)


def contiguous_for_nothing() -> Pair:
    """A trap: `.contiguous()` of what is contiguous copies nothing."""
    model, tokens = decoder(), ids(4, 2048)
    run = inference(model, tokens, last=True)

    def step() -> None:
        tokens.contiguous()
        run()
    return step, run


def samples_one_by_one() -> Pair:
    model, tokens = decoder(), ids(32, 128)
    model.eval()

    def one_by_one() -> None:
        with torch.no_grad():
            torch.cat([model(tokens[at:at + 1], last=True) for at in range(32)])
    return one_by_one, inference(model, tokens, last=True)


CASES: tuple[Callable[[], Pair], ...] = (
    logits_of_gpt2_prompts, scores_in_vit, scores_in_training, scores_in_whisper, keys_repeated_in_decode, cache_concatenated,
    adapters_not_merged, weights_cast_each_step, weights_dequantised_each_step, forward_recomputed, dropout_at_inference,
    mask_built_in_each_layer, resnet_channels_first, unet_channels_first, experts_of_mixtral, gradients_clipped_one_by_one,
    gradients_zeroed, momentum_tensor_by_tensor, float32_without_tensor_cores, contiguous_for_nothing, samples_one_by_one)
