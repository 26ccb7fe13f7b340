"""Metrics that were sampled over a whole GPU while a trace was taken."""
