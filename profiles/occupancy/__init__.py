"""The occupancy calculator: what a kernel's occupancy would be with other resources."""
