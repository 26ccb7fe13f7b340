"""Reads for pages and API."""
