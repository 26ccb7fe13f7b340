"""Example programs for captures. Owners define targets of their own; these show what one looks like."""
