"""What GPU memory holds: who allocated it, in which phase, how long it lives, and what the allocator leaves unused."""
