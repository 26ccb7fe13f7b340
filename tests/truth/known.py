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


NO_SHAPES = "operators are lost where a trace has no arguments: their codes are packed with -2^31 (analysis/core/shapes.py)"
WITHOUT_SHAPES = (
    "causes/compile_warmup.json.gz", "causes/data_loading.json.gz", "causes/fault_blocking_memset.json.gz",
    "causes/fault_recompilation.json.gz", "causes/fault_tf32_off.json.gz", "causes/serial_copies.json.gz",
    "causes/straggler_*_rank?.json.gz", "corpus/kineto/hta_alexnet_a100_critical_path.json.gz",
    "corpus/kineto/hta_gpu_user_annotation_gp100.json.gz", "corpus/kineto/hta_nccl_data_a100_rank0of2.json.gz")
CUT = "a launch that the report breaks off at is counted by the profile and has no row among its kernels"
ONE_METRIC = "of kernels without a time SQL has no launches"
KNOWN = (
    *(Known(test, pattern, NO_SHAPES) for pattern in WITHOUT_SHAPES for test in (
        "test_shapes_have_the_operators_of_the_operators_page", "test_shapes_have_the_innermost_operator_of_the_file")),
    Known("test_the_operators_page_has_the_innermost_operator_of_the_file", "corpus/kineto/hta_alexnet_a100_critical_path.json.gz",
          "the page names an operator around the innermost one"),
    Known("test_an_exported_trace_has_the_same_sums", "corpus/xprof/tracelens_mi300_jax_conv.trace.json.gz",
          "read again, the time before the first step counts as warm-up, which the file itself does not say"),
    Known("test_an_exported_trace_has_the_same_sums", "logs/nvidia_smi_*", "a trace of nothing but counters cannot be exported"),
    Known("test_a_detail_gains_no_more_than_its_own_time", "corpus/nsys/nsysai_h100_2gpu.sqlite.gz",
          "what copies keep from computing is summed over two GPUs and held against one run"),
    *(Known("test_launches_are_one_number", f"corpus/{name}", CUT) for name in (
        "ncu/esmm_a10g_incomplete_last_kernel.ncu-rep", "ncu_csv/esmm_a10g_incomplete_last_kernel.raw.csv")),
    *(Known(test, "ncu/single_metrics.*", ONE_METRIC) for test in ("test_launches_are_one_number", "test_kernels_are_one_number")),
    Known("test_pages_show_the_numbers_of_the_api", "ncu/single_metrics.details.csv", ONE_METRIC),
)
