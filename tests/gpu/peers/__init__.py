"""What people have beside our kernels: torch.compile, SDPA's back ends, FlexAttention, Helion, in one session."""
