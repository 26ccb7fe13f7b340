"""The kinds of work that need not be, in the order in which they claim launches. A new one: a file in `kinds/` and a row here."""

from __future__ import annotations

from profiles.analysis.trace.needed.avoidable import Kind
from profiles.analysis.trace.needed.kinds import (
    adapters,
    caches,
    head,
    layouts,
    masks,
    passes,
    pieces,
    recomputed,
    repeated,
    scores,
    training_mode,
    updates,
    weights,
    zeroed,
)

KINDS: tuple[Kind, ...] = (
    Kind("unread_logits", "Logits that nobody reads",
         "`model(ids, logits_to_keep=1)`, or take the last hidden state before the head: `head(hidden[:, -1:])`.",
         "All logits are read: perplexity, scoring of prompts, training.",
         "transformers, `logits_to_keep` of causal models", head.find),
    Kind("recomputed", "Forward pass computed again",
         "Checkpoint fewer layers, or only cheap operators (`torch.utils.checkpoint` with a `context_fn` that saves products).",
         "The activations do not fit into memory.", "torch.utils.checkpoint", recomputed.find),
    Kind("scores_in_memory", "Attention's scores in memory",
         "`torch.nn.functional.scaled_dot_product_attention` (transformers: `attn_implementation=\"sdpa\"`).",
         "The scores themselves are read, or a bias that no fused kernel takes.",
         "Dao et al., FlashAttention, arXiv 2205.14135", scores.find),
    Kind("repeated_keys", "Keys and values repeated",
         "`scaled_dot_product_attention(…, enable_gqa=True)`, or a kernel for grouped heads (FlashAttention, FlexAttention).",
         "Few tokens: the copies are small.", "Ainslie et al., GQA, arXiv 2305.13245", repeated.find),
    Kind("pieces", "Pieces one after the other",
         "Sort the rows by piece and use grouped products (`torch._grouped_mm`; transformers: "
         "`experts_implementation=\"grouped_mm\"`).",
         "Few pieces, each large enough to fill the GPU.", "Gale et al., MegaBlocks, arXiv 2211.15841", pieces.find),
    Kind("layouts", "Layouts converted", "`model.to(memory_format=torch.channels_last)`, and the images alike.",
         "Convolutions that the library computes in NCHW.", "NVIDIA, Convolutional Layers User's Guide, section 2.2", layouts.find),
    Kind("growing_caches", "Caches copied to grow",
         "Allocate the cache for the longest sequence and write into it (transformers: `cache_implementation=\"static\"`).",
         "Short sequences.", "Kwon et al., PagedAttention, arXiv 2309.06180", caches.find),
    Kind("remade_weights", "Weights made anew", "Keep the weights in the type that the products take, and convert them once.",
         "A wide copy is needed and memory for a second one is not there.", "PyTorch, Automatic Mixed Precision", weights.find),
    Kind("adapters", "Adapters beside their weights", "`model.merge_and_unload()` (PEFT) before serving.",
         "Several adapters are served, or they are trained.", "Hu et al., LoRA, arXiv 2106.09685, section 4.1", adapters.find),
    Kind("training_mode", "Training mode at inference", "`model.eval()`.", "Dropout is wanted (Monte Carlo dropout).",
         "torch.nn.Module.eval", training_mode.find),
    Kind("zeroed_gradients", "Gradients filled with zeros", "`optimizer.zero_grad(set_to_none=True)`.",
         "Something reads the zeros.", "PyTorch, Performance Tuning Guide", zeroed.find),
    Kind("tensor_by_tensor", "Tensor by tensor", "`torch.optim.AdamW(…, fused=True)`; `clip_grad_norm_(…, foreach=True)`.",
         "An optimizer of one's own that has no fused form.", "torch.optim, `fused` and `foreach`", updates.find),
    Kind("masks", "Masks built again", "Build the mask once before the layers, or pass `is_causal=True`.", "",
         "torch.nn.functional.scaled_dot_product_attention", masks.find),
    Kind("passes", "Passes over memory", "`torch.compile(model)`: it makes one kernel of each chain.",
         "Shapes change in each step, and compiling takes longer than it saves.",
         "Ansel et al., PyTorch 2, ASPLOS 2024", passes.find),
)
BY_NAME = {kind.name: kind for kind in KINDS}
