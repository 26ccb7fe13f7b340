"""The processes behind walls that run a candidate: one compiles it, one checks and times it, one is counted by ncu."""
