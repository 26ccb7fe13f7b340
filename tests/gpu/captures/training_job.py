"""A training loop that knows nothing of captures: `python -m tests.gpu.captures.training_job LOG SECONDS`, or under torchrun.

It appends the moment at which each step ended (ns since 1970, int64) to LOG (LOG.RANK of several ranks) once a second."""

from __future__ import annotations

import argparse
import array
import os
import time
from pathlib import Path

import torch
from torch import distributed


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__)
    asked.add_argument("log", type=Path)
    asked.add_argument("seconds", type=float)
    asked.add_argument("--cpu", action="store_true")
    asked.add_argument("--width", type=int, default=2048)
    asked.add_argument("--late", nargs=2, type=float, default=(-1, 0.0), metavar=("RANK", "MS"), help="one sleeps in each step")
    options = asked.parse_args()
    rank, ranks = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
    local = int(os.environ.get("LOCAL_RANK", "0"))
    device = torch.device("cpu") if options.cpu else torch.device("cuda", local)
    if not options.cpu:
        torch.cuda.set_device(device)
    width = options.width
    model: torch.nn.Module = torch.nn.Sequential(*[
        torch.nn.TransformerEncoderLayer(width, max(1, width // 128), 2 * width, dropout=0.0, batch_first=True)
        for _ in range(2)]).to(device)
    if ranks > 1:
        distributed.init_process_group("gloo" if options.cpu else "nccl")
        model = torch.nn.parallel.DistributedDataParallel(model, None if options.cpu else [local])
    optimizer = torch.optim.AdamW(model.parameters(), 1e-4)
    data = torch.randn(4, 256 if not options.cpu else 16, width, device=device)
    log = options.log if ranks == 1 else Path(f"{options.log}.{rank}")
    moments, written_s, end_s = array.array("q"), time.monotonic(), time.monotonic() + options.seconds
    with log.open("ab") as stream:
        while time.monotonic() < end_s:                 # of several ranks the parent ends all
            optimizer.zero_grad(set_to_none=True)
            if rank == options.late[0] and ranks > 1:
                time.sleep(options.late[1] / 1e3)
            with torch.autocast(device.type, torch.bfloat16, enabled=not options.cpu):
                loss = model(data).square().mean()
            loss.backward()
            optimizer.step()
            loss.item()                                 # a step ends when the GPU has done it
            moments.append(time.time_ns())
            if time.monotonic() - written_s >= 1.0:
                written_s = time.monotonic()
                stream.write(moments.tobytes())
                stream.flush()
                del moments[:]


if __name__ == "__main__":
    main()
