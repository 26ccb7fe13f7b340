"""Ceilings that were measured on GPUs: ask for a measurement, follow it, read it."""
