"""Trains a small transformer layer and launches the tuner's Triton kernels: something to capture on any NVIDIA GPU.

    python -m workers.targets.layer [--steps 8] [--hidden 1024] [--tokens 2048] [--no-triton]

Each step ends in `optimizer.step()`, which torch.profiler captures count as a step. Without a GPU it runs on the CPU,
small and without Triton.
"""

from __future__ import annotations

import argparse

import torch


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--hidden", type=int, default=1024)
    parser.add_argument("--tokens", type=int, default=2048)
    parser.add_argument("--no-triton", action="store_true")
    options = parser.parse_args()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    on_gpu = device.type == "cuda"
    hidden, tokens = (options.hidden, options.tokens) if on_gpu else (64, 32)

    torch.manual_seed(0)
    layer = torch.nn.TransformerEncoderLayer(hidden, 8, 4 * hidden, dropout=0.0, batch_first=True, device=device)
    optimizer = torch.optim.AdamW(layer.parameters(), lr=1e-4)
    inputs = torch.randn(4, tokens, hidden, device=device)
    for step in range(options.steps):
        with torch.autocast(device.type, dtype=torch.bfloat16):
            loss = layer(inputs).float().square().mean()
        loss.backward()
        if on_gpu and not options.no_triton:
            triton_kernels(device)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        print(f"step {step}: loss {loss.item():.4f}", flush=True)


def triton_kernels(device: torch.device) -> None:
    """One launch each of the tuner's matmul and softmax."""
    from tuner.tuning.kernels.matmul import Matmul  # needs Triton, which a CPU-only machine may lack
    from tuner.tuning.kernels.rowwise import Softmax

    Matmul({"M": 2048, "N": 2048, "K": 2048}, "bf16", device, 0).launch(
        {"BM": 128, "BN": 128, "BK": 64, "GM": 8, "num_warps": 8, "num_stages": 3})
    Softmax({"R": 4096, "C": 4096}, "fp16", device, 0).launch({"STEPS": 2, "PER_SM": 4, "num_warps": 8})


if __name__ == "__main__":
    main()
