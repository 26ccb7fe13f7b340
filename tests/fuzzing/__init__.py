"""Damaged files made on purpose: `make fuzz` mutates small recordings of every format and judges what the readers make of
them. What was found lies in tests/data/fuzz and is a test for ever (tests/profiles/ingest/test_fuzz_found.py)."""
