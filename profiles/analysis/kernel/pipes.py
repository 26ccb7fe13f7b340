"""Which pipes of the SM a kernel keeps busy, and what instructions it is made of.

Source of the pipes: Nsight Compute, Kernel Profiling Guide, "Pipelines"; of the opcodes: CUDA Binary Utilities, "Instruction Set
Reference" (https://docs.nvidia.com/cuda/cuda-binary-utilities/).
"""

from __future__ import annotations

from dataclasses import dataclass

from profiles.analysis.core.sentences import si_text
from profiles.analysis.kernel.metrics import Metrics, number

ACTIVE, ELAPSED = ".avg.pct_of_peak_sustained_active", ".avg.pct_of_peak_sustained_elapsed"
# pipe -> metrics of its utilisation (cycles before instructions: an instruction may hold its pipe for several), meaning
PIPES: dict[str, tuple[tuple[str, ...], str]] = {
    "Tensor": (("sm__pipe_tensor_cycles_active", "sm__inst_executed_pipe_tensor"), "matrix multiply-adds"),
    "Tensor, FP64": (("sm__pipe_tensor_op_dmma_cycles_active", "sm__inst_executed_pipe_tensor_op_dmma"), "double-precision DMMA"),
    "Tensor, HMMA": (("sm__pipe_tensor_op_hmma_cycles_active", "sm__inst_executed_pipe_tensor_op_hmma"), "FP16, BF16, TF32, FP8"),
    "Tensor, IMMA": (("sm__pipe_tensor_op_imma_cycles_active", "sm__inst_executed_pipe_tensor_op_imma"), "integer IMMA"),
    "FMA": (("sm__pipe_fma_cycles_active", "sm__inst_executed_pipe_fma"), "FP32 arithmetic, integer multiply-adds"),
    "FP16": (("sm__inst_executed_pipe_fp16", "sm__inst_executed_pipe_fma_type_fp16"), "half precision outside the tensor pipe"),
    "FP64": (("sm__pipe_fp64_cycles_active", "sm__inst_executed_pipe_fp64"), "double precision"),
    "ALU": (("sm__pipe_alu_cycles_active", "sm__inst_executed_pipe_alu"), "integer, logic, comparisons, conversions"),
    "XU": (("sm__inst_executed_pipe_xu",), "special functions (exp, root, sin), some conversions"),
    "Uniform": (("sm__inst_executed_pipe_uniform",), "one result for the whole warp"),
    "LSU": (("sm__inst_executed_pipe_lsu",), "loads and stores of global, local and shared memory"),
    "TEX": (("sm__inst_executed_pipe_tex",), "textures and surfaces"),
    "TMA": (("sm__pipe_tma_cycles_active", "sm__inst_executed_pipe_tma"), "bulk copies of the tensor memory accelerator"),
    "ADU": (("sm__inst_executed_pipe_adu",), "address divergence: constants, barriers, indirect branches"),
    "CBU": (("sm__inst_executed_pipe_cbu", "sm__inst_executed_pipe_cbu_pred_on_any"), "branches and convergence"),
}


@dataclass(frozen=True)
class Pipe:
    name: str
    meaning: str
    metric: str
    pct: float                           # of the pipe's peak; `of` says while what
    of: str                              # "active": cycles in which the SM had a warp | "elapsed": the whole kernel


def pipes(metrics: Metrics) -> list[Pipe]:
    """Return the SM's pipes, busiest first.

    Of active cycles where the report has them, as NVIDIA's chart; else of elapsed ones.
    """
    busy = []
    for name, (stems, meaning) in PIPES.items():
        for metric in (stem + rollup for rollup in (ACTIVE, ELAPSED) for stem in stems):
            value = number(metrics, metric)
            if value is not None:
                busy.append(Pipe(name, meaning, metric, value, "active" if metric.endswith(ACTIVE) else "elapsed"))
                break
    return sorted(busy, key=lambda pipe: -pipe.pct)


# Beginnings of opcodes by what they do, the longest that fits wins. A SASS name keeps its beginning over architectures.
GROUPS: dict[str, tuple[str, ...]] = {
    "Tensor": ("HMMA", "IMMA", "DMMA", "BMMA", "QMMA", "OMMA", "HGMMA", "IGMMA", "BGMMA", "QGMMA", "UTCHMMA", "UTCIMMA", "UTCQMMA",
               "UTCOMMA"),
    "FP64": ("DADD", "DFMA", "DMUL", "DSETP", "DMNMX"),
    "FP32": ("FADD", "FFMA", "FMUL", "FCHK", "FMNMX", "FSEL", "FSET", "FSWZADD", "FADD2", "FFMA2", "FMUL2"),
    "FP16": ("HADD2", "HFMA2", "HMUL2", "HSET", "HMNMX2"),
    "Special": ("MUFU", "FRND"),
    "Conversion": ("F2F", "F2I", "I2F", "I2I", "F2FP", "I2FP", "F2IP", "I2IP"),
    "Integer": ("IADD", "IMAD", "IMUL", "IABS", "IDP", "IMNMX", "ISETP", "ISCADD", "LEA", "LOP", "SHF", "SHL", "SHR", "BFE", "BFI",
                "BREV", "FLO", "POPC", "PLOP", "PRMT", "SEL", "SGXT", "VABSDIFF", "VIADD", "VIMNMX", "VHMNMX", "VIADDMNMX", "BMSK"),
    "Uniform": ("U",),
    "Global memory": ("LD", "LDG", "ST", "STG", "LDGSTS", "CCTL", "QSPC"),
    "Local memory": ("LDL", "STL"),
    "Shared memory": ("LDS", "LDSM", "STS", "STSM", "STAS", "LDTM", "STTM"),
    "Bulk copy (TMA)": ("UBLKCP", "UBLKPF", "UBLKRED", "UTMA"),
    "Atomics": ("ATOM", "ATOMG", "ATOMS", "RED", "REDG", "REDAS", "UREDGR"),
    "Texture and surface": ("TEX", "TLD", "TMML", "TXD", "TXQ", "SULD", "SUST", "SUATOM", "SURED"),
    "Constants": ("LDC", "ULDC"),
    "Barriers and fences": ("BAR", "B2R", "R2B", "DEPBAR", "MEMBAR", "ERRBAR", "SYNCS", "ARRIVES", "WARPSYNC", "LDGDEPBAR", "FENCE",
                            "UCGABAR", "CGAERRBAR", "ACQBULK", "ELECT", "WARPGROUP"),
    "Control": ("BRA", "BRX", "JMP", "JMX", "CALL", "RET", "EXIT", "BREAK", "BSSY", "BSYNC", "BMOV", "BPT", "KILL",
                "NANOSLEEP", "YIELD", "RPCMOV", "ENDCOLLECTIVE", "NOP", "PREEXIT", "ACQSHMINIT"),
    "Shuffles and votes": ("SHFL", "VOTE", "REDUX", "CREDUX", "MATCH", "VOTEU"),
    "Moves": ("MOV", "S2R", "S2UR", "CS2R", "R2UR", "R2P", "P2R", "PMTRIG", "SETCTAID", "MOVM", "USETMAXREG", "LEPC"),
}
_BY_BEGINNING = sorted(((beginning, group) for group, beginnings in GROUPS.items() for beginning in beginnings),
                       key=lambda pair: -len(pair[0]))
FEW_THREADS = 24                         # of 32 active on average: below this the page says so
MIX = "sass__inst_executed_per_opcode["


def group_of(opcode: str) -> str:
    return next((group for beginning, group in _BY_BEGINNING if opcode.startswith(beginning)), "Other")


@dataclass(frozen=True)
class Opcode:
    name: str
    group: str
    warps: float                         # warp instructions executed
    share_pct: float


@dataclass(frozen=True)
class Mix:
    """What a launch executed."""

    total: float                         # warp instructions
    opcodes: list[Opcode]                # most first
    groups: list[tuple[str, float, float]]     # (group, warp instructions, share 0-100), most first
    active_threads: float | None         # per warp instruction, of 32
    predicated_threads: float | None     # of those, not switched off by a predicate

    @property
    def top(self) -> list[Opcode]:
        return self.opcodes[:20]


def mix(metrics: Metrics) -> Mix | None:
    """Return the instruction mix from the report's counts per opcode, or None."""
    counts = {name[len(MIX):-1]: float(value) for name, value in metrics.items()
              if name.startswith(MIX) and isinstance(value, int | float) and value > 0}
    total = sum(counts.values())
    if not total:
        return None
    opcodes = [Opcode(name, group_of(name), count, 100.0 * count / total)
               for name, count in sorted(counts.items(), key=lambda pair: (-pair[1], pair[0]))]
    sums: dict[str, float] = {}
    for opcode in opcodes:
        sums[opcode.group] = sums.get(opcode.group, 0.0) + opcode.warps
    groups = [(group, count, 100.0 * count / total) for group, count in sorted(sums.items(), key=lambda pair: -pair[1])]
    return Mix(total, opcodes, groups, number(metrics, "smsp__thread_inst_executed_per_inst_executed.ratio"),
               number(metrics, "smsp__thread_inst_executed_pred_on_per_inst_executed.ratio"))


def sentence(busy: list[Pipe], instructions: Mix | None) -> str:
    said = []
    if busy:
        said.append(f"The busiest pipe is {busy[0].name} ({busy[0].meaning}): {busy[0].pct:.3g} % of {busy[0].of} cycles.")
    if instructions:
        parts = ", ".join(f"{group} {share:.3g} %" for group, _, share in instructions.groups[:4])
        said.append(f"Of {si_text(instructions.total, '').strip()} warp instructions: {parts}.")
        if instructions.active_threads is not None and instructions.active_threads < FEW_THREADS:
            said.append(f"On average only {instructions.active_threads:.3g} of a warp's 32 threads are active: they take different "
                        "branches, or blocks are no multiple of 32.")
    return " ".join(said)
