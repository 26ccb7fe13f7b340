"""Kernel files that somebody pasted: their rows, what may be done to them, the page and the API."""
