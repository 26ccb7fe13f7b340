"""The memory chart of a launch: what its instructions ask for, what the caches answer, what moves between the levels.

The places and links are those of Nsight Compute's memory chart, the metrics those of its section MemoryWorkloadAnalysis_Chart;
names differ between architectures, so each amount lists the ones it may have. A sector is 32 bytes. Source: Kernel Profiling
Guide, "Memory Chart" (https://docs.nvidia.com/nsight-compute/ProfilingGuide/index.html#memory-chart).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from profiles.analysis.core.sentences import pct_text, si_text
from profiles.analysis.kernel.metrics import DURATION, Metrics, number

SECTOR_BYTES = 32
PCT = ".pct_of_peak_sustained_elapsed"
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
    taken = [(name, value) for term in less for name, value in _first(metrics, term)]
    amount = max(0.0, sum(value for _, value in used) - sum(value for _, value in taken)) * scale if used else None
    duration = number(metrics, DURATION)
    share = number(metrics, *(name + PCT for name in pct)) if pct else None
    if share is None and len(terms) == 1 and not taken and used:
        share = number(metrics, used[0][0] + PCT)
    names = tuple(name for name, _ in used) + tuple(f"− {name}" for name, value in taken if value)
    return Link(source, target, unit, amount, amount / duration * 1e9 if amount is not None and duration else None, share, names)


def _first(metrics: Metrics, names: Names) -> list[tuple[str, float]]:
    return next(([(name, value)] for name in names if (value := number(metrics, name)) is not None), [])


def _sentence(places: dict[str, Place], links: list[Link]) -> str:
    """How much passes device memory, what the caches catch, and how full each level is."""
    between = {(link.source, link.target): link for link in links}
    loaded, written = between["device", "l2"].amount, between["l2", "device"].amount
    said = []
    if loaded is not None and written is not None:
        said.append(f"{si_text(loaded, 'B')} come from device memory and {si_text(written, 'B')} go there")
    hits = [f"{name} {pct_text(hit)}" for key, name in (("l1", "L1"), ("l2", "L2")) if (hit := places[key].hit_pct) is not None]
    if hits:
        said.append(f"hit rates of all accesses {', '.join(hits)}")
    busy = [f"{place.title} {pct_text(place.pct)}" for place in places.values() if place.pct is not None]
    if busy:
        said.append(f"of their peaks: {', '.join(busy)}")
    return "; ".join(said) + "." if said else ""
