"""The rules: which operator's arguments say what work. A new operator is one line here.

Rules are found by the operator's name without its namespace, those of ATEN in PyTorch's own alone (`aten::`), those of ANY in
every library's (vLLM `_C::`, `vllm::`, SGLang `sgl_kernel::`, flash-attn, AITER). A rule returns None where the arguments do not
say enough: unknown is better than wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from profiles.analysis.trace.layer import optimizers, pointwise, products, rowwise
from profiles.analysis.trace.layer.work import Call, Work

Rule = Callable[[Call], Work | None]
_LAYER, _RMS, _ADD_RMS = rowwise.LAYER_NORM, rowwise.RMS_NORM, rowwise.ADD_RMS_NORM


def _each(rule: Rule, *names: str) -> dict[str, Rule]:
    return dict.fromkeys(names, rule)


ATEN: dict[str, Rule] = {
    **_each(products.product, "mm", "bmm", "matmul", "mv", "dot", "linear", "addmm", "baddbmm", "addbmm", "addmv",
            "_addmm_activation", "_int_mm", "_scaled_mm", "_grouped_mm", "_scaled_grouped_mm"),
    **_each(products.convolution, "convolution", "_convolution", "cudnn_convolution", "miopen_convolution", "mkldnn_convolution",
            "conv1d", "conv2d", "conv3d", "_slow_conv2d_forward", "slow_conv3d_forward", "cudnn_convolution_transpose",
            "miopen_convolution_transpose", "_conv_depthwise2d", "conv_depthwise3d"),
    **_each(products.convolution_backward, "convolution_backward"),
    **_each(products.one_gradient, "cudnn_convolution_backward_weight", "cudnn_convolution_backward_input"),
    "native_layer_norm": rowwise.norm(_LAYER, weights=(2, 3)),
    "native_layer_norm_backward": rowwise.norm_backward(_LAYER),
    "native_group_norm": rowwise.norm(_LAYER, weights=(1, 2)),
    "native_group_norm_backward": rowwise.norm_backward(_LAYER, weight=4),
    "_fused_rms_norm": rowwise.norm(_RMS, weights=(2,)),
    "_fused_rms_norm_backward": rowwise.norm_backward(_RMS, weight=4),
    **_each(rowwise.batch_norm, "native_batch_norm", "cudnn_batch_norm", "miopen_batch_norm"),
    "cudnn_batch_norm_backward": rowwise.batch_norm_backward(1, 0),
    "native_batch_norm_backward": rowwise.batch_norm_backward(0, 1),
    "miopen_batch_norm_backward": rowwise.batch_norm_backward(1, 0),
    **_each(rowwise.softmax, "_softmax", "_log_softmax"),
    **_each(rowwise.softmax_backward, "_softmax_backward_data", "_log_softmax_backward_data"),
    **_each(rowwise.reduction, "sum", "mean", "amax", "amin", "max", "min", "argmax", "argmin", "prod", "any", "all", "logsumexp"),
    **_each(rowwise.scan, "cumsum", "cumprod"),
    **_each(pointwise.pointwise, *pointwise.OPERATIONS),
    **_each(pointwise.copied, "copy"),
    **_each(pointwise.filled, "fill", "zero", "normal", "uniform", "random", "bernoulli_"),
    **_each(optimizers.multi_tensor, *(f"_foreach_{name}" for name in optimizers.FOREACH), *optimizers.FUSED, "_fused_sgd"),
    "embedding": pointwise.embedding,
    "embedding_dense_backward": pointwise.embedding_backward,
    "gather": pointwise.gather,
    "index_select": pointwise.index_select,
    "scatter": pointwise.scatter(3, 0),
    "scatter_add": pointwise.scatter(3, 1),
    "index_add": pointwise.scatter(3, 1),
    "index_copy": pointwise.scatter(3, 0),
    **_each(pointwise.concatenation, "cat", "stack", "_cat"),
}
ATEN |= dict.fromkeys(products.FORMS, products.attention)
ANY: dict[str, Rule] = {
    **_each(products.attention, "_flash_attn_forward", "_flash_attn_varlen_forward", "_flash_attn_backward",
            "_flash_attn_varlen_backward"),
    **_each(products.cached_attention, "unified_attention", "unified_attention_with_output", "unified_mla_attention",
            "unified_mla_attention_with_output", "unified_attention_with_output_"),
    "rms_norm": rowwise.norm(_RMS, 1, weights=(2,)),                                  # vLLM: (out, input, weight, epsilon)
    **_each(rowwise.norm(_RMS, 1, weights=(2,)), "rmsnorm", "gemma_rmsnorm"),         # SGLang, FlashInfer: the same order
    **_each(rowwise.norm(_ADD_RMS, 0, weights=(2,), streams=4), "fused_add_rms_norm", "fused_add_rmsnorm",
            "gemma_fused_add_rmsnorm"),                                               # (input, residual, weight, epsilon)
    **_each(pointwise.unary_gated, "silu_and_mul", "gelu_and_mul", "gelu_tanh_and_mul", "swigluoai_and_mul", "fatrelu_and_mul"),
    "rotary_embedding": rowwise.rotary(1, 0, cache=4),                                # vLLM: (positions, query, key, head, cache)
    "apply_rope_pos_ids_cos_sin_cache": rowwise.rotary(0, None),
    **_each(products.product_at(1), "cutlass_scaled_mm"),                             # vLLM: (out, a, b, scales…)
    **_each(products.product_at(0), "fp8_scaled_mm", "int8_scaled_mm", "gemm_a8w8", "gemm_a16w16"),
    **_each(products.fused_experts, "inplace_fused_experts", "outplace_fused_experts", "fused_experts"),
    **_each(pointwise.cache_write(0), "reshape_and_cache", "reshape_and_cache_flash"),
}


def work_of_call(name: str, arguments: Mapping[str, Any]) -> Work | None:
    """Return the work of one call, or None where no rule knows the operator or its arguments do not say enough."""
    call = Call(name, arguments)
    if name.startswith("triton_"):
        rule: Rule | None = pointwise.fused
    else:
        names = (call.op, call.base)
        table = ATEN if call.namespace == "aten" else ANY
        rule = next((table[key] for key in names if key in table), None)
    work = rule(call) if rule is not None else None
    return work.bounded() if work is not None else None


def is_known(name: str) -> bool:
    """Return whether a rule knows the operator, whatever its arguments."""
    namespace, _, op = name.rpartition("::")
    table = ATEN if namespace == "aten" else ANY
    return name.startswith("triton_") or op in table or op.rstrip("_") in table
