"""A team's load on a running product while its processes are killed: `python -m tests.soak --minutes 60`."""
