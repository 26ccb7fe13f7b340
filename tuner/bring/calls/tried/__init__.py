"""Whether a launch stays right with another value: both run by Triton's interpreter, on the CPU, on the same inputs."""
