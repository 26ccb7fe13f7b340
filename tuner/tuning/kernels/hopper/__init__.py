"""Kernels in Gluon for Hopper: a warp that loads, warp groups that compute. Triton has no interpreter for them."""
