"""What stands in for modules that are not here: names that may be asked for, and libraries that hosts use, written over torch."""

MODULES = {"einops": "einops_over_torch", "einops.layers.torch": "einops_over_torch"}       # name → module of this folder
