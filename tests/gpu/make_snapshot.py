"""Record the memory snapshots that tests/profiles/test_snapshot.py reads: `python tests/gpu/make_snapshot.py OUT`.

A small training loop with allocations on two streams, freed out of order; a script apart from the product so that the
files are what PyTorch writes. Beside each snapshot a .json states what torch itself says of the same moment.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import torch
from torch import nn


def step(model: nn.Module, optimizer: torch.optim.Optimizer, data: torch.Tensor) -> None:
    loss = model(data).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)


def scattered(side: torch.cuda.Stream) -> list[torch.Tensor]:
    """Blocks of many sizes, every second one freed: holes between those that stay."""
    blocks = [torch.empty(n << 18, dtype=torch.uint8, device="cuda") for n in range(1, 41)]
    with torch.cuda.stream(side):
        blocks += [torch.empty(3 << 20, dtype=torch.uint8, device="cuda") for _ in range(8)]
    return blocks[::2]


def stated() -> dict[str, object]:
    stats = torch.cuda.memory_stats()
    return {"torch": torch.__version__, "device": torch.cuda.get_device_name(), **{key: stats[key] for key in (
        "allocated_bytes.all.current", "allocated_bytes.all.peak", "reserved_bytes.all.current", "reserved_bytes.all.peak",
        "active_bytes.all.current", "inactive_split_bytes.all.current", "num_alloc_retries", "num_ooms",
        "allocation.all.allocated", "allocation.all.freed", "segment.all.allocated", "segment.all.freed")}}


def record(out: Path, name: str, **options: object) -> None:
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    torch.cuda.reset_accumulated_memory_stats()
    torch.cuda.memory._record_memory_history(**options)
    model = nn.Sequential(*(nn.Sequential(nn.Linear(1024, 1024), nn.GELU()) for _ in range(4))).cuda()
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in range(3):
        step(model, optimizer, torch.randn(512, 1024, device="cuda"))
    kept = scattered(torch.cuda.Stream())
    torch.cuda.synchronize()
    facts = stated()
    torch.cuda.memory._dump_snapshot(str(out / f"{name}.pickle"))
    torch.cuda.memory._record_memory_history(enabled=None)
    (out / f"{name}.json").write_text(json.dumps({**facts, "kept": len(kept)}, indent=1))


def main() -> None:
    out = Path(sys.argv[1])
    out.mkdir(parents=True, exist_ok=True)
    record(out, "snapshot_python", enabled="all", context="all", stacks="python", max_entries=100_000)
    record(out, "snapshot_ring", enabled="all", context="alloc", stacks="python", max_entries=200)
    record(out, "snapshot_state_only", enabled="state", context="state", stacks="python")


if __name__ == "__main__":
    main()
