"""What cannot be in a trace, or is not all there: found, told first, and kept out of findings."""
