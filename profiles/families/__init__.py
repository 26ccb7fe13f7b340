"""Kernel families: what counts as one kernel, what it costs over all profiles, what builds changed."""
