"""Trains a little and, where asked, takes all memory at last: what a memory snapshot is written for.

    python -m tests.gpu.captures.memory_target [--steps 12] [--pause-ms 20] [--exhaust]
"""

from __future__ import annotations

import argparse
import time

import torch


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--pause-ms", type=float, default=0.0, help="after each step: a program that goes on for long")
    parser.add_argument("--exhaust", action="store_true")
    options = parser.parse_args()
    model = torch.nn.Sequential(torch.nn.Linear(1024, 4096), torch.nn.GELU(), torch.nn.Linear(4096, 1024)).cuda().bfloat16()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for step in range(options.steps):
        loss = model(torch.randn(2048, 1024, device="cuda", dtype=torch.bfloat16)).float().square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        print(f"step {step}: loss {loss.item():.4f}", flush=True)
        time.sleep(options.pause_ms / 1e3)
    if options.exhaust:
        held = []
        while True:
            held.append(torch.empty(4 << 30, dtype=torch.uint8, device="cuda"))


if __name__ == "__main__":
    main()
