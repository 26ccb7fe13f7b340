"""The memory tables of a launch: shared memory, L1, L2 and device memory, one row per kind of access.

As Nsight Compute's section MemoryWorkloadAnalysis_Tables has them (Kernel Profiling Guide, "Memory Tables"); a sector is 32 bytes,
a wavefront one pass through the L1's data stage. Rows of which nothing was executed are left out.
"""

from __future__ import annotations

from dataclasses import dataclass

from profiles.analysis.kernel.metrics import Metrics, number
from profiles.ingest.trace import SummaryColumn, SummaryTable

SECTOR_BYTES = 32
PCT = ".pct_of_peak_sustained_elapsed"
Value = float | str | None


def tables(metrics: Metrics) -> list[SummaryTable]:
    made = [_shared_memory_table(metrics), _l1_table(metrics), _l2_table(metrics), _device_memory_table(metrics)]
    return [table for table in made if table.rows]


_SHARED = {"Loads": ("ld", "smsp__inst_executed_op_ldsm.sum"), "Stores": ("st", "smsp__inst_executed_op_shared_stsm.sum"),
           "Atomics": ("atom", "")}         # with the instructions for matrices, which the first count leaves out


def _shared_memory_table(metrics: Metrics) -> SummaryTable:
    """Wavefronts beyond what an access needs are bank conflicts: an instruction of 4 bytes per thread needs one, one of 16 bytes
    or of four matrices needs four."""
    rows: list[list[Value]] = []
    for label, (op, matrices) in _SHARED.items():
        instructions = number(metrics, f"smsp__sass_inst_executed_op_shared_{op}.sum", f"smsp__inst_executed_op_shared_{op}.sum",
                              f"sass__inst_executed_shared_{label.lower()}")
        if instructions is not None:
            instructions += number(metrics, matrices) or 0.0
        waves = number(metrics, f"l1tex__data_pipe_lsu_wavefronts_mem_shared_op_{op}.sum",
                       f"smsp__sass_l1tex_data_pipe_lsu_wavefronts_mem_shared_op_{op}.sum")
        conflicts = number(metrics, f"l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_{op}.sum")
        rows.append([label, instructions, waves, _ratio(waves, instructions), conflicts,
                     number(metrics, f"l1tex__data_pipe_lsu_wavefronts_mem_shared_op_{op}.sum{PCT}",
                            f"smsp__sass_l1tex_data_pipe_lsu_wavefronts_mem_shared_op_{op}.sum{PCT}")])
    total = number(metrics, "l1tex__data_pipe_lsu_wavefronts_mem_shared.sum")
    rows.append(["All, as the L1 counts them", None, total, None,
                 number(metrics, "l1tex__data_bank_conflicts_pipe_lsu_mem_shared.sum"),
                 number(metrics, f"l1tex__data_pipe_lsu_wavefronts_mem_shared.sum{PCT}")])
    rows = [row for row in rows if any(isinstance(cell, float) and cell > 0 for cell in row[1:])]
    return _table("Shared memory", [("Access", ""), ("Instructions", ""), ("Wavefronts", ""), ("Wavefronts per instruction", ""),
                                    ("Bank conflicts", ""), ("Of peak", "pct")], rows if len(rows) > 1 or total else [])


_LD, _SASS = "smsp__sass_inst_executed_op_", "sass__inst_executed_"
_L1: list[tuple[str, str, tuple[str, ...]]] = [
    ("Global loads", "pipe_lsu_mem_global_op_ld", (f"{_LD}global_ld.sum", f"{_SASS}global_loads")),
    ("Global stores", "pipe_lsu_mem_global_op_st", (f"{_LD}global_st.sum", f"{_SASS}global_stores")),
    ("Global atomics", "pipe_lsu_mem_global_op_atom", ("smsp__inst_executed_op_generic_atom_dot_alu.sum",)),
    ("Global reductions", "pipe_lsu_mem_global_op_red", ("smsp__inst_executed_op_global_red.sum",)),
    ("Local loads", "pipe_lsu_mem_local_op_ld", (f"{_LD}local_ld.sum", f"{_SASS}local_loads")),
    ("Local stores", "pipe_lsu_mem_local_op_st", (f"{_LD}local_st.sum", f"{_SASS}local_stores")),
    ("Textures", "pipe_tex_mem_texture", ("smsp__inst_executed_op_texture.sum",)),
    ("Surface loads", "pipe_tex_mem_surface_op_ld", ("smsp__inst_executed_op_surface_ld.sum",)),
    ("Surface stores", "pipe_tex_mem_surface_op_st", ("smsp__inst_executed_op_surface_st.sum",)),
]


def _l1_table(metrics: Metrics) -> SummaryTable:
    """Sectors per request say how well the threads of a warp lie beside each other: 4 for 4 bytes a thread, 16 for 16."""
    rows: list[list[Value]] = []
    for label, kind, instructions in _L1:
        requests, sectors = number(metrics, f"l1tex__t_requests_{kind}.sum"), number(metrics, f"l1tex__t_sectors_{kind}.sum")
        if not requests and not sectors:
            continue
        hits = number(metrics, f"l1tex__t_sectors_{kind}_lookup_hit.sum")
        hit = 100.0 * hits / sectors if hits is not None and sectors else number(
            metrics, f"l1tex__t_sector_{kind}_hit_rate.pct", f"l1tex__t_sector_{kind}_op_tex_hit_rate.pct")
        asked = number(metrics, *instructions)
        if asked is not None and label == "Global loads":        # a cp.async is a load of global memory here
            asked += number(metrics, "smsp__inst_executed_op_ldgsts.sum") or 0.0
        rows.append([label, asked, requests, sectors, _ratio(sectors, requests), hit, _bytes(sectors)])
    return _table("L1 cache", [("Access", ""), ("Instructions", ""), ("Requests", ""), ("Sectors", ""), ("Sectors per request", ""),
                               ("Hits", "pct"), ("Looked up", "bytes")], rows)


_L2 = {"Loads": "op_read", "Stores": "op_write", "Reductions": "op_red", "Atomics": "op_atom_dot_alu",
       "Atomics, compare": "op_atom_dot_cas"}


def _l2_table(metrics: Metrics) -> SummaryTable:
    """What the SMs ask of the L2; hits by sectors found of sectors looked up."""
    rows: list[list[Value]] = []
    for label, op in _L2.items():
        name = f"lts__t_sectors_srcunit_tex_{op}"
        requests, sectors = number(metrics, f"lts__t_requests_srcunit_tex_{op}.sum"), number(metrics, f"{name}.sum")
        if not requests and not sectors:
            continue
        hits, misses = number(metrics, f"{name}_lookup_hit.sum"), number(metrics, f"{name}_lookup_miss.sum")
        hit_pct = 100.0 * hits / (hits + misses) if hits is not None and misses is not None and hits + misses else None
        rows.append([label, requests, sectors, _ratio(sectors, requests), hit_pct, _bytes(sectors),
                     _bytes(number(metrics, f"{name}.sum.per_second")), number(metrics, f"{name}.avg{PCT}")])
    return _table("L2 cache", [("Access", ""), ("Requests", ""), ("Sectors", ""), ("Sectors per request", ""), ("Hits", "pct"),
                               ("Moved", "bytes"), ("Rate", "B/s"), ("Of peak", "pct")], rows)


def _bytes(sectors: float | None) -> float | None:
    return None if sectors is None else sectors * SECTOR_BYTES


def _device_memory_table(metrics: Metrics) -> SummaryTable:
    rows: list[list[Value]] = []
    for label, way in (("Read", "read"), ("Written", "write")):
        moved = number(metrics, f"dram__bytes_{way}.sum")
        if moved is not None:
            rows.append([label, number(metrics, f"dram__sectors_{way}.sum"), moved,
                         number(metrics, f"dram__bytes_{way}.sum.per_second"), number(metrics, f"dram__bytes_{way}.sum{PCT}")])
    return _table("Device memory", [("Access", ""), ("Sectors", ""), ("Moved", "bytes"), ("Rate", "B/s"), ("Of peak", "pct")], rows)


def _table(title: str, columns: list[tuple[str, str]], rows: list[list[Value]]) -> SummaryTable:
    return SummaryTable(title, [SummaryColumn(name, unit, text=index == 0) for index, (name, unit) in enumerate(columns)],
                        [list(row) for row in rows])


def _ratio(a: float | None, b: float | None) -> float | None:
    return a / b if a is not None and b else None


@dataclass(frozen=True)
class Waste:
    """Work that a better access pattern would save."""

    what: str
    advice: str
    done: float
    needed: float

    @property
    def excess_pct(self) -> float:
        return 100.0 * (self.done - self.needed) / self.done if self.done else 0.0


# what, what to do, metrics of what was done, metric of what an ideal pattern needs ("": nothing)
_WASTES: list[tuple[str, str, tuple[str, ...], str]] = [
    ("sectors asked for by global memory accesses", "Let neighbouring threads use neighbouring addresses: nobody reads what else "
     "these sectors carry.", ("memory_l2_theoretical_sectors_global",), "memory_l2_theoretical_sectors_global_ideal"),
    ("wavefronts of shared memory", "Pad or swizzle the array: threads of a warp meet in the same bank.",
     ("memory_l1_wavefronts_shared",), "memory_l1_wavefronts_shared_ideal"),
    ("requests of spilled registers to local memory",
     "Use fewer registers per thread, or allow more (launch bounds, smaller tiles).",
     ("sass__inst_executed_register_spilling", "derived__local_spilling_requests"), ""),
]
SHOWN_PCT = 5.0                          # of the accesses: less is noise


def wastes(metrics: Metrics) -> list[Waste]:
    """Return work that a better access pattern would save.

    From the report's own counts of what was done and what an ideal pattern needs (source metrics).
    """
    wastes = []
    for what, advice, names, ideal in _WASTES:
        done, needed = number(metrics, *names), number(metrics, ideal) if ideal else 0.0
        if done and needed is not None:
            waste = Waste(what, advice, done, needed)
            if waste.excess_pct >= SHOWN_PCT:
                wastes.append(waste)
    return wastes
