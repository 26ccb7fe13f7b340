"""Benchmark suites: what is measured, from a page or a file; orders to measure it; every fresh run with its samples."""
