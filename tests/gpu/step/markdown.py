"""Markdown of what tests.gpu.step.record recorded: the step's times, and who computes each operator.

    python -m tests.gpu.step.markdown step.json[.gz]
"""

from __future__ import annotations

import gzip
import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

STEPS = ("| step | before ms | torch.compile ms | after ms | before ÷ after | torch.compile ÷ after "
         "| from float32: before, after |\n|---|---|---|---|---|---|---|")
OPERATORS = ("| step | operator | shape | calls | served | ours µs | library µs | library ÷ ours | configuration |\n"
             "|---|---|---|---|---|---|---|---|---|")
NONE = "—"


def about(document: Mapping[str, Any]) -> str:
    """Return a paragraph: where, when, what model, how it was timed."""
    model, environment = document["model"], document["environment"]
    versions = f"torch {environment.get('torch', '?')}, Triton {environment.get('triton', '?')}"
    policies = [row["policy"] for row in document["steps"].values() if "policy" in row]
    rounds = f"{policies[0]['rounds']} rounds of {policies[0]['batch']} replays in turn" if policies else "not timed"
    said = (f"{document['date'][:10]}, {document['gpu']}, {versions}.",
            f"A decoder of {model['layers']} layers (width {model['width']}, {model['heads']} heads on {model['kv']} of keys,",
            f"MLP {model['hidden']}, vocabulary {model['vocabulary']}), {model['dtype']}, random weights.",
            f"Prefill: {model['sequences']} × {model['tokens']} tokens with their loss; decode: {model['batch']} sequences with",
            f"{model['cache']} tokens each in the cache. Each step is one CUDA graph, {rounds};",
            "in brackets the 95 % interval of the median ratio of paired rounds.",
            f"Each operator was searched for {document['arguments']['search']:g} s (large ones twice as long)",
            "and served to the step by the client.")
    return " ".join(said)


def step_line(name: str, row: Mapping[str, Any]) -> str:
    """Return the line of one step."""
    if "ratios" not in row:
        return f"| {name} | {NONE} | {NONE} | {NONE} | {NONE} | {NONE} | {row.get('error', 'not timed')} |"
    times = [f"{row[way]['median_ms']:.3f}" if "median_ms" in row.get(way, {}) else NONE
             for way in ("before", "torch.compile", "after")]
    errors = f"{row['before']['error']:.2g}, {row['after']['error']:.2g}{'' if row['right'] else ' **wrong**'}"
    return f"| {name} | {' | '.join(times)} | {ratio(row, 'before')} | {ratio(row, 'torch.compile')} | {errors} |"


def ratio(row: Mapping[str, Any], way: str) -> str:
    """Return "**1.10** (1.09 to 1.11)" of a variant's time over that of `after`; a dash where it was not timed."""
    one = row["ratios"].get(way)
    if not one:
        return NONE
    return f"**{one['ratio']:.3f}**" + (f" ({one['low']:.3f} to {one['high']:.3f})" if one.get("low") else "")


def operator_line(row: Mapping[str, Any]) -> str:
    """Return the line of one operator; its times are those of its search's finals, alone and with a cold L2."""
    ours, library = row.get("ours_ms"), row.get("library_ms")
    times = [*(f"{1000 * ms:.4g}" if ms else NONE for ms in (ours, library)), f"{library / ours:.2f}" if ours and library else NONE]
    config = " ".join(f"{name}={value}" for name, value in (row.get("config") or {}).items())
    shape = " ".join(f"{name}={size}" for name, size in row["shape"].items())
    served = row.get("served", NONE) + (f" ({row['rule']})" if row.get("rule", "exact") != "exact" else "")
    return (f"| {row['step']} | {row['operator']} | {shape} | {row['calls']} | {served} | {' | '.join(times)} "
            f"| {config or row.get('error', '')} |")


def lines(document: Mapping[str, Any]) -> Iterator[str]:
    """Yield the section."""
    yield from ("## A model step end to end", "", about(document), "", STEPS)
    for name, row in document["steps"].items():
        yield step_line(name, row)
    yield ""
    for name, row in document["steps"].items():
        if row.get("lacking"):
            yield f"{name}: {row['lacking']}."
    yield from ("", OPERATORS)
    for row in sorted(document["operators"], key=lambda row: str(row["step"]), reverse=True):       # prefill first
        yield operator_line(row)
    kept = sum(row.get("served") == "library" for row in document["operators"])
    yield from ("", f"Of {len(document['operators'])} operators and shapes {len(document['operators']) - kept} are served with our "
                    f"kernel; at {kept} the answer is to keep the library.")


def main(path: Path) -> None:
    with (gzip.open(path, "rt") if path.suffix == ".gz" else path.open()) as stream:
        print("\n".join(lines(json.load(stream))))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
