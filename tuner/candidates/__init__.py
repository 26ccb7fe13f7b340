"""Kernels that are submitted for an operator: judged on a GPU behind walls, reviewed by a person (docs/candidates.md)."""
