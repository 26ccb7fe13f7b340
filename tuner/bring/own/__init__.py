"""Kernels of files that nobody packaged, as operators: source kept by hash, tuned behind walls, served as any other."""
