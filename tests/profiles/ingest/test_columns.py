"""Values of any type as columns of numbers."""

from __future__ import annotations

import numpy as np

from profiles.ingest.core import columns


def test_lists_of_one_length_are_no_numbers() -> None:
    """numpy makes a table of them, and what reads a column would then fail on its second row."""
    values = [[False], [False]]
    times_ns, bad = columns.nanoseconds(values, lambda: values)
    assert times_ns.tolist() == [0, 0] and bad.all()
    assert columns.integers(values).tolist() == [columns.MISSING, columns.MISSING]
    assert np.isnan(columns.floats(values)).all() and columns.floats(values).shape == (2,)
