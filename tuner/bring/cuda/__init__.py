"""One call of a CUDA C++ file's own host function, made without a GPU: what it launches, and an adapter written of that."""
