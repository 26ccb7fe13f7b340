"""What moves data and computes nothing: embeddings, gathers, scatters, concatenations, caches."""

from __future__ import annotations

from collections.abc import Callable

from profiles.analysis.trace.layer.arguments import Call, times_text
from profiles.analysis.trace.layer.work import Work, sum_bytes


def embedding(call: Call) -> Work | None:
    """Return the work of a look-up: indices read, a row written for each; of rows read no more than the table has."""
    table, indices = call.tensor(0), call.tensor(1)
    if table is None or indices is None or len(table.shape) != 2 or table.size is None:
        return None
    row = table.shape[1] * table.size
    moved = sum_bytes((indices, row * min(table.shape[0], indices.elements), row * indices.elements))
    return Work("movement", 0, moved, table.dtype, f"{indices.elements} of {times_text(table.shape)}",
                note="indices that repeat are read once at best")


def embedding_backward(call: Call) -> Work | None:
    """Return the work of `embedding_dense_backward`: gradient and indices read, a whole table written."""
    gradient, indices, rows = call.tensor(0), call.tensor(1), call.whole(2)
    if gradient is None or indices is None or not gradient.shape or gradient.size is None or not rows or not 0 < rows < 1 << 40:
        return None
    table = rows * gradient.shape[-1] * gradient.size
    return Work("movement", gradient.elements, sum_bytes((gradient, indices, table)), gradient.dtype,
                f"{times_text(gradient.shape)} into {rows} rows")


def gather(call: Call) -> Work | None:
    """Return the work of `gather`: an element read and written for each index."""
    source, index = call.tensor(0), call.tensor(2)
    if source is None or index is None or source.size is None:
        return None
    least = min(source.elements, index.elements)
    return Work("movement", 0, sum_bytes((index, source.size * least, source.size * index.elements)), source.dtype,
                times_text(index.shape))


def index_select(call: Call) -> Work | None:
    source, dim, index = call.tensor(0), call.whole(1), call.tensor(2)
    if source is None or index is None or dim is None or source.size is None or not -len(source.shape) <= dim < len(source.shape):
        return None
    along = source.shape[dim]
    if not along:
        return None
    slab = source.elements // along * source.size
    return Work("movement", 0, sum_bytes((index, slab * min(along, index.elements), slab * index.elements)), source.dtype,
                f"{index.elements} of {times_text(source.shape)}")


def scatter(source_at: int, operations: int) -> Callable[[Call], Work | None]:
    """Return a rule: index and source read, as many elements written where indices say; adding reads them too."""
    def rule(call: Call) -> Work | None:
        index, source = call.tensor(2), call.tensor(source_at)
        if index is None or source is None:
            return None
        moved = sum_bytes((index, source, source, *([source] if operations else [])))
        return Work("movement", operations * source.elements, moved, source.dtype, times_text(source.shape),
                    note="indices that repeat are written once at best" if operations else "")
    return rule


def concatenation(call: Call) -> Work | None:
    """Return the work of `cat` and `stack`: every element read and written once."""
    tensors = call.tensor_list(0)
    if not tensors:
        return None
    elements = sum(each.elements for each in tensors)
    shown = " + ".join(times_text(each.shape) for each in tensors[:3]) + (" + …" if len(tensors) > 3 else "")
    return Work("movement", 0, None, "", f"{shown}, {elements} elements", elements=2 * elements)


def cache_write(first: int) -> Callable[[Call], Work | None]:
    """Return a rule: keys (at `first`) and values (behind) read and written into a cache (vLLM `reshape_and_cache_flash`)."""
    def rule(call: Call) -> Work | None:
        keys, values = call.tensor(first), call.tensor(first + 1)
        if keys is None or values is None:
            return None
        return Work("movement", 0, sum_bytes((keys, keys, values, values)), keys.dtype, f"2 × {times_text(keys.shape)}",
                    note="a cache of a narrower type takes less")
    return rule
