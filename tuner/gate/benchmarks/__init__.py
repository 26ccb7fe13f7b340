"""Results of benchmark programs as runs for the gate: one importer each, listed in `table`."""
