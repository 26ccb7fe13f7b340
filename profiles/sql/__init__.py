"""Questions in SQL over stored traces."""
