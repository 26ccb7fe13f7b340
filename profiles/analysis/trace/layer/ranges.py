"""Parts of a layer by what people call the ranges around them: NVTX, `record_function`, names of modules.

The innermost range with a telling name counts. A product is the part that its range names; what else runs there (a cast, a bias,
the sum of a split product) belongs to it. A range that names attention or the feed-forward block as a whole says so of everything
in it that no other name and no structure tells.
"""

from __future__ import annotations

import re

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
PRODUCTS = frozenset((QKV, Q, KV, SEPARATE, OUTPUT, GATE_UP, UP, DOWN))       # of them a product alone is the part
BLOCKS = frozenset((ATTENTION, FEED_FORWARD))       # whole blocks: of what is in them nothing closer may be told


def part_of_range(name: str) -> str:
    """Return the part that a range of this name holds, "" where it says none."""
    name = name[:500]
    return next((part for part, pattern in NAMED if pattern.search(name)), "")
