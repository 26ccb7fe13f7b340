"""The least time of a problem on a GPU: by its work and what the GPU reaches, beside every time of the tuner."""
