"""The words that names of metrics are built of.

Source: Nsight Compute, Kernel Profiling Guide, "Metrics Structure" (names, roll-ups, submetrics, hardware model), "Metrics
Decoder" and "Metrics Reference" (units, pipes, quantities, qualifiers). Words are ours. Keys stand as in names: parts of a name
are joined by "_", and the longest key that fits wins.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple


class Quantity(NamedTuple):
    """What is counted, and the unit of one of them; "" of what has none (a share, a hit rate)."""

    words: str
    unit: str


UNITS: Mapping[str, str] = {
    "sm": "the SMs (streaming multiprocessors)", "smsp": "the SMs' sub-partitions, each with a warp scheduler",
    "tpc": "the TPCs (pairs of SMs)", "gpc": "the GPCs (clusters of SMs)", "gpu": "the whole GPU", "gr": "the graphics engine",
    "fe": "the front end", "l1tex": "the L1/TEX cache, which shared memory is part of", "lts": "the L2 cache, slice by slice",
    "ltc": "the L2 cache controllers", "lrc": "the L2 request coalescer, between SMs and L2", "dram": "device memory (DRAM)",
    "dramc": "the controllers of device memory",
    "fbpa": "the framebuffer partitions, which device memory hangs on", "fbp": "the framebuffer partitions",
    "gcc": "the constant and instruction cache of a GPC (L1.5)", "idc": "the indexed constant cache of an SM",
    "imc": "the immediate constant cache", "nvlrx": "NVLink, receiving", "nvltx": "NVLink, sending", "pcie": "PCI Express",
    "sys": "system memory and its bus", "mcc": "the memory controller of an integrated GPU", "ctc": "the chip-to-chip link",
    "vidl1": "the L1/TEX cache", "ltcfabric": "the fabric between L2 partitions", "smpc": "the performance counters of the SMs",
    "host": "the host interface", "pm": "the performance monitor", "crop": "the colour raster unit",
        "zrop": "the depth raster unit",
    "raster": "the rasteriser", "prop": "the pre-raster unit", "vpc": "the viewport clipper", "pda": "the primitive distributor",
    "pes": "the primitive engine", "mpc": "the work distributor of a TPC", "cta": "thread blocks",
        "tga": "the tiled attribute unit",
    "sass": "the machine code (SASS), by instrumentation",
}

# parts of a unit and stages of its pipelines
STAGES: Mapping[str, str] = {
    "t": "tag stage", "d": "data stage", "m": "stage of misses, towards the L2", "f": "filter stage", "data": "data stage",
    "data_pipe": "data stage", "data_pipe_lsu": "data stage, load/store side", "data_pipe_tex": "data stage, texture side",
    "t_output": "output of the tag stage", "lsuin": "entry of the load/store side", "texin": "entry of the texture side",
    "tmain": "entry of the tensor memory accelerator",
    "lsu_writeback": "write-back of the load/store side to the registers", "tex_writeback": "write-back of the texture side",
    "f_tex2sm": "from the filter stage to the SM",
    "mio": "memory input/output unit (MIO)", "mio_pq": "queue of the memory input/output unit",
    "mio2rf_writeback": "write-back from the memory input/output unit to the registers",
    "m_l1tex2xbar": "from the L1 to the crossbar, towards the L2", "m_xbar2l1tex": "from the crossbar back to the L1",
    "m_l1tex2xbar_req": "requests from the L1 to the crossbar", "texin_sm2tex_req": "requests from the SM to the texture side",
    "lts2xbar": "from the L2 to the crossbar, towards the SMs", "xbar2lts": "from the crossbar to the L2",
    "lts2lrc": "from the L2 to its request coalescer", "xbar2gpc": "from the crossbar to the GPCs",
    "xbar2gcc": "from the crossbar to the constant cache", "lts2fbp": "from the L2 to device memory",
    "fbp2lts": "from device memory to the L2", "ltc2fbpa": "from the L2 to device memory",
    "d_atomic_input": "input of the atomic unit", "d_decomp_input": "input of the decompressor",
    "gcomp_input": "input of the compression of compute data", "gcomp_output": "output of the compression of compute data",
    "ilc_input": "input of the in-line compression", "ilc_output": "output of the in-line compression",
    "imc": "immediate constant cache", "icc": "instruction cache", "cache": "cache", "l1tex_t": "tag stage of the L1",
    "l1tex_data": "data stage of the L1", "l1tex_data_pipe_lsu": "data stage of the L1, load/store side",
    "l1tex_m_xbar2l1tex": "from the crossbar back to the L1", "l1tex_m_l1tex2xbar": "from the L1 to the crossbar",
    "dram": "device memory", "request": "requests", "texin_requests": "entry of the texture side",
}

QUANTITIES: Mapping[str, Quantity] = {
    "bytes": Quantity("bytes moved", "byte"), "bytes_read": Quantity("bytes read", "byte"),
    "bytes_write": Quantity("bytes written", "byte"), "read_bytes": Quantity("bytes read", "byte"),
    "write_bytes": Quantity("bytes written", "byte"), "data_bytes": Quantity("bytes of data", "byte"),
    "data_bytes_read": Quantity("bytes of data read", "byte"), "data_bytes_write": Quantity("bytes of data written", "byte"),
    "bytes_data": Quantity("bytes of data", "byte"),
    "bytes_data_user": Quantity("bytes of payload", "byte"), "bytes_data_protocol": Quantity("bytes of the protocol", "byte"),
    "sectors": Quantity("sectors of 32 bytes", "sector"), "sector": Quantity("sectors of 32 bytes", "sector"),
    "sectors_read": Quantity("sectors of 32 bytes read", "sector"),
    "sectors_write": Quantity("sectors of 32 bytes written", "sector"),
    "read_sectors": Quantity("sectors of 32 bytes read", "sector"),
    "write_sectors": Quantity("sectors of 32 bytes written", "sector"),
    "input_sectors": Quantity("sectors of 32 bytes that go in", "sector"),
    "input_sector": Quantity("sectors of 32 bytes that go in", "sector"),
    "output_sectors": Quantity("sectors of 32 bytes that come out", "sector"),
    "output_sector": Quantity("sectors of 32 bytes that come out", "sector"),
    "sectors_fill_device": Quantity("sectors of 32 bytes filled from device memory", "sector"),
    "sectors_fill_sysmem": Quantity("sectors of 32 bytes filled from system memory", "sector"),
    "sectors_data_ecc": Quantity("sectors of 32 bytes for error correction", "sector"),
    "requests": Quantity("requests", "request"), "request": Quantity("requests", "request"),
    "cache_requests": Quantity("cache requests", "request"), "cache_request": Quantity("cache requests", "request"),
    "set_accesses": Quantity("accesses of a set of the cache", "access"),
    "tag_requests": Quantity("requests to the tags", "request"), "tags": Quantity("tag look-ups", "tag"),
    "wavefronts": Quantity("wavefronts (passes through the stage)", "wavefront"),
    "bank_conflicts": Quantity("bank conflicts (further passes since threads of a warp meet in one bank)", "conflict"),
    "data_bank_conflicts": Quantity("bank conflicts (further passes since threads of a warp meet in one bank)", "conflict"),
    "data_bank_reads": Quantity("reads of data banks", "read"), "data_bank_writes": Quantity("writes of data banks", "write"),
    "inst_executed": Quantity("warp instructions executed", "inst"), "inst_issued": Quantity("warp instructions issued", "inst"),
    "mio_inst_issued": Quantity("warp instructions issued to the memory input/output unit", "inst"),
    "thread_inst_executed": Quantity("thread instructions executed (each warp instruction times its active threads)", "inst"),
    "issue_active": Quantity("cycles in which a warp issued an instruction", "cycle"),
    "issue_inst0": Quantity("cycles in which no warp issued an instruction", "cycle"),
    "issue_inst1": Quantity("cycles in which one instruction was issued", "cycle"),
    "warps_active": Quantity("warps resident", "warp"),
    "warps_eligible": Quantity("warps that could issue their next instruction", "warp"),
    "warps_launched": Quantity("warps launched", "warp"), "threads_launched": Quantity("threads launched", "thread"),
    "ctas_launched": Quantity("thread blocks launched", "block"), "ctas_active": Quantity("thread blocks resident", "block"),
    "cgas_launched": Quantity("clusters of thread blocks launched", "cluster"),
    "cgas_active": Quantity("clusters of thread blocks resident", "cluster"),
    "cycles_active": Quantity("cycles in which it worked", "cycle"), "cycles_elapsed": Quantity("cycles that passed", "cycle"),
    "cycles_in_region": Quantity("cycles of the measured range", "cycle"),
    "active": Quantity("cycles in which it worked", "cycle"),
    "request_cycles_active": Quantity("cycles in which requests were worked on", "cycle"),
    "cycles_stalled": Quantity("cycles in which it was stalled", "cycle"),
    "read_cycles_active": Quantity("cycles in which it was read", "cycle"),
    "write_cycles_active": Quantity("cycles in which it was written", "cycle"),
    "ops": Quantity("operations", "op"), "hit_rate": Quantity("hit rate: found of looked up", "%"),
    "success_rate": Quantity("rate of successes", "%"), "compression_rate": Quantity("rate of compression", ""),
    "compression_achieved_rate": Quantity("compression reached", ""),
    "throughput": Quantity("throughput: the busiest of its parts", "%"),
    "read_throughput": Quantity("throughput of reads", "%"), "write_throughput": Quantity("throughput of writes", "%"),
    "instruction_throughput": Quantity("throughput of instructions: the busiest of issue slots and pipes", "%"),
    "memory_throughput": Quantity("throughput of memory instructions: the busiest of the pipes for them", "%"),
    "compute_memory_throughput": Quantity(
        "throughput of memory as compute work uses it: the busiest of caches, links and DRAM", "%"),
    "compute_memory_access_throughput": Quantity("throughput of memory accesses: the busiest of the stages that hold data", "%"),
    "compute_memory_request_throughput": Quantity("throughput of memory requests: the busiest of the stages that carry them", "%"),
    "dram_throughput": Quantity("throughput of device memory", "%"),
    "time_duration": Quantity("time from the start of the launch to its end", "ns"),
    "time_active": Quantity("time in which it worked", "ns"),
    "branch_targets_threads_divergent": Quantity("branches at which the threads of a warp went different ways", "branch"),
    "branch_targets_threads_uniform": Quantity("branches at which the threads of a warp went one way", "branch"),
    "branch_targets": Quantity("branches with a target that is not the next instruction", "branch"),
    "average_branch_targets_threads_uniform": Quantity("share of branches at which the threads of a warp went one way", "%"),
    "average_data_bytes_per_sector": Quantity("bytes used of each sector of 32 bytes", "byte/sector"),
    "average_data_bytes_per_wavefront_mem_shared": Quantity("bytes of each wavefront of shared memory", "byte/wavefront"),
    "average_inst_executed_per_warp": Quantity("warp instructions executed by a warp", "inst/warp"),
    "average_t_sector": Quantity("share of the sectors of 32 bytes that were looked up", "%"),
    "average_t_sectors_per_request": Quantity("sectors of 32 bytes that a request takes", "sector/request"),
    "average_warp_latency_per_inst_issued": Quantity("cycles between two issued instructions of a warp", "cycle"),
    "average_warps_active_per_inst_executed": Quantity("cycles that a warp takes for an executed instruction", "cycle"),
    "average_warps_active_per_issue_active": Quantity("cycles that a warp takes for an issued instruction", "cycle"),
    "average_threads_launched_per_warp": Quantity("threads of a launched warp", "thread"),
    "average_thread_inst_executed_per_inst_executed": Quantity("threads active in a warp instruction, of 32", "thread"),
    "average_thread_inst_executed_pred_on_per_inst_executed": Quantity(
        "threads active in a warp instruction and not switched off by a predicate, of 32", "thread"),
    "thread_inst_executed_per_inst_executed": Quantity("threads active in a warp instruction, of 32", "thread"),
    "thread_inst_executed_pred_on_per_inst_executed": Quantity(
        "threads active in a warp instruction and not switched off by a predicate, of 32", "thread"),
    "maximum_warps_avg_per_active_cycle": Quantity("warps that may be resident at most, by the launch's resources", "warp"),
    "maximum_warps_per_active_cycle_pct": Quantity(
        "theoretical occupancy: warps that may be resident, of those that the SM holds", "%"),
    "average": Quantity("mean", ""),
}

PIPES: Mapping[str, str] = {
    "alu": "ALU pipe (integer, logic, comparisons)", "fma": "FMA pipe (FP32 multiply-adds)",
    "fmaheavy": "heavier half of the FMA pipe",
    "fmalite": "lighter half of the FMA pipe", "fp16": "FP16 pipe", "fp64": "FP64 pipe", "fp64_op_dmma": "FP64 pipe, DMMA",
    "lsu": "load/store unit", "tex": "texture unit", "tensor": "tensor pipe", "tensor_op_dmma": "tensor pipe, FP64 (DMMA)",
    "tensor_op_hmma": "tensor pipe, FP16, BF16, TF32 and FP8 (HMMA)", "tensor_op_imma": "tensor pipe, integers (IMMA)",
    "tensor_op_gmma": "tensor pipe, a warpgroup at a time (GMMA)", "tensor_op_bmma": "tensor pipe, binary (BMMA)",
    "tensor_fp": "tensor pipe, floating point", "tensor_int": "tensor pipe, integers",
    "tma": "tensor memory accelerator (bulk copies)", "uniform": "uniform pipe (one result for the warp)",
    "xu": "special-function and conversion unit (XU)", "adu": "address divergence unit", "cbu": "branch and convergence unit",
    "ipa": "interpolation unit", "shared": "pipe that FP64 and tensor work share", "bmma": "tensor pipe, binary",
}

OPERATIONS: Mapping[str, str] = {
    "ld": "loads", "st": "stores", "read": "reads", "write": "writes", "atom": "atomics that return a value",
    "red": "reductions (atomics without a result)",
    "atom_dot_alu": "atomics that compute", "atom_dot_cas": "atomics that compare and swap",
    "ldgsts": "asynchronous copies to shared memory (cp.async)",
    "ldsm": "loads of matrices (ldmatrix)", "stsm": "stores of matrices (stmatrix)", "tma_ld": "bulk loads (TMA)",
        "tma_st": "bulk stores (TMA)",
    "tma_red": "bulk reductions (TMA)", "redas": "asynchronous reductions in a cluster",
    "stas": "asynchronous stores in a cluster",
    "tex": "texture fetches", "branch": "branches", "texture": "textures", "gmma": "products of a warpgroup", "membar": "fences",
    "ffma": "FP32 multiply-adds", "fadd": "FP32 additions", "fmul": "FP32 multiplications", "dfma": "FP64 multiply-adds",
    "dadd": "FP64 additions", "dmul": "FP64 multiplications", "hfma": "FP16 multiply-adds", "hadd": "FP16 additions",
    "hmul": "FP16 multiplications", "integer": "integer arithmetic", "fp16": "FP16 arithmetic", "fp32": "FP32 arithmetic",
    "fp64": "FP64 arithmetic", "control": "control flow", "conversion": "conversions", "bit": "bit operations", "misc": "others",
    "inter_thread_communication": "shuffles and votes", "uniform": "uniform instructions", "memory": "memory instructions",
    "memory_8b": "accesses of 8 bits a thread", "memory_16b": "accesses of 16 bits a thread",
    "memory_32b": "accesses of 32 bits a thread",
    "memory_64b": "accesses of 64 bits a thread", "memory_128b": "accesses of 128 bits a thread",
    "fp32_special": "FP32 special functions",
    "ldc": "loads of constants", "cctl": "cache control", "fp16_pred_on": "FP16 arithmetic",
}
SPACES: Mapping[str, str] = {
    "global": "global memory", "local": "local memory (spills and arrays of a thread)", "shared": "shared memory",
    "dshared": "shared memory of other blocks in the cluster", "lg": "local and global memory",
    "lgds": "local, global and distributed shared memory", "surface": "surfaces", "texture": "textures", "constant": "constants",
    "generic": "generic addresses",
}

_OTHER: Mapping[str, str] = {
    "lookup_hit": "found there", "lookup_miss": "not found there", "hit": "found there", "miss": "not found there",
    "cmd_read": "reads", "cmd_write": "writes", "ops_generic": "at generic addresses",
    "realtime": "sampled while it ran", "internal_activity": "parts that are not shown alone",
    "pred_on": "threads not switched off by a predicate", "pred_off_all": "all threads switched off by a predicate",
    "pred_on_any": "some thread not switched off by a predicate",
    "cache_access": "through the L1", "cache_bypass": "past the L1", "srcunit_tex": "asked for by the L1/TEX caches",
    "srcunit_gcc": "asked for by the constant and instruction caches", "srcunit_ltcfabric": "asked for by the other L2 partition",
    "srcnode_gpc": "asked for by the SMs", "srcunit_crop": "asked for by the colour raster unit",
    "srcnode_fbp": "asked for by the framebuffer partitions", "srcnode_hub": "asked for by the host side (copies, front end)",
    "srcunit_hub": "asked for by the host side", "equiv_l1sectormiss": "as many as the L1's misses are",
    "aperture_device": "of device memory", "aperture_peer": "of another GPU's memory", "aperture_sysmem": "of the host's memory",
    "aperture_sysmem_op_write": "of the host's memory, writes",
    "evict_first": "marked to be evicted first", "evict_last": "marked to be evicted last", "evict_normal": "of normal eviction",
    "evict_normal_demote": "of normal eviction, demoted", "type_fp16": "FP16 instructions", "type_constant": "of constants",
    "type_instruction": "of instructions", "type_hfma2": "FP16 pairs", "op_hmma_type_hfma2": "FP16 pairs",
    "sparsity_on": "with structured sparsity", "sparsity_off": "without sparsity",
    "memdesc_explicit": "with an explicit cache policy", "missprop": "for misses", "hitprop": "for hits",
    "evict_type": "by kind of eviction", "data_ecc": "for error correction", "path_tensor": "on the tensor pipe",
    "x2": "counted as two operations each", "x4": "counted as four operations each", "x512": "counted as 512 operations each",
    "per_opcode": "by opcode", "per_opcode_category": "by kind of opcode",
    "per_opcode_with_modifier_all": "by opcode with its modifiers",
    "per_opcode_with_modifier_selective": "by opcode with the modifiers that matter",
    "true": "threads not switched off by a predicate",
    "register_spilling": "of registers spilled to local memory", "global_loads": "loads of global memory",
    "global_stores": "stores to global memory", "local_loads": "loads of local memory", "local_stores": "stores to local memory",
    "shared_loads": "loads of shared memory", "shared_stores": "stores to shared memory",
    "not_issued": "of cycles in which the scheduler issued nothing", "pct": "as a share",
}
_TYPES = ("bf16", "fp4", "fp6", "fp8", "fp16", "fp32", "fp64", "tf32", "int1", "int4", "int8", "int32", "hfma", "e4m3", "e5m2")
_MATRIX = ("hmma", "hgmma", "qgmma", "imma", "igmma", "bmma", "bgmma", "dmma", "utchmma", "utcqmma", "utcimma", "omma")
QUALIFIERS: dict[str, str] = {
    **{f"pipe_{key}": f"on the {words}" for key, words in PIPES.items()},
    **{f"op_{key}": words for key, words in OPERATIONS.items()},
    **{f"op_{kind}": f"{kind.upper()} instructions" for kind in _MATRIX},
    **{f"op_{space}_{key}": f"{words} of {SPACES[space]}" for space in SPACES for key, words in OPERATIONS.items()},
    **{f"op_{space}": f"accesses of {words}" for space, words in SPACES.items()},
    **{f"mem_{space}": f"of {words}" for space, words in SPACES.items()},
    **{f"ops_{kind}add_{kind}mul_{kind}fma": f"{words} additions, multiplications and multiply-adds"
       for kind, words in (("f", "FP32"), ("d", "FP64"), ("h", "FP16"))},
    **{f"src_{kind}": f"{kind.upper()} operands" for kind in _TYPES},
    **{f"dst_{kind}": f"{kind.upper()} results" for kind in _TYPES},
    "type_" + "_".join(("hmma", "hgmma", "qgmma", "imma", "igmma", "bmma", "bgmma")):
        "all kinds of matrix instructions but FP64's",
    **{f"type_{kind}": f"{kind.upper()} instructions" for kind in _MATRIX},
    **_OTHER,
}

ROLLUPS: Mapping[str, str] = {
    "sum": "sum over all units", "avg": "mean of the units", "min": "least of the units", "max": "most of the units",
}
SUBMETRICS: Mapping[str, tuple[str, str]] = {              # words, what becomes of the unit: "{}" is that of the quantity
    "": ("", "{}"), "per_second": ("per second", "{}/s"), "per_cycle_active": ("per cycle in which the unit worked", "{}/cycle"),
    "per_cycle_elapsed": ("per cycle that passed", "{}/cycle"),
    "per_cycle_in_region": ("per cycle of the measured range", "{}/cycle"),
    "per_cycle_in_frame": ("per cycle of the frame", "{}/cycle"),
    "peak_sustained": ("the most that the hardware can keep up, per cycle", "{}/cycle"),
    "peak_sustained_active": ("the most that the hardware can keep up, over the cycles in which the unit worked", "{}"),
    "peak_sustained_active.per_second": ("the most that the hardware can keep up, per second of work", "{}/s"),
    "peak_sustained_elapsed": ("the most that the hardware can keep up, over the cycles that passed", "{}"),
    "peak_sustained_elapsed.per_second": ("the most that the hardware can keep up, per second", "{}/s"),
    "peak_sustained_region": ("the most that the hardware can keep up, over the measured range", "{}"),
    "peak_sustained_region.per_second": ("the most that the hardware can keep up, per second of the measured range", "{}/s"),
    "peak_sustained_frame": ("the most that the hardware can keep up, over the frame", "{}"),
    "peak_sustained_frame.per_second": ("the most that the hardware can keep up, per second of the frame", "{}/s"),
    "pct_of_peak_sustained_active": ("share of what the hardware can keep up, over the cycles in which the unit worked", "%"),
    "pct_of_peak_sustained_elapsed": ("share of what the hardware can keep up, over the cycles that passed", "%"),
    "pct_of_peak_sustained_region": ("share of what the hardware can keep up, over the measured range", "%"),
    "pct_of_peak_sustained_frame": ("share of what the hardware can keep up, over the frame", "%"),
    "pct_of_peak_burst_active": ("share of the highest rate for a moment, over the cycles in which the unit worked", "%"),
    "pct_of_peak_burst_elapsed": ("share of the highest rate for a moment, over the cycles that passed", "%"),
}
RATIOS: Mapping[str, tuple[str, str]] = {
    "ratio": ("", "{}"), "pct": ("a share", "%"), "max_rate": ("the most that it can be", "{}"),
}
