"""What the children that own a GPU ask of it."""

from __future__ import annotations

import torch


def alive(device: torch.device) -> bool:
    """Does the device still work? An illegal access poisons the context: every later call fails as well."""
    if device.type != "cuda":
        return True
    try:
        torch.cuda.synchronize(device)
        return bool(torch.ones(1, device=device).item() == 1)
    except RuntimeError:
        return False
