"""Collectives: how fast they move data, who waits in them for whom, and why."""
