"""The line that `manage.py tune` prints of a job."""

from tuner.management.commands.tune import _line

KEEP = "keep cuBLAS: 1.70× faster than the best found"
ROW = {"id": 7, "status": "done", "trials": 12, "operator": "matmul", "dtype": "bf16", "shape": {"M": 16}, "best_ms": 0.25,
       "default_ms": 0.25, "outcome": {"kind": "library", "text": KEEP}, "keep_library": KEEP}


def test_keep_the_library_stands_before_a_time():
    line = _line(ROW)
    assert line.index("keep cuBLAS") < line.index("0.25 ms") and line.count("keep cuBLAS") == 1


def test_a_search_that_is_not_over_says_it_as_well():
    line = _line({**ROW, "status": "running", "outcome": None, "keep_library": "so far cuBLAS is 1.70× faster"})
    assert line.index("so far cuBLAS is 1.70× faster") < line.index("0.25 ms")


def test_other_outcomes_and_preparing_stand_after_it():
    line = _line({**ROW, "outcome": {"kind": "tie", "text": "no faster than cuBLAS"}, "keep_library": None, "prepare_s": 0.74})
    assert line.index("0.25 ms") < line.index("no faster than cuBLAS") and line.endswith("prepared in 0.7 s")
