"""What keeps a kernel's units from its work: operands loaded for each product, words a load, work a thread, barriers, conflicts.

Each function looks at what a launch was given to do (`sass.loads`) and at the units that it keeps busy (`advising.units`), and
returns `Seen` with the gain on the unit that is freed, at most, or None. LIMITS holds the thresholds: rules of thumb of ours, set
on one ladder of a matrix product and tried on others (docs/advice.md).
"""

from __future__ import annotations

from profiles.analysis.core.sentences import pct_text, si_text
from profiles.analysis.kernel.advising import units
from profiles.analysis.kernel.advising.units import Seen
from profiles.analysis.kernel.facts import LaunchFacts

LIMITS: dict[str, float] = {
    "fma_pct": 10.0,             # of all instructions: from here on multiply-adds are what a kernel is for
    "operand_words": 0.6,        # loaded for each multiply-add: an 8 × 8 tile of results needs 16 operands for 64 products, 0.25
    "tile_words": 0.25,
    "reused": 8.0,               # loaded bytes for each byte of DRAM: data is used again (a stream uses it once)
    "staged": 4.0,               # or words from shared memory for each from global memory
    "lsu_pct": 40.0,             # of its peak, loads and stores at least as busy
    "words_a_load": 2.0,         # below it most loads take one word
    "wide_words": 4.0,
    "chained": 0.5,              # of the loads, with an address that another load brings
    "wait_pct": 30.0,            # of their time that warps wait for global memory
    "stream_pct": 4.0,           # of all instructions: loads and stores of global memory
    "loads_a_thread": 2.0,       # at most as many: a thread ends before it has begun
    "few_loads": 4.0,            # at most as many: each operand once, no loop
    "scattered_pct": 50.0,       # of the L1's passes, beyond one for each 128 bytes asked for
    "lanes": 25.0,               # switched on of 32
    "inst_a_thread": 120.0,      # above it a thread computes; it does not only meet the others
    "overhead_inst": 6.0,        # instructions for each global load or store that a stream needs: index, address, arithmetic
    "many_loads": 8.0,
    "short_waves": 4.0,          # grids of fewer waves have few blocks to spare
    "barriers": 4.0,             # a warp, of a tree with a barrier a level
    "barrier_pct": 30.0,         # of their time that warps wait at barriers
    "tree_barrier_pct": 10.0,    # the same, where a tree shows
    "shuffle_share": 0.6,        # of what is executed before the barriers of a tree, saved by shuffles (5 levels of 8 in registers)
    "conflict_pct": 10.0,        # of the passes through the L1's data path
    "kind_share": 0.25,          # of the conflicts, of one kind of access
    "reread": 1.8,               # loaded bytes for each byte of DRAM, in a stream
}
OF_THE_BLOCK = ("issue_pct", "lsu_data_pct", "lsu_inst_pct", "alu_pct", "fma_pct", "xu_pct")


def operands(facts: LaunchFacts) -> Seen | None:
    """Operands that come from L1 or shared memory for each product anew, where loading them is busier than multiplying."""
    signals, loaded = facts.signals, units.words_a_product(facts)
    share, reuse = units.ratio(facts, "fma_inst", "inst"), _reuse(facts)
    if loaded is None or share is None or 100.0 * share < LIMITS["fma_pct"]:
        return None
    if loaded < LIMITS["operand_words"]:
        return _unstaged(facts)
    unit = max(("lsu_data_pct", "lsu_inst_pct"), key=lambda name: signals.get(name, 0.0))
    lsu, shared = signals.get(unit, 0.0), signals.get("shared_load_inst", 0.0) > signals.get("global_load_inst", 0.0)
    # what is read through shared memory is read again: else nobody would put it there
    reused = shared or (reuse is not None and reuse >= LIMITS["reused"])
    if lsu < LIMITS["lsu_pct"] or lsu < signals.get("fma_pct", 0.0) or not reused:
        return None
    saving = 1.0 - min(1.0, LIMITS["tile_words"] / loaded)
    loads = sum(signals.get(f"{kind}_load_inst", 0.0) for kind in ("global", "shared")) / signals["inst"]
    of_data = signals.get("shared_pct", 100.0) / 100.0 if shared else 1.0
    gain = units.freed_pct(facts, {"lsu_data_pct": saving * of_data, "lsu_inst_pct": saving, "issue_pct": saving * loads})
    where = "shared memory" if shared else "the L1"
    text = (f"{loaded:.2g} words are loaded from {where} for each multiply-add ({pct_text(100 * share)} of its instructions are "
            f"multiply-adds, {pct_text(100 * loads)} loads): {units.UNITS[unit]} is used to {pct_text(lsu)}, the FMA pipe to "
            f"{pct_text(signals.get('fma_pct', 0.0))}; a thread that holds 8 × 8 results loads {LIMITS['tile_words']:g}")
    fix = ("Let each thread compute a tile of results in registers (4 × 4, then 8 × 8): operands loaded once from shared memory "
           "serve a row and a column of products.") if shared else (
        "Load a tile of each operand into shared memory once a block, and let each thread compute a tile of results in registers "
        "(8 × 8), so that an operand serves many products.")
    if shared and loaded < 1.5:
        fix = ("Let each thread compute results in both dimensions (8 × 8 in registers in place of a column): as many operands "
               "then serve the product of their numbers.")
    return _at_most(text, gain, fix=fix)


def _unstaged(facts: LaunchFacts) -> Seen | None:
    """Operands of a tile in registers that come from the L1 itself, by loads whose threads lie apart: a pass for each of them."""
    signals = facts.signals
    scattered, lsu = signals.get("scattered_pct", 0.0), signals.get("lsu_data_pct", 0.0)
    staged = signals.get("shared_load_inst", 0.0) + signals.get("async_inst", 0.0)
    if staged or not units.has_register_tile(facts) or scattered < LIMITS["scattered_pct"] or lsu < units.LIMITS["bound_pct"]:
        return None
    gain = units.freed_pct(facts, {"lsu_data_pct": scattered / 100.0})
    text = (f"{pct_text(scattered)} of the passes through the L1's data path are loads whose threads lie apart, one pass for each: "
            f"it is used to {pct_text(lsu)}, the FMA pipe to {pct_text(signals.get('fma_pct', 0.0))}; "
            "nothing is staged in shared memory")
    return _at_most(text, gain, title="Operands come from the L1 piece by piece", fix=(
        "Load a tile of each operand into shared memory together, neighbouring threads neighbouring addresses, and read the "
        "operands from there."))


def conflicts(facts: LaunchFacts) -> Seen | None:
    """Bank conflicts, and what kind of access makes them; only the part that one mend removes counts as its gain."""
    pct = facts.signals.get("conflict_pct")
    if pct is None:
        return _counted_conflicts(facts)
    if pct < LIMITS["conflict_pct"]:
        return None
    kind, share = conflict_kind(facts)
    text = f"{pct_text(pct)} of the passes through the L1's data path are bank conflicts"
    title = fix = ""
    if kind == "words":
        title = "Shared loads of one word, with bank conflicts"
        text += f"; {pct_text(100 * share)} of those come from loads of one word, which follow one after the other"
        fix = ("Read four words a load (float4): store the tile so that a thread's operands lie beside each other, and load and "
               "store global memory four words at a time as well.")
    elif kind == "wide":
        title = "The threads of a warp are scattered over the tile"
        text += f"; {pct_text(100 * share)} of those come from loads of several words, whose threads lie far apart"
        fix = ("Give each warp a compact part of the block's tile (a warp tile), so that its threads read the same or neighbouring "
               "words: 128-bit loads then need no extra pass. A swizzled layout does the same.")
    gain = units.freed_pct(facts, {"lsu_data_pct": share * pct / 100.0})
    return _at_most(text, gain, title=title, fix=fix, always=bool(title))


def conflict_kind(facts: LaunchFacts) -> tuple[str, float]:
    """Return what makes most conflicts of a product out of registers, loads of one word ("words") or of several ("wide"), and their
    share, 0-1; "" and all of them elsewhere."""
    signals, excess = facts.signals, facts.signals.get("shared_excess", 0.0)
    if not excess or signals.get("tensor_inst") or not units.has_register_tile(facts):
        return "", 1.0
    for kind, key in (("words", "shared_excess_word_loads"), ("wide", "shared_excess_wide_loads")):
        if signals.get(key, 0.0) >= LIMITS["kind_share"] * excess:
            return kind, signals[key] / excess
    return "", 1.0


def _counted_conflicts(facts: LaunchFacts) -> Seen | None:
    """Conflicts that were counted, of passes that were not, or of those of shared memory alone."""
    count, passes = facts.signals.get("bank_conflicts"), facts.signals.get("shared_wavefronts")
    if not count or (passes and 100.0 * count / passes < LIMITS["conflict_pct"]):
        return None
    if passes:
        return Seen(f"{count:,.0f} bank conflicts of {passes:,.0f} passes through shared memory ({pct_text(100 * count / passes)})",
                    why_unknown="how busy the L1's data path is was not collected (l1tex__data_pipe_lsu_wavefronts)")
    if facts.signals.get("inst") is not None:
        return None                                     # a full report whose rules judge them by lines
    return Seen(f"{count:,.0f} bank conflicts were counted", why_unknown="what they are a part of was not collected: "
                "l1tex__data_pipe_lsu_wavefronts_mem_shared.sum tells the share, gpu__time_duration.sum the time")


def narrow(facts: LaunchFacts) -> Seen | None:
    """A stream that loads one word at a time and does not reach DRAM's peak: more instructions, fewer bytes in flight."""
    dram = facts.sol.dram_pct
    width = units.ratio(facts, "global_load_words", "global_load_inst")
    share = units.ratio(facts, "global_load_inst", "inst")
    if width is None or share is None or width >= LIMITS["words_a_load"] or dram is None or dram >= units.LIMITS["roof_pct"]:
        return None
    if facts.bound == "launch" or units.waits_for_sectors(facts):
        return None                                            # over before its loads matter; or neighbours first
    stores = (units.ratio(facts, "global_store_inst", "inst") or 0.0)
    chained = units.ratio(facts, "chained_load_inst", "global_load_inst") or 0.0
    if 100.0 * (share + stores) < LIMITS["stream_pct"] or _is_product(facts) or chained >= LIMITS["chained"]:
        return None                                            # a load that needs the one before cannot be part of a wider one
    saved = (1.0 - width / LIMITS["wide_words"])
    top = units.bounds(facts)
    if top is not None:
        loads = share + stores
        gain = units.freed_pct(facts, {"issue_pct": saved * min(1.0, 2.0 * loads), "lsu_inst_pct": saved * _of_lsu(facts)})
        gain = max(gain or 0.0, _of_short_threads(facts, saved) or 0.0)
        why = f"{top[0]} at {pct_text(top[1])} of the peak, DRAM at {pct_text(dram)}"
    else:
        waited = units.waited_pct(facts, "long_scoreboard", "lg_throttle")
        if waited < LIMITS["wait_pct"]:
            return None
        gain = waited * min(saved, 1.0 - dram / units.LIMITS["roof_pct"])      # four times the bytes in flight (Little's law)
        why = f"warps wait {pct_text(waited)} of their time for global memory, and DRAM is used to {pct_text(dram)}"
    return _at_most(f"a global load takes {width:.2g} words: {why}", gain)


def _of_short_threads(facts: LaunchFacts, saved: float) -> float | None:
    """What wide loads win where a thread loads each operand once: as many fewer threads find their place and count addresses."""
    loads, inst = units.ratio(facts, "global_load_inst", "warps"), units.ratio(facts, "inst", "warps")
    if not loads or not inst or loads > LIMITS["few_loads"] or inst > LIMITS["inst_a_thread"]:
        return None
    return units.freed_pct(facts, dict.fromkeys(OF_THE_BLOCK, saved * _overhead(facts, loads, inst)))


def _overhead(facts: LaunchFacts, loads: float, inst: float) -> float:
    """The share of a thread's instructions, 0-1, that is for itself and not for what it moves."""
    moved = loads + (units.ratio(facts, "global_store_inst", "warps") or 0.0)
    return 1.0 - min(1.0, LIMITS["overhead_inst"] * moved / inst)


def work_a_thread(facts: LaunchFacts) -> Seen | None:
    """Threads that load a word or two and then count barriers, indices and idle lanes: the block costs more than its data."""
    dram = facts.sol.dram_pct
    loads, inst = units.ratio(facts, "global_load_inst", "warps"), units.ratio(facts, "inst", "warps")
    waves = facts.occupancy.waves
    if not loads or inst is None or dram is None or dram >= units.LIMITS["roof_pct"] or _is_product(facts):
        return None
    if loads > LIMITS["loads_a_thread"] + 0.5 or inst > LIMITS["inst_a_thread"]:
        return None
    if facts.bound == "launch" or (waves is not None and waves < LIMITS["short_waves"]):
        return None
    overhead = _overhead(facts, loads, inst)
    barriers = units.ratio(facts, "barrier_inst", "warps") or 0.0
    if overhead <= 0.2:
        return None
    saving = loads / LIMITS["many_loads"]
    gain = units.freed_pct(facts, dict.fromkeys(OF_THE_BLOCK, overhead * (1.0 - saving)))
    room = 100.0 * (1.0 - dram / units.LIMITS["roof_pct"])
    gain = room if gain is None else min(gain, room)
    if loads >= 1.5 and (tree := barriers_high(facts)) is not None and _has_tree(facts):
        gain *= 1.0 - (tree.most_pct or 0.0) / 100.0     # what is left once the barriers are gone
        gain *= 0.5
    text = (f"a thread loads {loads:.2g} word{'s' * (loads >= 1.5)} and executes {inst:.0f} instructions"
            + (f" and {barriers:.2g} barriers" if barriers >= 1.5 else "")
            + f": the units work for the block, not for its data (DRAM {pct_text(dram)})")
    lanes = facts.signals.get("lanes", 32.0)
    if lanes > LIMITS["lanes"] or loads >= 1.5:
        return _at_most(text, gain)
    text = f"{lanes:.1f} of 32 threads are switched on per warp instruction\n{text}"
    return _at_most(text, gain, title="Most threads are idle most of the time", fix=(
        "Let the first threads of a block work on, not every second one, and let each thread add two words and more while it "
        "loads, so that none only loads; then a loop over the grid (grid-stride) with blocks that fill the GPU a few times."))


def barriers_high(facts: LaunchFacts) -> Seen | None:
    """Warps that wait at barriers; a tree with a barrier a level shows by several barriers a warp and no product between."""
    waited, a_warp = units.waited_pct(facts, "barrier"), units.ratio(facts, "barrier_inst", "warps")
    if waited < (LIMITS["tree_barrier_pct"] if _has_tree(facts) else LIMITS["barrier_pct"]):
        return None
    text, gain, fix = f"warps spend {pct_text(waited)} of their time waiting there", waited, ""
    if _has_tree(facts) and a_warp is not None:
        text += f"; {a_warp:.3g} barriers a warp"
        after = units.ratio(facts, "meeting_inst", "inst")
        if after is not None:
            less = units.freed_pct(facts, dict.fromkeys(OF_THE_BLOCK, after * LIMITS["shuffle_share"]))
            gain = max(waited, less or 0.0)
        fix = ("Combine the values of a warp by shuffles (__shfl_xor_sync, __reduce_add_sync), then those of the warps once: one "
               "or two barriers in place of one a level.")
    dram = facts.sol.dram_pct
    if dram is not None and facts.bound == "memory":
        gain = min(gain, max(0.0, 100.0 * (1.0 - dram / units.LIMITS["roof_pct"])))
    return Seen(text, None, gain, "at most the time that warps spend there: others may run meanwhile", fix=fix)


def reread(facts: LaunchFacts) -> Seen | None:
    """A stream whose bytes are loaded more than once: a row for its maximum, for its sum and to write it."""
    signals, reuse, dram = facts.signals, _reuse(facts), facts.sol.dram_pct
    loads = units.ratio(facts, "global_load_inst", "inst")
    if reuse is None or loads is None or dram is None or dram >= units.LIMITS["roof_pct"] or _is_product(facts):
        return None
    if not LIMITS["reread"] <= reuse < LIMITS["reused"] or 100.0 * loads < LIMITS["stream_pct"]:
        return None
    again = 1.0 - 1.0 / reuse
    gain = units.freed_pct(facts, {"issue_pct": again * min(1.0, 2.0 * loads), "lsu_inst_pct": again * _of_lsu(facts),
                                   "lsu_data_pct": again, "l2_pct": again})
    if units.bounds(facts) is None:
        gain = again * units.waited_pct(facts, "long_scoreboard", "lg_throttle") * (1.0 - dram / units.LIMITS["roof_pct"])
    return _at_most(f"each byte read from DRAM is loaded {reuse:.1f} times ({si_text(signals['loaded_bytes'], 'B')} in all)", gain)


def divergence(facts: LaunchFacts) -> Seen | None:
    """Lanes that are switched off: by branches or by predicates, in blocks of whole warps as well."""
    lanes = facts.signals.get("lanes")
    if lanes is None or lanes > LIMITS["lanes"] or lanes <= 0 or facts.signals.get("divergent_branches", 1.0) == 0:
        return None                                            # switched off by predicates, no branch parts them: idle threads
    lost = 1.0 - lanes / 32.0
    gain = units.freed_pct(facts, dict.fromkeys(("issue_pct", "alu_pct", "fma_pct", "xu_pct", "fp64_pct", "lsu_inst_pct"), lost))
    return _at_most(f"{lanes:.1f} of 32 threads are switched on per warp instruction", gain)


def _at_most(text: str, gain_pct: float | None, *, title: str = "", fix: str = "", always: bool = False) -> Seen:
    return Seen(text, None, gain_pct, "" if gain_pct is not None else "the use of its units is not in the report", title=title,
                fix=fix, always=always)


def _is_product(facts: LaunchFacts) -> bool:
    """Whether it multiplies operands that are used again: what a stream needs is no advice for it."""
    share, reuse = units.ratio(facts, "fma_inst", "inst"), _reuse(facts)
    if facts.signals.get("tensor_inst") or units.has_register_tile(facts):
        return True
    from_shared = facts.signals.get("shared_load_words", 0.0) >= LIMITS["staged"] * facts.signals.get("global_load_words", 0.0) > 0
    return share is not None and 100.0 * share >= LIMITS["fma_pct"] and (from_shared or (reuse or 0.0) >= LIMITS["reused"])


def _has_tree(facts: LaunchFacts) -> bool:
    a_warp = units.ratio(facts, "barrier_inst", "warps")
    return a_warp is not None and a_warp >= LIMITS["barriers"] and not _is_product(facts)


def _reuse(facts: LaunchFacts) -> float | None:
    """Bytes that threads load from global memory for each byte that comes from DRAM."""
    loaded, dram_read = facts.signals.get("loaded_bytes"), facts.caches.dram_read_bytes
    return None if loaded is None or not dram_read else loaded / dram_read


def _of_lsu(facts: LaunchFacts) -> float:
    """The share of global loads and stores in what the load and store unit takes."""
    known = facts.signals
    globally = known.get("global_load_inst", 0.0) + known.get("global_store_inst", 0.0)
    all_of_it = globally + known.get("shared_load_inst", 0.0) + known.get("shared_store_inst", 0.0) + known.get("shuffle_inst", 0.0)
    return globally / all_of_it if all_of_it else 1.0
