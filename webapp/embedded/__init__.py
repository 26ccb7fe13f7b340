"""The private PostgreSQL and Valkey of a single machine: started from PyPI wheels, data under one folder."""
