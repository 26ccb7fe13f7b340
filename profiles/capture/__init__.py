"""Profiles that workers take on request."""
