"""Kernels that come one after the other again and again: what one kernel could do in place of several."""
