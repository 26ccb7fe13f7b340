"""What is known to fail, each with the fault behind it. Whoever mends one deletes its line.

A case that is named here and passes is a failure.
"""

from __future__ import annotations

from typing import NamedTuple


class Known(NamedTuple):
    """`invariant`: the name of a test; `pattern`: of the case's name, a file or `file:page`; `reason`: the fault."""

    invariant: str
    pattern: str
    reason: str


CUT = "a launch that the report breaks off at is counted by the profile and has no row among its kernels"
ONE_METRIC = "of kernels without a time SQL has no launches"
KNOWN = (
    Known("test_an_exported_trace_has_the_same_sums", "corpus/xprof/tracelens_mi300_jax_conv.trace.json.gz",
          "read again, the time before the first step counts as warm-up, which the file itself does not say"),
    Known("test_a_detail_gains_no_more_than_its_own_time", "corpus/nsys/nsysai_h100_2gpu.sqlite.gz",
          "what copies keep from computing is summed over two GPUs and held against one run"),
    *(Known("test_launches_are_one_number", f"corpus/{name}", CUT) for name in (
        "ncu/esmm_a10g_incomplete_last_kernel.ncu-rep", "ncu_csv/esmm_a10g_incomplete_last_kernel.raw.csv")),
    *(Known(test, "ncu/single_metrics.*", ONE_METRIC) for test in ("test_launches_are_one_number", "test_kernels_are_one_number")),
    Known("test_pages_show_the_numbers_of_the_api", "ncu/single_metrics.details.csv", ONE_METRIC),
)
