"""What a metric of Nsight Compute means: a sentence, a unit, and which values are good and which are bad, for every name.

Which values of a metric are good and which are bad, where anything is stated of it, and by whom.

The first pattern of RANGES that fits decides. Shares of a unit's peak are called by the bands of `ingest.naming.bands`. Of an
amount (bytes, cycles, instructions) no value is good in itself: that is said.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from functools import lru_cache
from typing import Any

from profiles.analysis.core.sentences import capital
from profiles.analysis.kernel.meaning.own import NUMBER, own_sentence
from profiles.analysis.kernel.meaning.parts import MOST_LETTERS, Parts, parts_of
from profiles.analysis.kernel.meaning.vocabulary import RATIOS, ROLLUPS, SUBMETRICS, UNITS
from profiles.ingest.naming.bands import BANDS, Bands

_GUIDE = "Nsight Compute, Kernel Profiling Guide"
_THUMB = "rule of thumb"
AMOUNT = "An amount: no value is good in itself; less of it for the same work is better."
RATE = "A rate: judge it against the peak beside it, not by its size."
FACT = "A fact, neither good nor bad."
PEAK = "A ceiling of this GPU at its clocks, neither good nor bad."

# of a share of peak: unit and quantity -> the band that judges it
_PEAK_BANDS: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile(r"^(?:sm|smsp)__(?:inst_executed_)?pipe_tensor|__inst_executed_pipe_tensor"), "tensor"),
    (re.compile(r"^gpu__dram_throughput|^dramc?__|^fbpa__dram"), "dram"),
    (re.compile(r"^sm__(?:throughput|instruction_throughput)$"), "sm"),
)
RANGES: tuple[tuple[re.Pattern[str], str, str], ...] = (
    (re.compile(r"excessive$|spilling|bank_conflicts"), "Good: 0. Bad: a few per cent of all accesses and more.", _THUMB),
    (re.compile(r"conflicts_shared_nway$"), "Good: 1, no conflict. Bad: 2 and more.", _GUIDE),
    (re.compile(r"threads_divergent$"), "Good: 0. Bad: a large share of all branches.", _THUMB),
    (re.compile(r"average_branch_targets_threads_uniform$"),
     "Good: 100 %. Bad: below 80 %, where threads of a warp part.", _THUMB),
    (re.compile(r"data_bytes_per_sector"),
     "Good: 32 bytes, all of a sector. Bad: 16 and less, half of what is fetched is not used.", _GUIDE),
    (re.compile(r"sectors_per_request"),
     "Good: 4 for 4 bytes a thread, 16 for 16 bytes. Bad: 32, a sector for each thread.", _GUIDE),
    (re.compile(r"thread_inst_executed(?:_pred_on)?_per_inst_executed$|avg_thread_executed"),
     "Good: 32, all threads of a warp. Bad: below 24, a quarter of the lanes idle.", _THUMB),
    (re.compile(r"avg_thread_unexecuted"), "Good: 0. Bad: above 8 of 32.", _THUMB),
    (re.compile(r"issue_inst0"), "Good: below 20 %. Bad: above 40 %, where the reasons of the waiting matter.",
     "NVIDIA's rule IssueSlotUtilization: it speaks below 80 % of cycles with an issued instruction; 40 %: rule of thumb"),
    (re.compile(r"warp_issue_stalled|warps_issue_stalled"), "Less is better where schedulers are short of eligible warps; "
     "“selected” is the instruction that was issued, “not selected” a warp that another one's turn delayed.", _GUIDE),
    (re.compile(r"hit_rate$"), "Good: above 80 % (L1) or 70 % (L2) where data is used again. Low is no fault of data that is "
     "read once.", _THUMB),
    (re.compile(r"^sm__maximum_warps"),
     "Good: 50 % and more for kernels that wait for memory. Tensor-core kernels are often best below.", _THUMB),
    (re.compile(r"waves_per_multiprocessor$"),
     "Good: many, or a whole number. Bad: below 1, SMs stand empty; just above a whole number, "
     "the last wave is nearly empty.", _GUIDE),
    (re.compile(r"occupancy_limit_"), "The least of these limits is what bounds occupancy.", _GUIDE),
    (re.compile(r"registers_per_thread$"),
     "At most 255; above 255 the compiler spills. Fewer allow more warps.", "CUDA C++ Programming Guide"),
    (re.compile(r"block_size$"), "Good: a multiple of 32. Bad: any other, the last warp of a block is part empty.",
     "CUDA C++ Best Practices Guide"),
    (re.compile(r"dropped_"), "Good: 0. Bad: any, the samples are not all there.", _GUIDE),
    (re.compile(r"success_rate$"), "100 % where data is marked as compressible and is; 0 without compressible memory.", _GUIDE),
    (re.compile(r"^gpu__time_duration$"),
     f"Less is better. Below {BANDS['kernel_us'].limits[0]:g} µs a launch costs about as much as it runs.",
     BANDS["kernel_us"].source),
)
# the same as shares of what they can be at most (".pct")
SHARES: tuple[tuple[re.Pattern[str], str, str], ...] = (
    (re.compile(r"data_bytes_per_sector"), "Good: 100 %, all of a sector is used. Bad: 50 % and less.", _GUIDE),
    (re.compile(r"data_bytes_per_wavefront"), "Good: 100 %, no bank conflict. Bad: 50 % and less.", _GUIDE),
    (re.compile(r"thread_inst_executed(?:_pred_on)?_per_inst_executed$"),
     "Good: 100 %, all threads of a warp. Bad: below 75 %, a quarter of the lanes idle.", _THUMB),
)
_ISSUE = "Good: 0.8 and more, the scheduler issues in most cycles. Bad: below 0.6 with few eligible warps."
_ELIGIBLE = "Good: above 1, a warp is always ready. Bad: below 1, the scheduler waits."


def range_of(base: str, parts: Parts, unit: str) -> tuple[str, str]:
    """Return (range, its source) of a metric: `base` its name without roll-up."""
    if "peak_sustained" in parts.submetric and not parts.submetric.startswith("pct"):
        return PEAK, ""
    for pattern, text, source in (*(SHARES if parts.rollup == "pct" else ()), *RANGES):
        if pattern.search(base):
            return text, source
    is_occupancy = base == "sm__warps_active" and not parts.rollup
    if parts.submetric.startswith("pct_of_peak") or base.endswith("throughput") or is_occupancy:
        return _peak_range(base)
    if parts.submetric.startswith("per_cycle"):
        return _per_cycle_range(base, parts)
    if unit in ("yes/no", "word", "number", "bit mask", "address") or base.startswith(
            ("device__", "launch__", "profiler__", "nvlink__", "numa__", "c2clink__", "nvtx__", "smsp__pcsamp_interval",
             "smsp__pcsamp_buffer", "smsp__pcsamp_aggregated")):
        return FACT, ""
    if parts.submetric == "per_second" or unit in ("%", "ratio"):
        return RATE if unit not in ("%", "ratio") else "A share: what is good depends on the work.", ""
    return AMOUNT, ""


def _peak_range(base: str) -> tuple[str, str]:
    if base == "sm__warps_active":
        return ("Good: 50 % and more for kernels that wait for memory. Bad: below 25 % there. Tensor-core kernels are often "
                "best with one or two blocks an SM."), _THUMB
    if base.endswith(("issue_active", "inst_issued", "inst_executed")):
        return "Good: 80 % and more. Bad: below 60 %, where the reasons of the waiting matter.", BANDS["unit"].source
    bands: Bands = next((BANDS[key] for pattern, key in _PEAK_BANDS if pattern.search(base)), BANDS["unit"])
    return f"{capital(bands.text)}.", bands.source


def _per_cycle_range(base: str, parts: Parts) -> tuple[str, str]:
    if base.endswith("__issue_active") and parts.unit == "smsp":
        return _ISSUE, BANDS["unit"].source
    if base == "smsp__warps_eligible":
        return _ELIGIBLE, _GUIDE
    if base in ("sm__inst_executed", "sm__inst_issued"):
        return "At most 4, one of each scheduler. Good: above 3. Bad: below 1.", f"{_GUIDE}; 3 and 1: {_THUMB}"
    return RATE, ""


NO_RANGE = "Which values are good is not known here."


@dataclass(frozen=True)
class Meaning:
    """`is_known`: every part of the name has words; else the sentence says which have none."""

    sentence: str
    unit: str                   # of the number, in Nsight Compute's words; "number", "word", "yes/no" of what has none
    range: str                  # which values are good and which are bad
    source: str                 # of the range; "" where none is stated
    is_known: bool

    @property
    def text(self) -> str:
        """Return all of it in lines, as a hover shows it."""
        return f"{self.sentence} Unit: {self.unit}.\n{self.range}" + (f" ({self.source})" if self.source else "")

    def as_json(self) -> dict[str, Any]:
        return asdict(self) | {"text": self.text}


@lru_cache(8192)
def meaning_of(name: str) -> Meaning:
    """Return the meaning of a metric by its full name, "sm__warps_active.avg.pct_of_peak_sustained_active"."""
    parts = parts_of(name)
    base = name[:MOST_LETTERS].partition("[")[0].partition(".")[0]
    own = own_sentence(base)
    if own is not None:
        sentence, unit = own
        if parts.rollup in ROLLUPS:
            sentence += f" {capital(ROLLUPS[parts.rollup])}."
        return Meaning(sentence, unit, *range_of(base, parts, unit), True)
    if not parts.is_known:
        return Meaning(_unknown_sentence(name, parts), parts.count_unit or NUMBER, NO_RANGE, "", False)
    unit = parts.count_unit or NUMBER
    return Meaning(_sentence(parts), unit, *range_of(_plain_base(name), parts, unit), not parts.unknown)


def meanings(names: Iterable[str]) -> dict[str, Meaning]:
    return {name: meaning_of(name) for name in names}


def _plain_base(name: str) -> str:
    """Return the name from its unit on, without what stands before ("pmsampling:") and behind (".sum")."""
    first = next((part for part in name[:MOST_LETTERS].removeprefix("pmsampling:").split(".") if "__" in part), "")
    return first.partition("[")[0]


def _sentence(parts: Parts) -> str:
    quantity = parts.quantity.words if parts.quantity else ""
    text = capital(quantity)
    if parts.stage:
        text += f", {parts.stage}"
    text += f"; {UNITS[parts.unit]}"
    if parts.qualifiers:
        text += f": {', '.join(parts.qualifiers)}"
    if parts.key:
        text += f": of {parts.key}"
    if parts.unknown:
        text += f". Without words here: {', '.join(f'“{part}”' for part in parts.unknown)}"
    text += ". "
    ends = [ROLLUPS.get(parts.rollup, ""), SUBMETRICS[parts.submetric][0]]
    if parts.rollup in RATIOS:
        ends = [RATIOS[parts.rollup][0]]
    if any(ends):
        text += capital(", ".join(end for end in ends if end)) + ". "
    if parts.is_instrumented:
        text += "Counted by instrumented machine code. "
    if parts.is_sampled:
        text += "Sampled over the time of the launch. "
    if parts.is_derived:
        text += "Computed by Nsight Compute of other metrics. "
    return text.strip()


def _unknown_sentence(name: str, parts: Parts) -> str:
    unit = UNITS.get(parts.unit)
    counter = name[:MOST_LETTERS].partition(".")[0].partition("__")[2] or name[:MOST_LETTERS]
    where = f" of {unit}" if unit else ""
    return f"A counter{where}, without words here: “{counter}”. Its meaning stands in the documentation of the tool that wrote it."
