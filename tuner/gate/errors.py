"""What ends a worker's hold on a suite's job."""

from __future__ import annotations


class Superseded(Exception):
    """Another worker holds the job, or it was ended: what this one still has is not written."""
