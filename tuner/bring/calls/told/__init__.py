"""What a session tells of a call beside its launches: the tensors that it makes, grids with other blocks."""
