"""What people have beside our kernels: torch.compile, SDPA's back ends, FlexAttention, in one session."""
