"""What people wrote at a place of a timeline."""
