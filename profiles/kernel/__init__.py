"""The page of one kernel: its tabs, NVIDIA's rules at their charts, and another result laid over it."""
