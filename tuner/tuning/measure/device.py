"""Checks of a GPU by the children that own it."""

from __future__ import annotations

import torch


def is_alive(device: torch.device) -> bool:
    """Return whether the device still works; after an illegal access every later call fails."""
    if device.type != "cuda":
        return True
    try:
        torch.cuda.synchronize(device)
        return bool(torch.ones(1, device=device).item() == 1)
    except RuntimeError:
        return False
