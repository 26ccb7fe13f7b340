"""A team's own Triton kernels. It knows nothing of Ridgepoint but in ridgepoint.py."""
