"""Findings of other analyses whose time the account has already: said once, by it. Their own pages keep them as details."""

COVERED = frozenset({
    "gpu_idle", "host_syncs", "pageable_copies", "data_loading", "exposed_transfers", "host_on_path", "kernel_on_path",
    "waits_on_path", "straggler", "behind", "exposed_communication", "copies_exposed", "allocating_calls", "slow_calls", "graphs",
    "queue_full", "tensor_cores_dtype", "unsteady_kernels"})
