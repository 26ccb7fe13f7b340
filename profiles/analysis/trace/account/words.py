"""The account in words: what leads, each cause, and what a rank was late for, as one sentence each. For every page that says it."""

from __future__ import annotations

from profiles.analysis.core.sentences import pct_text, plural, time_text
from profiles.analysis.trace.account.account import Account
from profiles.analysis.trace.account.causes import CAUSES, Group, Row
from profiles.ingest.naming.names import short_name

_KERNELS = ("compute", "no_tensor_cores", "memory_traffic", "unknown_kernels", "small_kernels", "serial_streams", "slow_gpu",
            "more_work", "stream_wait")
_WHOLE = ("data_loading", "compilation", "garbage_collection", "file_io", "allocation")
# What is said of each cause: {who} is the host or the rank, {at} the place in backticks, empty or with its preposition.
_SAID = {
    "compute": "{gpu} busy with kernels that compute{at}",
    "no_tensor_cores": "matrix products run without tensor cores{at}",
    "memory_traffic": "{gpu} busy with kernels that move data{at}",
    "unknown_kernels": "{gpu} busy with kernels of unknown kind{at}",
    "small_kernels": "kernels are small{mean}, and launching them takes longer than they run{at}",
    "serial_streams": "streams wait for each other while the kernel that runs leaves most of the GPU empty{at}",
    "pageable_copies": "copies from or to pageable host memory hold up the GPU{at}",
    "copies": "copies run and no kernel does{at}",
    "memset": "memory is set and no kernel runs{at}",
    "communication": "collectives run and nothing computes{at}",
    "slow_gpu": "the GPU of {who} runs the same kernels for longer{pace}{at}",
    "more_work": "{who} has more work for its GPU{at}",
    "data_loading": "{who} loads data{per_step}{at}",
    "synchronisation": "{who} waits for the GPU{at}, and the GPU runs out of work{step}",
    "allocation": "{who} allocates and frees memory of the GPU{per_step}{at}",
    "compilation": "{who} compiles or loads code{per_step}{at}",
    "garbage_collection": "{who} collects Python garbage{per_step}{at}",
    "file_io": "{who} writes or reads files{per_step}{at}",
    "queue_full": "{who} is blocked in a launch by a full queue{at}",
    "host_launch": "{who} launches work too slowly{step}{at}",
    "host_code": "{who} runs code outside of operators and launches nothing{step}{at}",
    "warm_up": "{who} warms up{step}: first launches, allocations and caches",
    "rank_sync": "{who} waits for other ranks{per_step}{at}",
    "stream_wait": "work is launched and waits before it starts{at}",
    "launch_latency": "launched work takes some microseconds to start{at}",
    "profiler": "the profiler's own work holds up the host{step}{at}",
    "unknown": "the GPU is idle, and the file does not say why",
    "outside": "no GPU works before the first and after the last kernel of the recording",
}

# What the host is at while the GPU is idle for it.
_UNFED = {"host_launch": "in operators and launches", "small_kernels": "launching small kernels", "host_code": "in other code"}


def group_text(account: Account, group: Group) -> str:
    """Return one cause in words: "rank 1 loads data 8 ms a step (`## dataload ##`); rank 0 waits for it in the all-reduce: …"."""
    many, per_step, waits = len(account.gpus) > 1, _per_step(account, group), _waits(account, group)
    text = _SAID[group.cause].format(
        who=group.rank or ("each rank's host" if _ranks(account) > 1 else "the host"), gpu="the GPUs are" if many else "the GPU is",
        at=_at(group), per_step=per_step, step=f",{per_step}" if per_step else "", mean=_mean(group),
        pace=_pace(group))
    share = pct_text(100 * group.wall_ns / max(1, account.wall_ns))
    return f"{text if text.startswith('rank ') else text[:1].upper() + text[1:]}{waits}: {share} of the time"


def lead_text(account: Account) -> str:
    """Return the lead in words, "" without one. A host that does not keep up is said as one, with what a CUDA graph wins."""
    bound, lead = account.host_bound, account.lead
    if bound is None or lead is None:
        return group_text(account, lead) if lead else ""
    wall_ns = max(1, account.wall_ns)
    parts = ", ".join(f"{_UNFED[group.cause]} {pct_text(100 * group.gain_ns / wall_ns)}" for group in bound.groups)
    step = f", {time_text(bound.idle_ns / account.steps)} a step" if account.steps > 1 else ""
    is_kernel = CAUSES[lead.cause].side == "busy"
    place = f", most of it {'before' if is_kernel else 'in'} `{_name(lead)}`" if lead.where else ""
    return (f"The host cannot feed the {'GPUs' if len(account.gpus) > 1 else 'GPU'}: idle for it "
            f"{pct_text(100 * bound.idle_ns / wall_ns)} of the time{step} ({parts}){place}; one CUDA graph wins "
            f"{time_text(bound.graph_ns)} at most")


def _ranks(account: Account) -> int:
    return len({row.rank for row in account.rows})


def _at(group: Group) -> str:
    if not group.where:
        return ""
    name = _name(group)
    alone = len({row.where for row in group.rows if row.where}) == 1
    if group.cause in ("host_launch", "host_code", "synchronisation", "rank_sync"):
        return f", {'' if alone else 'most of it '}in `{name}`"
    return f" (`{name}`{'' if alone else ' and others'})"


def _name(group: Group) -> str:
    name = short_name(group.where) if group.cause in _KERNELS or CAUSES[group.cause].side == "busy" else group.where
    return name[:100].replace("`", "'")


def _pace(group: Group) -> str:
    """", 59.9 % net (58.1 to 61.7 % over 6 steps)", of the GPU that is slower."""
    evidence = next((row.evidence for row in group.rows if "slower_ns" in row.evidence), None)
    if evidence is None:
        return ""
    net, low, high = (evidence["slower_pct"] * evidence[f"slower_{end}ns"] / evidence["slower_ns"] for end in ("", "low_", "high_"))
    return f", {pct_text(net)} net ({pct_text(low)} to {pct_text(high)} over {evidence['compared_steps']} steps)"


def _mean(group: Group) -> str:
    for row in group.rows:
        mean = row.evidence.get("mean_kernel_ns")
        if mean:
            return f" ({time_text(mean)} on average, {plural(int(row.evidence['launches']), 'launch')})"
    return ""


def _per_step(account: Account, group: Group) -> str:
    """The time of the rank or host that the cause starts on, per step; empty without steps. Of what a slice stands for, all of it:
    some of it may pass while the GPU works."""
    own = [row for row in group.rows if "waits_in" not in row.evidence]
    if account.steps < 2 or not own:
        return ""
    per_gpu: dict[int, int] = {}
    for row in own:
        per_gpu[row.gpu] = per_gpu.get(row.gpu, 0) + row.wall_ns
    if group.cause in _WHOLE:
        per_gpu = {row.gpu: int(row.evidence.get("host_ns") or row.wall_ns) for row in own}
    most, hits = max(per_gpu.values()), account.in_steps.get(group.cause, 0)
    if hits * 2 <= account.steps:
        return f" {time_text(most)} in {hits} of {account.steps} steps" if hits else ""
    return f" {time_text(most / account.steps)} a step"


def _waits(account: Account, group: Group) -> str:
    """"; rank 0 waits for it in the all-reduce"."""
    waiting: dict[str, list[Row]] = {}
    for row in group.rows:
        if "waits_in" in row.evidence:
            waiting.setdefault(account.gpus[row.gpu].split(" · ")[0], []).append(row)
    if not waiting or not group.rank:
        return ""
    first = max((row for rows in waiting.values() for row in rows), key=lambda row: row.wall_ns)
    who = next(iter(waiting)) if len(waiting) == 1 else f"{len(waiting)} other ranks"
    return f"; {who} {'waits' if len(waiting) == 1 else 'wait'} for it in the {first.evidence['waits_in']}"


def wait_text(account: Account, late_gpu: int, least_ns: float) -> str:
    """Return what others waited for a GPU for, the most of it: "39.2 ms of it for data loading (`dataloader`)".

    Empty where no cause has `least_ns` of it or more.
    """
    rows = [row for row in account.rows if row.evidence.get("waits_for_gpu") == late_gpu and CAUSES[row.cause].side != "outside"]
    waited_ns: dict[str, int] = {}
    for row in rows:
        waited_ns[row.cause] = waited_ns.get(row.cause, 0) + row.wall_ns
    cause = max(waited_ns, key=lambda each: (waited_ns[each], each), default="")
    if not cause or waited_ns[cause] < least_ns:
        return ""
    where = max((row for row in rows if row.cause == cause), key=lambda row: row.wall_ns).where
    name = short_name(where) if cause in _KERNELS or CAUSES[cause].side == "busy" else where
    place = f" (`{name[:100].replace('`', chr(39))}`)" if name else ""
    return f"{time_text(waited_ns[cause])} of it for {CAUSES[cause].label}{place}"
