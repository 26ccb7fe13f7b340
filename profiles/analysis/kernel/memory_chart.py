"""The memory chart of a launch: what its instructions ask for, what the caches answer, what moves between the levels.

The places and links are those of Nsight Compute's memory chart, the metrics those of its section MemoryWorkloadAnalysis_Chart;
names differ between architectures, so each amount lists the ones it may have. A sector is 32 bytes. Source: Kernel Profiling
Guide, "Memory Chart" (https://docs.nvidia.com/nsight-compute/ProfilingGuide/index.html#memory-chart).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from profiles.analysis.core.sentences import pct_of, pct_text, si_text
from profiles.analysis.kernel.metrics import DURATION, Metrics, number
from profiles.ingest.trace import CellRows, SummaryTable, summary_columns, with_rows

# The memory tables of a launch: shared memory, L1, L2 and device memory, one row per kind of access.
#
# As Nsight Compute's section MemoryWorkloadAnalysis_Tables has them (Kernel Profiling Guide, "Memory Tables"); a sector is 32
# bytes, a wavefront one pass through the L1's data stage. Rows of which nothing was executed are left out.

SECTOR_BYTES = 32
PCT = ".pct_of_peak_sustained_elapsed"


def tables(metrics: Metrics) -> list[SummaryTable]:
    parts = [_shared_memory_table(metrics), _l1_table(metrics), _l2_table(metrics), _device_memory_table(metrics)]
    return with_rows(parts)


_SHARED = {"Loads": ("ld", "smsp__inst_executed_op_ldsm.sum"), "Stores": ("st", "smsp__inst_executed_op_shared_stsm.sum"),
           "Atomics": ("atom", "")}         # with the instructions for matrices, which the first count leaves out


def _shared_memory_table(metrics: Metrics) -> SummaryTable:
    """Wavefronts beyond what an access needs are bank conflicts: an instruction of 4 bytes per thread needs one, one of 16 bytes
    or of four matrices needs four."""
    rows: CellRows = []
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
    return SummaryTable("Shared memory", summary_columns("Access: text | Instructions | Wavefronts | Wavefronts per instruction | "
                                                         "Bank conflicts | Of peak: pct"), rows if len(rows) > 1 or total else [])


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
    rows: CellRows = []
    for label, kind, instructions in _L1:
        requests, sectors = number(metrics, f"l1tex__t_requests_{kind}.sum"), number(metrics, f"l1tex__t_sectors_{kind}.sum")
        if not requests and not sectors:
            continue
        hits = number(metrics, f"l1tex__t_sectors_{kind}_lookup_hit.sum")
        hit = 100.0 * hits / sectors if hits is not None and sectors else number(
            metrics, f"l1tex__t_sector_{kind}_hit_rate.pct", f"l1tex__t_sector_{kind}_op_tex_hit_rate.pct")
        inst_count = number(metrics, *instructions)
        if inst_count is not None and label == "Global loads":        # a cp.async is a load of global memory here
            inst_count += number(metrics, "smsp__inst_executed_op_ldgsts.sum") or 0.0
        rows.append([label, inst_count, requests, sectors, _ratio(sectors, requests), hit, _bytes(sectors)])
    return SummaryTable("L1 cache", summary_columns("Access: text | Instructions | Requests | Sectors | Sectors per request | "
                                                    "Hits: pct | Looked up: bytes"), rows)


_L2 = {"Loads": "op_read", "Stores": "op_write", "Reductions": "op_red", "Atomics": "op_atom_dot_alu",
       "Atomics, compare": "op_atom_dot_cas"}


def _l2_table(metrics: Metrics) -> SummaryTable:
    """What the SMs ask of the L2; hits by sectors found of sectors looked up."""
    rows: CellRows = []
    for label, op in _L2.items():
        name = f"lts__t_sectors_srcunit_tex_{op}"
        requests, sectors = number(metrics, f"lts__t_requests_srcunit_tex_{op}.sum"), number(metrics, f"{name}.sum")
        if not requests and not sectors:
            continue
        hits, misses = number(metrics, f"{name}_lookup_hit.sum"), number(metrics, f"{name}_lookup_miss.sum")
        hit_pct = 100.0 * hits / (hits + misses) if hits is not None and misses is not None and hits + misses else None
        rows.append([label, requests, sectors, _ratio(sectors, requests), hit_pct, _bytes(sectors),
                     _bytes(number(metrics, f"{name}.sum.per_second")), number(metrics, f"{name}.avg{PCT}")])
    return SummaryTable("L2 cache", summary_columns("Access: text | Requests | Sectors | Sectors per request | Hits: pct | "
                                                    "Moved: bytes | Rate: B/s | Of peak: pct"), rows)


def _bytes(sectors: float | None) -> float | None:
    return None if sectors is None else sectors * SECTOR_BYTES


def _device_memory_table(metrics: Metrics) -> SummaryTable:
    rows: CellRows = []
    for label, way in (("Read", "read"), ("Written", "write")):
        moved = number(metrics, f"dram__bytes_{way}.sum")
        if moved is not None:
            rows.append([label, number(metrics, f"dram__sectors_{way}.sum"), moved,
                         number(metrics, f"dram__bytes_{way}.sum.per_second"), number(metrics, f"dram__bytes_{way}.sum{PCT}")])
    return SummaryTable("Device memory", summary_columns("Access: text | Sectors | Moved: bytes | Rate: B/s | Of peak: pct"), rows)


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
        return pct_of(self.done - self.needed, self.done)


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


Names = tuple[str, ...]


@dataclass(frozen=True)
class Place:
    """A box of the chart. `hit_pct`, `pct` where it has such: 0-100."""

    key: str
    title: str
    hit_pct: float | None = None
    pct: float | None = None             # of the peak of its busiest part
    note: str = ""


@dataclass(frozen=True)
class Link:
    """What goes from one place to another. `amount` None: not collected (the chart says so, and shows no zero)."""

    source: str
    target: str
    unit: str                            # "inst" | "req" | "B" | "wavefronts"
    amount: float | None
    rate: float | None                   # per second
    pct: float | None                    # of the link's peak
    metrics: tuple[str, ...]             # that it was made of


@dataclass(frozen=True)
class Chart:
    places: dict[str, Place]
    links: list[Link]
    sentence: str

    @property
    def collected(self) -> bool:
        return any(link.amount is not None for link in self.links)


# what the kernel's instructions name, each with its terms: the first metric of a term that the report has counts
SPACES: dict[str, tuple[str, list[Names], list[Names]]] = {
    # key -> title, instructions, requests
    "global": ("Global", [
        ("smsp__sass_inst_executed_op_global_ld.sum", "sass__inst_executed_global_loads"),
        ("smsp__sass_inst_executed_op_global_st.sum", "sass__inst_executed_global_stores"),
        ("smsp__inst_executed_op_generic_atom_dot_alu.sum",), ("smsp__inst_executed_op_generic_atom_dot_cas.sum",),
        ("smsp__inst_executed_op_global_red.sum",),
    ], [(f"l1tex__t_requests_pipe_lsu_mem_global_op_{op}.sum",) for op in ("ld", "st", "atom", "red")]),
    "local": ("Local", [
        ("smsp__sass_inst_executed_op_local_ld.sum", "sass__inst_executed_local_loads"),
        ("smsp__sass_inst_executed_op_local_st.sum", "sass__inst_executed_local_stores"),
    ], [(f"l1tex__t_requests_pipe_lsu_mem_local_op_{op}.sum",) for op in ("ld", "st")]),
    "texture": ("Texture", [("smsp__inst_executed_op_texture.sum",)], [("l1tex__t_requests_pipe_tex_mem_texture.sum",)]),
    "surface": ("Surface", [
        (f"smsp__inst_executed_op_surface_{op}.sum",) for op in ("ld", "st", "red", "atom_dot_alu", "atom_dot_cas")
    ], [(f"l1tex__t_requests_pipe_tex_mem_surface_op_{op}.sum",) for op in ("ld", "st", "red", "atom")]),
    "ldgsts": ("Global → shared (cp.async)", [("smsp__inst_executed_op_ldgsts.sum",)],
               [("sm__sass_l1tex_t_requests_pipe_lsu_mem_global_op_ldgsts.sum",)]),
    "shared": ("Shared", [
        ("smsp__sass_inst_executed_op_shared_ld.sum", "sass__inst_executed_shared_loads"),
        ("smsp__sass_inst_executed_op_shared_st.sum", "sass__inst_executed_shared_stores"),
        ("smsp__inst_executed_op_ldsm.sum",), ("smsp__inst_executed_op_shared_stsm.sum",),
        ("smsp__inst_executed_op_shared_atom.sum",), ("smsp__sass_inst_executed_op_shared_gmma.sum",),
    ], []),
    "tma": ("Bulk copies (TMA)", [
        ("smsp__inst_executed_op_tma_ld.sum", "smsp__sass_inst_executed_op_tma_ld.sum"),
        ("smsp__inst_executed_op_tma_st.sum", "smsp__sass_inst_executed_op_tma_st.sum"),
        ("smsp__inst_executed_op_tma_red.sum", "smsp__sass_inst_executed_op_tma_red.sum"),
    ], []),
    "dshared": ("Distributed shared", [("smsp__sass_inst_executed_op_dshared.sum",)], []),
}
_TEX = "lts__t_sectors_srcunit_tex_aperture_"
FAR = {"system": ("System memory", "sysmem"), "peer": ("Peer memory", "peer")}


def chart(metrics: Metrics) -> Chart:
    places = _places(metrics)
    links = [*_request_links(metrics), *_traffic_links(metrics)]
    return Chart(places, links, _sentence(places, links))


def _places(metrics: Metrics) -> dict[str, Place]:
    places = [
        Place("kernel", "Kernel"),
        *(Place(key, title) for key, (title, _, _) in SPACES.items()),
        Place("l1", "L1 / TEX cache", number(metrics, "l1tex__t_sector_hit_rate.pct"),
              number(metrics, "l1tex__throughput.avg.pct_of_peak_sustained_active", "l1tex__throughput.avg" + PCT)),
        Place("smem", "Shared memory", None, number(metrics, "l1tex__data_pipe_lsu_wavefronts_mem_shared.sum" + PCT)),
        Place("l2", "L2 cache", number(metrics, "lts__t_sector_hit_rate.pct"), number(metrics, "lts__throughput.avg" + PCT),
              _multicast(metrics)),
        Place("device", "Device memory", None, number(metrics, "gpu__dram_throughput.avg" + PCT, "dram__throughput.avg" + PCT)),
        *(Place(key, title) for key, (title, _) in FAR.items()),
        Place("fabric", "Other half of the L2"),
    ]
    return {place.key: place for place in places}


def _multicast(metrics: Metrics) -> str:
    """Where SMs of a cluster read the same sectors, the L2 sends them once (L2 request coalescer, from 9.0 on)."""
    ratio = number(metrics, "lrc__average_xbar2gpc_sectors_op_read.ratio")
    return f"each sector it sends serves {ratio:.3g} reads" if ratio is not None and ratio >= 1.05 else ""


def _request_links(metrics: Metrics) -> list[Link]:
    """From the kernel to what its instructions name, and from there to L1 or shared memory."""
    links = []
    for key, (_, instructions, requests) in SPACES.items():
        links.append(_link(metrics, "kernel", key, "inst", instructions))
        if requests:                     # a cp.async counts among the loads of global memory too
            links.append(_link(metrics, key, "l1", "req", requests, less=SPACES["ldgsts"][2] if key == "global" else ()))
    links.append(_link(metrics, "shared", "smem", "wavefronts", [
        ("l1tex__data_pipe_lsu_wavefronts_mem_shared.sum",)], pct=("l1tex__data_pipe_lsu_wavefronts_mem_shared.sum",)))
    links.append(_link(metrics, "l1", "smem", "B", [
        ("l1tex__t_bytes_pipe_lsu_mem_global_op_ldgsts_cache_access.sum",
         "sm__sass_l1tex_data_bytes_write_pipe_lsu_mem_shared_op_ldgsts_cache_access.sum")]))
    return links


_READ, _WRITE = "l1tex__m_xbar2l1tex_read_bytes", "l1tex__m_l1tex2xbar_write_bytes"
_BYPASS = ("sm__sass_l1tex_m_xbar2l1tex_read_bytes_mem_global_op_ldgsts_cache_bypass.sum",)


def _traffic_links(metrics: Metrics) -> list[Link]:
    """Between the levels, in bytes. What goes past the L1 into shared memory is a link of its own."""
    beside_l1 = [_BYPASS, (f"{_READ}_mem_global_op_tma_ld.sum",), (f"{_READ}_mem_dshared.sum",)]
    written_beside = [(f"{_WRITE}_mem_{what}.sum",) for what in ("global_op_tma_st", "global_op_tma_red", "dshared")]
    links = [
        _link(metrics, "l2", "l1", "B", [(f"{_READ}.sum",)], less=beside_l1),
        _link(metrics, "l1", "l2", "B", [(f"{_WRITE}.sum",)], less=written_beside),
        _link(metrics, "l2", "smem", "B", [_BYPASS, (f"{_READ}_mem_global_op_tma_ld.sum",)]),
        _link(metrics, "smem", "l2", "B", [(f"{_WRITE}_mem_global_op_tma_st.sum",), (f"{_WRITE}_mem_global_op_tma_red.sum",)]),
        _link(metrics, "dshared", "smem", "B", [(f"{_READ}_mem_dshared.sum",)]),
        _link(metrics, "device", "l2", "B", [("dram__bytes_read.sum",)], pct=("dram__bytes_read.sum",)),
        _link(metrics, "l2", "device", "B", [("dram__bytes_write.sum",)], pct=("dram__bytes_write.sum",)),
        _link(metrics, "l2", "fabric", "B", [("lts__t_sectors_srcunit_ltcfabric.sum",)], scale=SECTOR_BYTES,
              pct=("lts__t_sectors_srcunit_ltcfabric.sum",)),
    ]
    for key, (_, aperture) in FAR.items():
        links.append(_link(metrics, key, "l2", "B", [(f"{_TEX}{aperture}_op_read_lookup_miss.sum",)], scale=SECTOR_BYTES))
        links.append(_link(metrics, "l2", key, "B", [
            (f"{_TEX}{aperture}_op_{op}.sum", f"{_TEX}{aperture}_op_{op}_lookup_miss.sum") for op in ("write", "red", "atom")
        ], scale=SECTOR_BYTES))
    return links


def _link(metrics: Metrics, source: str, target: str, unit: str, terms: Sequence[Names], *, less: Sequence[Names] = (),
          scale: float = 1.0, pct: Names = ()) -> Link:
    """Terms that were not collected are left out; a link of which none was collected is unknown."""
    used = [(name, value) for term in terms for name, value in _first(metrics, term)]
    deductions = [(name, value) for term in less for name, value in _first(metrics, term)]
    amount = max(0.0, sum(value for _, value in used) - sum(value for _, value in deductions)) * scale if used else None
    duration = number(metrics, DURATION)
    share = number(metrics, *(name + PCT for name in pct)) if pct else None
    if share is None and len(terms) == 1 and not deductions and used:
        share = number(metrics, used[0][0] + PCT)
    names = tuple(name for name, _ in used) + tuple(f"− {name}" for name, value in deductions if value)
    return Link(source, target, unit, amount, amount / duration * 1e9 if amount is not None and duration else None, share, names)


def _first(metrics: Metrics, names: Names) -> list[tuple[str, float]]:
    return next(([(name, value)] for name in names if (value := number(metrics, name)) is not None), [])


def _sentence(places: dict[str, Place], links: list[Link]) -> str:
    """How much passes device memory, what the caches catch, and how full each level is."""
    between = {(link.source, link.target): link for link in links}
    loaded, written = between["device", "l2"].amount, between["l2", "device"].amount
    phrases = []
    if loaded is not None and written is not None:
        phrases.append(f"{si_text(loaded, 'B')} come from device memory and {si_text(written, 'B')} go there")
    hits = [f"{name} {pct_text(hit)}" for key, name in (("l1", "L1"), ("l2", "L2")) if (hit := places[key].hit_pct) is not None]
    if hits:
        phrases.append(f"hit rates of all accesses {', '.join(hits)}")
    busy = [f"{place.title} {pct_text(place.pct)}" for place in places.values() if place.pct is not None]
    if busy:
        phrases.append(f"of their peaks: {', '.join(busy)}")
    return "; ".join(phrases) + "." if phrases else ""
