"""Logits of tokens that nobody reads: the vocabulary's product over a whole prompt, of which the last row is sampled."""

from __future__ import annotations

from collections.abc import Iterator

from profiles.analysis.trace.layer.work import Call
from profiles.analysis.trace.needed.facts import Avoidable, Facts, is_plain_product, sizes_of
from profiles.ingest.trace import Category

LEAST_COLUMNS = 8_000               # of a product that makes logits: vocabularies are larger than layers
LEAST_TOKENS = 4                    # of a sequence
LAYER = 8                           # launches from a layer's wide product to the attention or the product that reads it
LOOKED_AHEAD = 40                   # launches behind the product that may read its result
_WHOLE = ("softmax", "reduction", "index", "product")


def find(facts: Facts) -> Iterator[Avoidable]:
    """Find products with a vocabulary's columns over all tokens of a prompt, in inference.

    How many sequences there are is known from the embedding's indices [sequences, tokens], or from attention's queries.
    """
    if facts.has_backward:
        return                          # a loss reads every row
    tables, prompts = _prompts(facts)
    for sequence, places in facts.places(facts.fits(is_plain_product) & ~facts.taken):
        for place in places:
            position = sequence[place]
            batch, rows, columns, inner = sizes_of(facts.at(position))
            of_vocabulary = columns in tables if tables else (
                columns >= LEAST_COLUMNS and columns >= 3 * inner
                and not _feeds_layer(facts, sequence[place + 1:place + 1 + LAYER], columns))
            last_rows = prompts.get(batch * rows)
            if not of_vocabulary or last_rows is None or _reads_all(facts, sequence, place, batch * rows, columns):
                continue
            tokens, ns, dram = batch * rows, float(facts.ns[position]), float(facts.dram_bytes_s[position])
            weight_ns = 1e9 * 2.0 * columns * inner / dram if dram > 0 else 0.0        # the weights are read all the same
            least = max(ns * last_rows / tokens, weight_ns)
            yield Avoidable(
                [position], (min(ns, least), min(ns, 2 * least)),
                f"logits of {tokens:,} tokens are computed ({tokens} × {columns} × {inner})",
                f"only the last token of {'each of ' + f'{last_rows:,} sequences' if last_rows > 1 else 'the sequence'} is read",
                numbers={"tokens": tokens, "read": last_rows, "vocabulary": columns, "more_tokens": tokens - last_rows})


def _prompts(facts: Facts) -> tuple[set[int], dict[int, int]]:
    """Return the rows of embedding tables, and of each number of tokens the number of sequences that they are."""
    tables, prompts = set[int](), dict[int, int]()
    for item in facts.items:
        if "embedding" in item.path and len(item.shapes) >= 2 and len(item.shapes[0]) == 2:
            tables.add(item.shapes[0][0])
        sizes = sizes_of(item)
        if item.role == "attention" and len(sizes) == 6 and sizes[3] >= LEAST_TOKENS:
            prompts.setdefault(sizes[0] * sizes[3], sizes[0])
    for row in facts.frame.rows_by_name(lambda name: name == "aten::embedding", Category.CPU_OP).tolist()[:64]:
        indices = Call("aten::embedding", facts.frame.arguments(row)).tensor(1)
        if indices is not None and len(indices.shape) == 2 and indices.shape[1] >= LEAST_TOKENS:
            prompts[indices.elements] = indices.shape[0]
    return {rows for rows in tables if rows >= LEAST_COLUMNS}, prompts


def _feeds_layer(facts: Facts, after: list[int], columns: int) -> bool:
    """Return whether a wide product is a layer's: queries, keys and values of an attention, or gates of the next product."""
    for position in after:
        sizes = sizes_of(facts.at(position))
        if facts.at(position).role == "attention" or (len(sizes) == 4 and sizes[3] in (columns, columns // 2)):
            return True
    return False


def _reads_all(facts: Facts, sequence: list[int], index: int, rows: int, columns: int) -> bool:
    """Return whether a later launch computes with all of the logits (a loss, probabilities of a prompt)."""
    for position in sequence[index + 1:index + 1 + LOOKED_AHEAD]:
        item = facts.at(position)
        if item.role in _WHOLE and item.elements >= rows * columns:
            return True
    return False
