"""Advice that people take up, give to somebody or dismiss, and what became of it."""
