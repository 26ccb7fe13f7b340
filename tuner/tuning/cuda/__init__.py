"""Kernels in CUDA C++: read from their text, compiled by NVRTC with or without a GPU, launched through cuda-core."""
