"""Slow habits recorded on an H200 beside their twins: what its removal saves (`tests/data/natural/README.md`)."""

from __future__ import annotations

import gzip
import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from profiles import ingest
from profiles.analysis.core.frame import Frame, frame_of
from profiles.analysis.trace.needed.needs import Needs, needs_of
from profiles.ingest.trace import Trace

DATA = Path(__file__).resolve().parents[2] / "data"
NATURAL = DATA / "natural"


@dataclass(frozen=True)
class Ill:
    """`saved_ms`: of a step, measured without the profiler; `kernel_ms`: of the GPU's time of a step, where that was measured."""

    file: str
    kind: str
    saved_ms: float
    twin: str = ""


ILLS = (
    Ill("recorded/logits_of_all_tokens.json.gz", "unread_logits", 13.039, "natural/logits_of_all_tokens__without.json.gz"),
    Ill("natural/experts_in_a_loop.json.gz", "pieces", 40.308, "natural/experts_in_a_loop__without.json.gz"),
    Ill("natural/optimizer_tensor_by_tensor.json.gz", "tensor_by_tensor", 2.168,
        "natural/optimizer_tensor_by_tensor__without.json.gz"),
    Ill("natural/scores_written_out.json.gz", "scores_in_memory", 12.111, "natural/scores_written_out__without.json.gz"),
    Ill("natural/images_channels_first.json.gz", "layouts", 23.939, "natural/images_channels_first__without.json.gz"),
    # two layers, each: copies 2.260 + attention 0.481 ms against 0.126, of the GPU's time
    Ill("natural/keys_repeated_decode_eager_shapes.json.gz", "repeated_keys", 5.230, "natural/keys_repeated_prefill_eager.json.gz"),
    Ill("natural/keys_repeated_decode_eager.json.gz", "repeated_keys", 5.230),
    Ill("natural/keys_repeated_decode_graph.json.gz", "repeated_keys", 5.230),
    # compiled: copies of 0.694 ms a layer
    Ill("natural/keys_repeated_decode_compiled.json.gz", "repeated_keys", 2.098),
)


# Recorded when the kinds were written (`tests/gpu/natural`): file of natural/more -> what leads and what else is said but `passes`.
MORE: dict[str, tuple[str, set[str]]] = {
    "logits_of_gpt2_prompts": ("unread_logits", {"unread_logits"}),
    "scores_in_vit": ("scores_in_memory", {"scores_in_memory"}),
    "scores_in_training": ("scores_in_memory", {"scores_in_memory"}),
    "scores_in_whisper": ("scores_in_memory", {"scores_in_memory"}),
    "keys_repeated_in_decode": ("repeated_keys", {"repeated_keys"}),
    "cache_concatenated": ("growing_caches", {"growing_caches", "shared_operand"}),
    "adapters_not_merged": ("adapters", {"adapters"}),
    "weights_cast_each_step": ("remade_weights", {"remade_weights"}),
    "weights_dequantised_each_step": ("remade_weights", {"remade_weights"}),
    "forward_recomputed": ("recomputed", {"recomputed"}),
    "mask_built_in_each_layer": ("causal_mask", {"causal_mask"}),
    "dropout_at_inference": ("", {"training_mode"}),                        # 0.4 of 12.5 ms: said, and no lead
    "float32_without_tensor_cores": ("", {"scores_in_memory"}),             # the account's cause leads: no_tensor_cores
    "contiguous_for_nothing": ("", set()),                                  # a trap
    "unet_channels_first": ("passes", {"layouts"}),                         # a trap: slower on NHWC, for its group norms
    "scores_in_vit__without": ("passes", {"layouts"}),                      # the patches' convolution, 0.3 of 10 ms
    "keys_repeated_in_decode__without": ("", {"shared_operand"}),
    "adapters_not_merged__without": ("", set()),
    "weights_cast_each_step__without": ("", {"shared_operand"}),
    "weights_dequantised_each_step__without": ("", {"shared_operand"}),
    "mask_built_in_each_layer__without": ("", set()),
    # tests/gpu/natural/more.py, a day later
    "vocabulary_that_is_no_multiple": ("uneven_sizes", {"uneven_sizes"}),
    "vocabulary_that_is_no_multiple__without": ("", set()),
    "queries_keys_values_apart": ("", set()),                               # the host leads, 0.4 of 1.2 ms
    "queries_keys_values_apart__without": ("", set()),
    "recurrent_cells_in_a_loop": ("loops", {"loops"}),
    "recurrent_cells_in_a_loop__without": ("", set()),
    "heads_one_by_one": ("", {"loops"}),                                    # said, and the host leads
    "heads_one_by_one__without": ("", set()),
    "causal_mask_as_a_tensor": ("causal_mask", {"causal_mask"}),
    "causal_mask_as_a_tensor__without": ("", set()),
    "attention_in_float32": ("slower_attention", {"slower_attention"}),
    "attention_in_float32__without": ("", set()),
    "transposed_before_products": ("copied_operands", {"copied_operands"}),
    "transposed_before_products__without": ("", set()),
    "convolutions_without_cudnn": ("columns_written_out", {"columns_written_out"}),
    "convolutions_without_cudnn__without": ("layouts", {"layouts"}),        # NCHW as it is in both
    "sorted_for_the_best_fifty": ("sorted_for_few", {"sorted_for_few"}),
    "sorted_for_the_best_fifty__without": ("", set()),
    "bias_before_batch_norm": ("bias_before_norm", {"bias_before_norm"}),
    "bias_before_batch_norm__without": ("passes", set()),
    "rotary_tables_in_each_layer": ("tables", {"tables"}),
    "rotary_tables_in_each_layer__without": ("passes", set()),
    "activations_over_the_host": ("", {"round_trips"}),                     # the account leads: pageable copies
    "activations_over_the_host__without": ("", set()),
    "activation_written_by_hand": ("passes", set()),
    "activation_written_by_hand__without": ("", set()),
    "rows_sorted_and_all_used": ("", set()),                                # traps: nothing would be saved
    "window_as_a_mask": ("", set()),
    "result_read_once_at_the_end": ("", set()),
    # tests/gpu/natural/models.py, the same day
    "prompt_with_all_logits": ("unread_logits", {"unread_logits"}),
    "prompt_with_all_logits__without": ("", set()),
    "eager_attention_in_prefill": ("scores_in_memory", {"scores_in_memory"}),
    "eager_attention_in_prefill__without": ("passes", set()),
    "generation_without_a_cache": ("texts_again", {"texts_again"}),
    "eager_attention_in_bert_training": ("scores_in_memory", {"scores_in_memory", "copied_operands"}),
    "eager_attention_in_wav2vec2": ("", {"scores_in_memory", "layouts"}),   # a convolution off the tensor cores leads
    "convnext_channels_first": ("passes", set()),                           # a trap: NHWC saves nothing
    "loader_that_computes": ("", set()),                                    # the account leads: data_loading
    "loss_read_in_each_step": ("passes", set()),                            # a trap
    "sampled_row_by_row": ("loops", {"loops"}),
    "sampled_row_by_row__without": ("", set()),
    "weights_of_four_bits_unpacked": ("remade_weights", {"remade_weights"}),
    "weights_of_four_bits_unpacked__without": ("", set()),
    "graph_broken_by_a_print": ("", set()),                                 # the account leads: the host's small kernels
    # tests/gpu/natural/others.py, the same day
    "attention_by_einsum": ("scores_in_memory", {"scores_in_memory"}),
    "experts_by_masks": ("pieces", {"pieces"}),
    "experts_by_masks__without": ("", set()),
    "average_of_weights_one_by_one": ("", {"tensor_by_tensor"}),            # said, and the host leads
    "norm_by_hand": ("passes", set()),
    "rows_looked_up_by_products": ("one_hot", {"one_hot"}),
    "rows_looked_up_by_products__without": ("", set()),
    "matrices_multiplied_one_by_one": ("loops", {"loops"}),
    "matrices_multiplied_one_by_one__without": ("", set()),
    "keys_repeated_by_expand_and_compiled": ("repeated_keys", {"repeated_keys"}),
    "constants_sent_in_each_step": ("", set()),                             # the host's code leads
    "mean_of_logits_over_all_words": ("", set()),                           # traps
    "square_products_in_a_row": ("", set()),
}
SAVED_MS = {row["case"]: row["saved_ms"] for name in ("truth.json", "truth_twins.json", "truth_models.json", "truth_others.json")
            for row in json.loads((NATURAL / "more" / name).read_text())["cases"]}


@cache
def frame(file: str) -> Frame:
    trace = ingest.read(str(DATA / file))
    assert isinstance(trace, Trace)
    return frame_of(trace)


@cache
def needs(file: str) -> Needs:
    return needs_of(frame(file))


def replayed(file: str, folder: Path) -> Frame:
    """Return a recording as if each step had replayed a CUDA graph: its GPU work behind one launch call, no operator, no shape."""
    document = json.loads(gzip.decompress((DATA / file).read_bytes()))
    events = document["traceEvents"]
    steps = [each for each in events if each.get("cat") == "user_annotation" and each["name"].startswith("ProfilerStep#")]
    called = {each["args"]["correlation"]: each["ts"] for each in events if each.get("cat") in ("cuda_runtime", "cuda_driver")}
    kept: list[dict[str, Any]] = [each for each in events if each.get("ph") == "M"] + steps
    launched: dict[int, float] = {}
    for each in events:
        if each.get("cat") in ("kernel", "gpu_memcpy", "gpu_memset"):
            at = called.get(each["args"]["correlation"], each["ts"])
            step = next((number for number, one in enumerate(steps) if one["ts"] <= at <= one["ts"] + one["dur"]), len(steps))
            args = {name: value for name, value in each["args"].items() if name != "External id"}
            kept.append({**each, "args": {**args, "correlation": step + 1}})
            launched[step] = min(at, launched.get(step, at))
    place = {name: steps[0][name] for name in ("pid", "tid")}
    kept += [{"ph": "X", "cat": "cuda_runtime", "name": "cudaGraphLaunch", **place, "ts": at, "dur": 5,
              "args": {"correlation": step + 1}} for step, at in launched.items()]
    out = folder / "replayed.json"
    out.write_text(json.dumps({**document, "traceEvents": kept}))
    trace = ingest.read(str(out))
    assert isinstance(trace, Trace)
    return frame_of(trace)
