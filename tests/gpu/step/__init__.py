"""A language model's step before and after: torch's own calls, and what the client of the config cache serves."""
