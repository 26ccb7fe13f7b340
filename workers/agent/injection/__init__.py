"""The compiled part of the agent, a library that CUDA loads: `python -m ridgepoint_agent_injection` says where it is."""

from __future__ import annotations

from pathlib import Path

LIBRARY = "ridgepoint_injection.so"


def library() -> Path:
    """Return the path that CUDA_INJECTION64_PATH is to name."""
    return Path(__file__).parent / LIBRARY
