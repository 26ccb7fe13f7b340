"""Threads about findings, regressions and kernel problems; who follows what; the inbox."""
