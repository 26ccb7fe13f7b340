"""FLOP and minimal bytes of every kernel from the shapes that a trace records, held against the GPU's ceilings, and the parts
of a transformer layer."""
