"""Triton kernels with their inputs and references. Loaded only in the GPU child: nothing else may import torch.

A kernel module offers `PROBLEMS`: operator name → constructor(shape, dtype, device, seed) of a `problem.Problem`.
"""
