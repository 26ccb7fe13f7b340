"""Sentences of metrics whose names the scheme does not cover: launch parameters, properties of the GPU, the profiler's own.

Source: Nsight Compute, Kernel Profiling Guide, "Metrics Reference" (launch metrics, source metrics, NVLink, device attributes);
attributes are those of the CUDA driver's `CUdevice_attribute`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

YES_NO, WORD, NUMBER, MASK = "yes/no", "word", "number", "bit mask"
# name -> sentence, unit
OWN: Mapping[str, tuple[str, str]] = {
    "launch__block_size": ("Threads of a block.", "thread"), "launch__grid_size": ("Blocks of the grid.", "block"),
    "launch__thread_count": ("Threads of the launch.", "thread"), "launch__sm_count": ("SMs that the launch may use.", "SM"),
    "launch__tpc_count": ("TPCs (pairs of SMs) that the launch may use.", "TPC"),
    "launch__tpc_enabled": ("Which TPCs the launch may use.", WORD),
    "launch__registers_per_thread": ("Registers that the compiler gave each thread.", "register/thread"),
    "launch__registers_per_thread_allocated": (
        "Registers that are set aside for each thread, rounded up by the hardware.", "register/thread"),
    "launch__shared_mem_per_block": ("Shared memory of a block.", "byte/block"),
    "launch__shared_mem_per_block_allocated": (
        "Shared memory that is set aside for a block, rounded up by the hardware.", "byte/block"),
    "launch__shared_mem_per_block_static": ("Shared memory of a block that the code declares.", "byte/block"),
    "launch__shared_mem_per_block_dynamic": ("Shared memory of a block that the launch asks for.", "byte/block"),
    "launch__shared_mem_per_block_driver": ("Shared memory of a block that the driver takes.", "byte/block"),
    "launch__shared_mem_config_size": ("Shared memory that the SM was set up to hold.", "byte"),
    "launch__waves_per_multiprocessor": (
        "Waves: how often the grid fills all SMs. Just above a whole number the last wave is "
        "nearly empty.", "wave"),
    "launch__occupancy_limit_barriers": ("Blocks per SM at most, by the barriers of a block.", "block"),
    "launch__occupancy_limit_blocks": ("Blocks per SM at most, by the hardware alone.", "block"),
    "launch__occupancy_limit_registers": ("Blocks per SM at most, by registers.", "block"),
    "launch__occupancy_limit_shared_mem": ("Blocks per SM at most, by shared memory.", "block"),
    "launch__occupancy_limit_warps": ("Blocks per SM at most, by the warps of a block.", "block"),
    "launch__occupancy_cluster_pct": ("Theoretical occupancy of the GPU with clusters of this size.", "%"),
    "launch__occupancy_cluster_gpu_pct": ("Occupancy of the whole GPU with clusters of this size.", "%"),
    "launch__occupancy_per_block_size": ("Theoretical occupancy for other block sizes, a value for each.", "warp"),
    "launch__occupancy_per_register_count": ("Theoretical occupancy for other counts of registers, a value for each.", "warp"),
    "launch__occupancy_per_shared_mem_size": (
        "Theoretical occupancy for other sizes of shared memory, a value for each.", "warp"),
    "launch__occupancy_per_barrier_count": ("Theoretical occupancy for other counts of barriers, a value for each.", "warp"),
    "launch__occupancy_per_cluster_size": ("Theoretical occupancy for other sizes of clusters, a value for each.", "cluster"),
    "launch__cluster_max_active": ("Clusters that may be resident at once.", "cluster"),
    "launch__cluster_max_potential_size": ("Blocks of a cluster at most, for this kernel.", "block"),
    "launch__cluster_size": ("Blocks of a cluster; 0: no clusters.", "block"),
    "launch__cluster_scheduling_policy": ("How clusters are spread over the GPU.", WORD),
    "launch__func_cache_config": ("Which of L1 and shared memory the function prefers.", WORD),
    "launch__function_pcs": ("Address of the function's first instruction.", "address"),
    "launch__kernel_name": ("Name of the kernel.", WORD), "launch__barrier_count": ("Barriers that a block uses.", "barrier"),
    "launch__context_id": ("Number of the CUDA context.", NUMBER), "launch__stream_id": ("Number of the CUDA stream.", NUMBER),
    "launch__device_id": ("Number of the GPU, as CUDA counts.", NUMBER),
    "launch__graph_id": ("Number of the CUDA graph.", NUMBER),
    "launch__graph_node_id": ("Number of the node in the CUDA graph.", NUMBER),
    "launch__persisting_l2_cache_size": ("L2 cache that is set aside for data which shall stay.", "byte"),
    "launch__stack_size": ("Stack of a thread.", "byte"),
    "launch__uses_cdp": ("Whether the kernel launches kernels (dynamic parallelism).", YES_NO),
    "launch__uses_green_context": ("Whether the context has a part of the SMs alone (green context).", YES_NO),
    "launch__uses_mps": ("Whether the process shares the GPU by MPS.", YES_NO),
    "launch__uses_vgpu": ("Whether the GPU is a virtual one.", YES_NO),
    "launch__uses_nvlink_centric_scheduling": ("Whether blocks are placed with regard to NVLink.", YES_NO),
    "profiler__replayer_passes": ("How often the launch was replayed to collect all metrics.", "pass"),
    "profiler__replayer_passes_type_warmup": ("Replays of the launch that only warm up.", "pass"),
    "profiler__replayer_bytes_mem_accessible": ("Memory that the launch could write to.", "byte"),
    "profiler__replayer_bytes_mem_backed_up": ("Memory that was saved and restored between replays.", "byte"),
    "profiler__perfworks_session_reuse": ("Whether the profiler used its session again.", YES_NO),
    "profiler__pmsampler_buffer_size_bytes": ("Buffer of the samples over time.", "byte"),
    "profiler__pmsampler_interval_time": ("Time between samples.", "ns"),
    "profiler__pmsampler_interval_cycles": ("Cycles between samples.", "cycle"),
    "profiler__pmsampler_pass_groups": ("Groups of metrics that were sampled in passes of their own.", "pass"),
    "profiler__pmsampler_dropped_samples": ("Samples that were lost: the buffer was full.", "sample"),
    "profiler__pmsampler_merged_samples": ("Samples that were merged with their neighbours.", "sample"),
    "profiler__pmsampler_ctxsw_0": ("Switches of context, over time.", NUMBER),
    "profiler__timestamp_workload_start_0": ("When the work began, of each pass.", "ns"),
    "profiler__timestamp_workload_end_0": ("When the work ended, of each pass.", "ns"),
    "smsp__pcsamp_interval": ("How often the program counter of a warp is sampled: every 2^(5 + this) cycles.", NUMBER),
    "smsp__pcsamp_interval_cycles": ("Cycles between samples of the program counter.", "cycle"),
    "smsp__pcsamp_sample_count": ("Samples of the program counter.", "sample"),
    "smsp__pcsamp_buffer_size_bytes": ("Buffer of the samples of the program counter.", "byte"),
    "smsp__pcsamp_dropped_bytes": ("Samples that were lost: the buffer was full.", "byte"),
    "smsp__pcsamp_aggregated_passes": ("Passes of which samples were added up.", "pass"),
    "nvlink__bandwidth": ("Bandwidth of the NVLink connection.", "byte/s"),
    "nvlink__count_logical": ("NVLinks that together make one connection.", "link"),
    "nvlink__count_physical": ("NVLinks that the GPU has.", "link"), "nvlink__max_count": ("NVLinks of the GPU at most.", "link"),
    "nvlink__enabled_mask": ("Which NVLinks are on.", MASK),
    "nvlink__is_direct_link": ("Whether two GPUs are linked without a switch.", YES_NO),
    "nvlink__is_nvswitch_connected": ("Whether the link goes to an NVSwitch.", YES_NO),
    "nvlink__peer_access": ("Whether one GPU may read the other's memory over the link.", YES_NO),
    "nvlink__peer_atomic": ("Whether one GPU may do atomics in the other's memory over the link.", YES_NO),
    "nvlink__system_access": ("Whether the host's memory may be read over the link.", YES_NO),
    "nvlink__system_atomic": ("Whether atomics in the host's memory work over the link.", YES_NO),
    "nvlink__source_ports": ("Ports at which the link begins.", NUMBER),
    "nvlink__destination_ports": ("Ports at which the link ends.", NUMBER),
    "nvlink__dev0Id": ("Number of the first device of the link.", NUMBER),
    "nvlink__dev1Id": ("Number of the second device of the link.", NUMBER),
    "nvlink__dev0type": ("Kind of the first device of the link.", WORD),
    "nvlink__dev1type": ("Kind of the second device of the link.", WORD),
    "nvlink__uuidDev0": ("Identity of the first device of the link.", WORD),
    "nvlink__uuidDev1": ("Identity of the second device of the link.", WORD),
    "nvlink__dev_display_name_all": ("Names of the devices that NVLink joins.", WORD),
    "c2clink__present": ("Whether the GPU has a chip-to-chip link to its CPU.", YES_NO),
    "c2clink__enabled_mask": ("Which chip-to-chip links are on.", MASK),
    "numa__cpu_affinity": ("CPUs that are near the GPU.", MASK),
    "numa__id_cpu": ("NUMA node of the CPUs that are near the GPU.", NUMBER),
    "numa__id_memory": ("NUMA node of the memory that is near the GPU.", NUMBER),
    "numa__dev_display_name_all": ("Names of the GPUs, by NUMA node.", WORD),
    "nvtx__ranges": ("NVTX ranges around the launch.", WORD),
    "inst_executed": ("Warp instructions executed, of each line of the source.", "inst"),
    "thread_inst_executed": ("Thread instructions executed, of each line of the source.", "inst"),
    "thread_inst_executed_true": (
        "Thread instructions executed and not switched off by a predicate, of each line of the "
        "source.", "inst"),
    "memory_type": ("Which memory an instruction reaches, of each line of the source.", WORD),
    "memory_access_type": ("Whether an instruction reads or writes, of each line of the source.", WORD),
    "memory_access_size_type": ("Bits a thread moves by an instruction, of each line of the source.", "bit"),
    "memory_l1_tag_requests_global": ("Requests to the tags of the L1 by accesses of global memory.", "request"),
    "memory_l1_wavefronts_shared": ("Wavefronts (passes through the data stage) of accesses of shared memory.", "wavefront"),
    "memory_l1_wavefronts_shared_ideal": (
        "Wavefronts that the accesses of shared memory would take without bank conflicts.", "wavefront"),
    "memory_l1_sectors_global": ("Sectors of 32 bytes that accesses of global memory took from the L1.", "sector"),
    "memory_l1_sectors_shared": ("Sectors of 32 bytes of shared memory that were accessed.", "sector"),
    "memory_l1_sectors_shared_ideal": ("Sectors of shared memory that the accesses need at least.", "sector"),
    "memory_l2_sectors_global": ("Sectors of 32 bytes that accesses of global memory asked of the L2.", "sector"),
    "memory_l2_sectors_global_ideal": ("Sectors of the L2 that the accesses of global memory need at least.", "sector"),
    "memory_l2_sectors_local": ("Sectors of 32 bytes that accesses of local memory asked of the L2.", "sector"),
    "memory_l2_theoretical_sectors_global": ("Sectors of 32 bytes that the addresses of global accesses touch.", "sector"),
    "memory_l2_theoretical_sectors_global_ideal": (
        "Sectors that the accesses of global memory need at least, were their "
        "addresses in a row.", "sector"),
    "memory_l2_theoretical_sectors_local": ("Sectors of 32 bytes that the addresses of local accesses touch.", "sector"),
    "derived__memory_l1_conflicts_shared_nway": (
        "How many threads of a warp meet in one bank of shared memory: 1 is none.", "way"),
    "derived__memory_l1_sectors_shared_excessive": ("Sectors of shared memory beyond what the accesses need.", "sector"),
    "derived__memory_l1_wavefronts_shared_excessive": (
        "Wavefronts of shared memory beyond what the accesses need: bank "
        "conflicts.", "wavefront"),
    "derived__memory_l2_sectors_global_excessive": (
        "Sectors of the L2 beyond what the accesses of global memory need.", "sector"),
    "derived__memory_l2_theoretical_sectors_global_excessive": (
        "Sectors of global memory beyond what the accesses need: threads of a warp whose addresses lie apart.", "sector"),
    "derived__local_spilling_requests": ("Requests to local memory for registers that were spilled.", "request"),
    "derived__local_spilling_requests_pct": ("Share of requests to memory that registers which were spilled make.", "%"),
    "derived__smsp__inst_executed_op_branch_pct": ("Share of instructions that are branches.", "%"),
    "derived__avg_thread_executed": ("Threads active in a warp instruction, of 32, of each line of the source.", "thread"),
    "derived__avg_thread_executed_true": (
        "Threads active in a warp instruction and not switched off by a predicate, of 32, of each line of the source.", "thread"),
    "derived__avg_thread_unexecuted_true": (
        "Threads of 32 that did not take part in a warp instruction, of each line of the "
        "source.", "thread"),
    "derived__derivative_avg_thread_executed_true": ("How the active threads change from line to line of the source.", "thread"),
    "derived__pct_occupancy_per_block_size": ("Theoretical occupancy for other block sizes, a value for each.", "%"),
    "derived__pct_occupancy_per_register_count": ("Theoretical occupancy for other counts of registers, a value for each.", "%"),
    "derived__pct_occupancy_per_shared_mem_size": (
        "Theoretical occupancy for other sizes of shared memory, a value for each.", "%"),
    "derived__pct_occupancy_per_barrier_count": ("Theoretical occupancy for other counts of barriers, a value for each.", "%"),
    "smsp__branch_targets_threads_divergent": (
        "Branches at which the threads of a warp went different ways, of each line of "
        "the source.", "branch"),
}
_DIMENSION = re.compile(r"launch__(block|grid|cluster)_dim_([xyz])", re.ASCII)
_OF = {"block": ("Threads of a block", "thread"), "grid": ("Blocks of the grid", "block"),
       "cluster": ("Blocks of a cluster", "block")}
_TEMPORARY = re.compile(r"derived_tempMetric\d{1,4}", re.ASCII)
_ATTRIBUTE, _REGEX = "device__attribute_", "regex:"
# how a property's name ends or begins -> its unit; the first that fits
_UNIT_OF = (
    (re.compile(r"(?:_supported|_v1)$|^(?:can_|integrated|tcc_|mps_|ecc_|cooperative_|concurrent_|managed_|pageable_|direct_|is_"
                r"|unified_|kernel_exec|gpu_overlap|cluster_launch|multi_gpu_board$|host_native)"), YES_NO),
    (re.compile(r"_khz$|clock_rate$"), "kHz"), (re.compile(r"bus_width$"), "bit"),
    (re.compile(r"cache_size|_memory(?:_|$)|_pitch|alignment|window_size"), "byte"), (re.compile(r"warps"), "warp"),
    (re.compile(r"threads|block_dim|warp_size"), "thread"), (re.compile(r"registers"), "register"),
    (re.compile(r"blocks|cta|grid_dim"), "block"),
    (re.compile(r"width|height|depth"), "texel"), (re.compile(r"name|chip|architecture|type|mode|location|implementation"), WORD),
    (re.compile(r"ratio"), "ratio"), (re.compile(r"count|^num_|layers"), "count"),
)


def own_sentence(name: str) -> tuple[str, str] | None:
    """Return (sentence, unit) of a metric that has its own; None of all others. `name`: without roll-up, submetric, instance."""
    if name in OWN:
        return OWN[name]
    if match := _DIMENSION.fullmatch(name):
        what, unit = _OF[match[1]]
        return f"{what} along {match[2]}.", unit
    if _TEMPORARY.fullmatch(name):
        return "A step on the way to another metric, which Nsight Compute keeps.", NUMBER
    if name.startswith(_ATTRIBUTE):
        words = name.removeprefix(_ATTRIBUTE)
        unit = next((unit_name for pattern, unit_name in _UNIT_OF if pattern.search(words)), NUMBER)
        return f"Property of the GPU: {words.replace('_', ' ')}.", unit
    if name.startswith(_REGEX):
        return "The metrics of the report whose names fit this pattern.", WORD
    return None
