"""How work reaches the GPU: launch calls, queues, short kernels, graphs, and what could run at the same time."""
