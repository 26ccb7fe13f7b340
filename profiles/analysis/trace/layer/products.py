"""Matrix products and convolutions.

Sizes are those of `operators.matmuls`. FLOP as torch.utils.flop_counter counts them: 2·m·n·k of a product, 2 · images · output
pixels · filters · channels of a group · taps of a convolution, the same again for each gradient that is asked of its backward.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod

from profiles.analysis.trace.layer.arguments import Call
from profiles.analysis.trace.layer.work import Work, sum_bytes
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
    at = _BIASED.get(call.op.rstrip("_") if call.op.startswith("add") or call.op.startswith("badd") else call.op)
    bias = call.tensor(at) if at is not None else None
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
    chosen = next((each for at in (4, 3) if (each := call.tensor(at)) is not None and len(each.shape) == 2), None)
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
    gradient, image, weight = (call.tensor(at) for at in range(3))
    if gradient is None or image is None or weight is None or not len(gradient.shape) == len(image.shape) == len(weight.shape) > 2:
        return None
    if call.flag(7) is True:
        one = 2 * image.elements * prod(weight.shape[1:])
    elif gradient.shape[1] == weight.shape[0]:
        one = 2 * gradient.elements * prod(weight.shape[1:])
    else:
        return None
    mask = call.values(10)
    asked = [bool(each) for each in mask[:2]] if len(mask) == 3 else [True, True]
    results = [tensor for tensor, wanted in zip((image, weight), asked, strict=True) if wanted]
    needed = [tensor for tensor, wanted in ((weight, asked[0]), (image, asked[1])) if wanted]
    note = "" if len(mask) == 3 else "both gradients: which were asked for is not recorded"
    return Work("convolution", one * sum(asked), sum_bytes((gradient, *needed, *results)), image.dtype,
                "backward, " + _sizes_text(weight.shape, image.shape), note=note)


def one_gradient(call: Call) -> Work | None:
    """Return the work of `cudnn_convolution_backward_weight` and `…_input` (PyTorch 1.8 to 1.12)."""
    problem = problem_of("aten::" + call.op, {"Input Dims": call.dims, "Input type": call.types, "Concrete Inputs": call.concrete})
    return None if problem is None or problem.flop is None else Work("convolution", problem.flop, None, problem.dtype, problem.text)


def _sizes_text(weight: tuple[int, ...], image: tuple[int, ...]) -> str:
    """"3×3, 64 to 128 channels, 32×64×56×56"."""
    taps, shape = dims_text(weight[2:]), dims_text(image)
    return f"{taps}, {weight[1]} to {weight[0]} channels, {shape}"
