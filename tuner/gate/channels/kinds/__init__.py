"""Ways to tell people: one module for each, named in `table`."""
