"""A kernel file that nobody packaged: what it holds, what its space is, whether it compiles, and what is missing to tune it."""
