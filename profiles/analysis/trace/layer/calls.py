"""What ran, call after call, as the parts of a layer are told from: operators' calls and launches without one, in order.

Parts of a layer by what people call the ranges around them: NVTX, `record_function`, names of modules.

The innermost range with a telling name counts. A product is the part that its range names; what else runs there (a cast, a bias,
the sum of a split product) belongs to it. A range that names attention or the feed-forward block as a whole says so of everything
in it that no other name and no structure tells.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np

from profiles.analysis.core.frame import Frame
from profiles.analysis.core.identity import identity
from profiles.analysis.trace.layer.launches import LaunchWork, precision_of
from profiles.analysis.trace.layer.work import PRODUCTS, Work
from profiles.analysis.trace.operators.tensor_cores import on_tensor_cores
from profiles.ingest.arrays import Bools, Ints, sums_by
from profiles.ingest.trace import Category

QKV, Q, KV, SEPARATE = "QKV projection", "Q projection", "K and V projections", "Q, K and V projections"
ATTENTION, OUTPUT, GATE_UP, UP, DOWN = ("attention", "output projection", "gate and up projections", "up projection",
                                        "down projection")
FEED_FORWARD, RESIDUAL = "feed-forward", "residual add"

_START, _END = r"(?:^|[\s.:/_\-(])", r"(?=$|[\s.:/_\-)\d])"


def _named(words: str) -> re.Pattern[str]:
    return re.compile(f"{_START}(?:{words}){_END}", re.IGNORECASE)


# part -> how its ranges are called: the first that fits a name decides. Names of Hugging Face, Megatron, GPT-2, BERT, vLLM, and
# those that guides write by hand.
NAMED: tuple[tuple[str, re.Pattern[str]], ...] = (
    (QKV, _named(r"qkv(?:[_ -]?(?:proj\w*|linear|gemm|matmul))?|c_attn|query_key_value|linear_qkv|w_?qkv|in_proj|packed[_ ]qkv")),
    (KV, _named(r"kv[_ -]?proj\w*|k_proj|v_proj|key[_ -]?proj\w*|value[_ -]?proj\w*|w_?[kv]")),
    (Q, _named(r"q[_ -]?proj\w*|query[_ -]?proj\w*|w_?q")),
    (OUTPUT, _named(r"o[_ -]proj\w*|out(?:put)?[_ -]?proj\w*|attn[_ -]?out(?:put)?|attention[_ -]output|linear_proj|w_?o")),
    (GATE_UP, _named(r"gate[_ -]?(?:and[_ -]?)?up(?:[_ -]?proj\w*)?|gate[_ -]?proj\w*|up[_ -]?proj\w*|mlp[_ -](?:gate|up)"
                     r"|w_?[13]")),
    (UP, _named(r"fc1|c_fc|dense_h_to_4h|linear_fc1|mlp[_ -]?(?:in|fc1|up)|ffn?[_ -]?(?:1|up|in)|intermediate")),
    (DOWN, _named(r"down(?:[_ -]?proj\w*)?|fc2|dense_4h_to_h|linear_fc2|mlp[_ -]?(?:out|fc2|down)|ffn?[_ -]?(?:2|down|out)|w_?2")),
    (RESIDUAL, _named(r"residual(?:[_ -]?(?:add|connection))?|skip[_ -]?(?:add|connection)")),
    (ATTENTION, _named(r"(?:self|core|dot[_ -]product|scaled[_ -]dot[_ -]product|multi[_ -]?head|flash|causal)?[_ -]?"
                       r"(?:attention|attn|sdpa)")),
    (FEED_FORWARD, _named(r"mlp|ffn|feed[_ -]?forward|swiglu")),
)
PRODUCT_PARTS = frozenset((QKV, Q, KV, SEPARATE, OUTPUT, GATE_UP, UP, DOWN))       # of them a product alone is the part
BLOCKS = frozenset((ATTENTION, FEED_FORWARD))       # whole blocks: of what is in them nothing closer may be told


def part_of_range(name: str) -> str:
    """Return the part that a range of this name holds, "" where it says none."""
    name = name[:500]
    return next((part for part, pattern in NAMED if pattern.search(name)), "")


BACKWARD = "autograd::engine::evaluate_function"
# What encloses a call on the host (module, Python function, range), or what a kernel or an operator is called -> the part it is.
_HINTS = (("RMS norm", re.compile(r"rms_?norm", re.IGNORECASE)), ("layer norm", re.compile(r"layer_?norm", re.IGNORECASE)),
          ("rotary embedding", re.compile(r"rotary|rotate_half|(?:^|[_:])rope(?:_|\b)", re.IGNORECASE)))
_GATED = re.compile(r"(?:silu|gelu|swiglu\w*|act)(?:_tanh)?_and_mul|swiglu|(?:mul|view)_silu|silu_mul", re.IGNORECASE)
_ACTIVATION = re.compile(r"(?:^|::)(silu|gelu|relu|swish|clamp_min|hardswish)_?$")
_CACHE = re.compile(r"reshape_and_cache|store_kvcache|concat_and_cache|write_kv", re.IGNORECASE)
_ATTENTION_HELP = re.compile(r"reduce|combine|preprocess|convert|dot_do_o|indices|metadata|schedul|prepare", re.IGNORECASE)
_INDUCTOR_RMS = re.compile(r"triton_(?:red|per)_fused_(?!.*(?:var|sub))(?=.*mean)(?=.*pow).*rsqrt")     # by what it fused
LOOKED_AT = 300                     # characters of a name


@dataclass(frozen=True)
class Token:
    """What equal calls have in common."""

    operator: str                   # "" of a launch without an operator
    kernel: str                     # the one with most time
    work: Work | None
    is_backward: bool
    hint: str                       # "RMS norm", … by what encloses it

    @cached_property
    def kind(self) -> str:
        """Return the kind of work; of what has no shapes by the kernel's name."""
        return self.work.kind if self.work else _kind_by_name(self.kernel)

    @cached_property
    def words(self) -> str:
        return f"{self.operator[:LOOKED_AT]} {self.kernel[:LOOKED_AT]}"

    @cached_property
    def activation(self) -> str:
        """Return "SiLU·mul" and its like of what gates, "SiLU" of a plain activation, "" of all else."""
        if _GATED.search(self.words):
            return "GELU·mul" if "gelu" in self.words.lower() else "SiLU·mul"
        match = _ACTIVATION.search(self.operator)
        return {"silu": "SiLU", "swish": "SiLU", "gelu": "GELU", "relu": "ReLU", "clamp_min": "ReLU",
                "hardswish": "hard swish"}[match[1]] if match else ""

    @cached_property
    def part(self) -> str:
        """Return the part of a layer that the call is by its own name, "" where that takes its neighbours."""
        if _CACHE.search(self.words):
            return "KV cache write"
        if self.kind in PRODUCTS:
            return self.hint if self.hint in PRODUCT_PARTS else ""
        own = next((part for part, pattern in _HINTS if pattern.search(self.words)), "")
        if not own and _INDUCTOR_RMS.match(self.kernel[:LOOKED_AT]):
            own = "RMS norm"
        return own or ("" if self.hint in BLOCKS else self.hint)


@lru_cache(maxsize=16384)
def _kind_by_name(kernel: str) -> str:
    """Return "product", "attention", "norm", … by a kernel's name alone, "" where it says none of them."""
    if _CACHE.search(kernel[:LOOKED_AT]):
        return ""
    op = identity(kernel).op
    if op == "attention":
        return "" if _ATTENTION_HELP.search(kernel.split("<", 1)[0][:LOOKED_AT]) else "attention"
    if op == "matmul" or (not op and on_tensor_cores(kernel) == "yes"):
        return "product" if on_tensor_cores(kernel) != "beside" else ""
    return {"softmax": "softmax", "norm": "norm", "convolution": "convolution"}.get(op, "")


@dataclass(frozen=True)
class Calls:
    """Every call in order of its first launch, one GPU after the other. Columns are per call."""

    tokens: list[Token]
    token: Ints                     # number into `tokens`
    device: Ints
    ns: Ints                        # of all its kernels
    launches: Ints
    longest: Ints                   # row of the frame
    precision: list[str]            # of each token
    gpu_row: Ints                   # a launch of each call, number into LaunchWork.rows
    start_ns: Ints                  # of its first kernel
    end_ns: Ints                    # of its last one
    of_launch: Ints                 # the call of each launch, in the order of LaunchWork.rows


def calls_of(frame: Frame, every: LaunchWork) -> Calls:
    """Return the calls of all compute kernels."""
    count = every.rows.size
    own = np.where(every.call >= 0, every.call, frame.rows + np.arange(count))
    _, first, index = np.unique(own, return_index=True, return_inverse=True)
    index = index.reshape(-1)
    size = first.size
    ns = sums_by(index, every.ns, size)
    launches = np.bincount(index, minlength=size).astype(np.int64)
    order = np.lexsort((every.ns, ~every.is_part, index))          # of each call the longest that is no helper comes last
    longest = np.zeros(size, np.int64)
    longest[index[order]] = order
    call = every.call[first]
    hints, hint = _hints(frame, np.where(call >= 0, call, frame.call[every.rows[first]]).astype(np.int64))
    backward = _backward(frame, call)
    names = frame["name"].astype(np.int64)
    columns = (np.where(call >= 0, names[np.maximum(call, 0)], -1), np.where(call >= 0, frame["detail"][np.maximum(call, 0)], -1),
               names[every.rows[longest]], every.work[first], backward.astype(np.int64), hint)
    codes = np.stack([column.astype(np.int64) for column in columns])
    _, examples, token = np.unique(codes, axis=1, return_index=True, return_inverse=True)
    tokens, precision = [], []
    for place in examples.tolist():
        number = int(every.work[first[place]])
        work = every.works[number] if number >= 0 else None
        kernel = frame.names[int(names[every.rows[longest[place]]])]
        tokens.append(Token(frame.text(int(call[place])) if call[place] >= 0 else "", kernel, work, bool(backward[place]),
                            hints[int(hint[place])]))
        precision.append(precision_of(work, kernel) if work else "")
    device = frame["device"][every.rows[first]].astype(np.int64)
    starts, ends = frame["start_ns"][every.rows].astype(np.int64), frame.end_ns[every.rows].astype(np.int64)
    start_ns, end_ns = np.full(size, np.iinfo(np.int64).max), np.full(size, np.iinfo(np.int64).min)
    np.minimum.at(start_ns, index, starts)
    np.maximum.at(end_ns, index, ends)
    sequence = np.lexsort((first, device))
    place = np.empty(size, np.int64)
    place[sequence] = np.arange(size)
    return Calls(tokens, token.reshape(-1)[sequence].astype(np.int64), device[sequence], ns[sequence], launches[sequence],
                 every.rows[longest][sequence], precision, longest[sequence], start_ns[sequence], end_ns[sequence], place[index])


def _hints(frame: Frame, host: Ints) -> tuple[list[str], Ints]:
    """The part that the innermost module, function or range with a telling name around each call says.

    `host`: row of each call's operator, else of the runtime call that launched it; -1: unknown.
    """
    parts = ["", *dict.fromkeys([part for part, _ in _HINTS] + [part for part, _ in NAMED])]
    plain = frame.rows_by_name(lambda name: any(pattern.search(name) for _, pattern in _HINTS), Category.PYTHON,
                               Category.ANNOTATION)
    named = frame.rows_by_name(lambda name: bool(part_of_range(name)), Category.ANNOTATION)
    rows = np.union1d(plain, named)
    if not rows.size:
        return parts, np.zeros(host.size, np.int64)
    table = np.zeros(len(frame.names), np.int64)
    for code in np.unique(frame["name"][rows]).tolist():
        name = frame.names[code][:500]
        hint = next((part for part, pattern in _HINTS if pattern.search(name)), "")
        table[code] = parts.index(hint or part_of_range(name))
    inner = frame.nearest(rows)[np.maximum(host, 0)]
    return parts, np.where((host >= 0) & (inner >= 0), table[frame["name"][np.maximum(inner, 0)]], 0).astype(np.int64)


def _backward(frame: Frame, call: Ints) -> Bools:
    """Return which calls autograd made to compute gradients."""
    rows = frame.rows_by_name(lambda name: name.startswith(BACKWARD), Category.CPU_OP)
    if not rows.size:
        return np.zeros(call.size, np.bool_)
    return (call >= 0) & (frame.nearest(rows)[np.maximum(call, 0)] >= 0)
