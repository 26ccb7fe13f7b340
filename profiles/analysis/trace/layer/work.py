"""What a call has to do at least: operations and bytes, of which kind, in which type."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from profiles.analysis.trace.layer.arguments import Tensor
from profiles.analysis.trace.operators.matmuls import MOST

# Kinds of work. What multiplies matrices may run on tensor cores; all other arithmetic runs on CUDA cores.
PRODUCTS = ("product", "attention", "convolution")
KINDS = (*PRODUCTS, "norm", "softmax", "elementwise", "reduction", "movement", "optimizer", "fused", "collective")


@dataclass(frozen=True)
class Work:
    """`flop`: operations, a multiply-add is two. `bytes`: each input read once and each output written once, as if caches
    were perfect (Williams et al., Roofline, CACM 52(4), 2009: compulsory traffic). None is unknown."""

    kind: str                       # of KINDS
    flop: int | None
    bytes: int | None
    dtype: str = ""                 # of the operands: "fp16", …; "" where the file does not say
    text: str = ""                  # the sizes as people read them: "2048 × 12288 × 4096"
    sizes: tuple[int, ...] = ()     # product: batch, m, n, k · attention: batch, heads, KV heads, queries, keys, head size
    note: str = ""                  # what was taken for granted
    elements: int | None = None     # moved, where the file does not say their type: the kernel's name may

    def bounded(self) -> Work:
        """Return the same, with numbers that no machine can mean left out."""
        flop = self.flop if self.flop is not None and 0 <= self.flop < MOST else None
        size = self.bytes if self.bytes is not None and 0 <= self.bytes < MOST else None
        return replace(self, flop=flop, bytes=size, text=self.text[:120])


def sum_bytes(parts: Iterable[Tensor | int | None]) -> int | None:
    """Return the bytes of tensors and counts together; None where one is unknown."""
    total = 0
    for part in parts:
        size = part.bytes if isinstance(part, Tensor) else part
        if size is None:
            return None
        total += size
    return total
