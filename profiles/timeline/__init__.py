"""The timeline: what its page and its selections ask."""
