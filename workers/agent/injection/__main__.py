"""Prints the library's path: `CUDA_INJECTION64_PATH=$(python -m ridgepoint_agent_injection) python train.py`."""

from __future__ import annotations

import sys
from pathlib import Path

sys.stdout.write(f"{Path(__file__).parent / 'ridgepoint_injection.so'}\n")
