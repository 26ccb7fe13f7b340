"""How long a project's rows are kept, and how much it may store."""
