"""Libraries that hosts of kernels use and that need not be here: what is used of them, written over torch."""

MODULES = {"einops": "einops_over_torch", "einops.layers.torch": "einops_over_torch"}       # name → module of this folder
