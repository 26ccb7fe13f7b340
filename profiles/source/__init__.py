"""Source and SASS of a profiled kernel with its counters, and what ran inside it over time."""
