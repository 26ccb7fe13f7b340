"""Storage of a project: what it takes, how long what is kept, how much there may be."""
