"""Advice about one kernel: causes, what the facts say of them, and their order."""
