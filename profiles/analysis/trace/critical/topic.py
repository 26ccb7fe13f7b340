"""The topic "critical-path": what did the run really wait for, step by step, and what would shorten it?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from profiles.analysis.core import intervals
from profiles.analysis.core.frame import Frame, once_a_frame
from profiles.analysis.core.result import Finding, Result, cut_to_fit
from profiles.analysis.core.sentences import pct_text, plural, time_text
from profiles.analysis.trace.critical.links import Links
from profiles.analysis.trace.critical.walk import BEFORE, CPU, KINDS, Path, Shares, ends, walk
from profiles.analysis.trace.launching.calls import why_no_calls
from profiles.analysis.trace.time.steps import Span, steps_of
from profiles.analysis.trace.time.tiling import devices
from profiles.ingest.arrays import stable_order, sums_by
from profiles.ingest.naming.names import short_name
from profiles.ingest.trace import Category, CellRows, SummaryColumn, SummaryTable, summary_columns

MOST_STEPS, MOST_RANKS, MOST = 100, 16, 200
HOST_PCT, KERNEL_PCT = 40.0, 25.0           # of the path, to make findings of


@dataclass(frozen=True)
class NamedPath:
    """One path: of a whole rank, or of a step."""

    key: str                                # in URLs: "whole", "whole-1" (rank), "step-3"
    label: str
    rank: str
    path: Path
    step_ns: float | None = None            # of a step: how long it takes, the mean of its ranks


links_of = once_a_frame(Links)


@once_a_frame
def paths(frame: Frame) -> list[NamedPath]:
    """Return the path of every rank's whole run, then of every step.

    The first MOST_STEPS. Empty without linked GPU work.
    """
    return [*_whole_paths(frame), *_step_paths(frame)] if frame.work.size and (frame.call[frame.work] >= 0).any() else []


def _whole_paths(frame: Frame) -> list[NamedPath]:
    """The path of the job across its ranks, where they met; then that of each rank for itself."""
    links = links_of(frame)
    real = np.isin(frame["category"], [int(category) for category in _REAL]) & ~frame["instant"]
    rank_of_row = links.ranks[frame["track"]]
    runs: list[tuple[str, int, tuple[int, int, int]]] = []
    for number, name in enumerate(links.rank_names[:MOST_RANKS]):
        begins = frame["start_ns"][real & (rank_of_row == number)]
        last = ends(links, number)
        if begins.size and (last[0] >= 0 or last[1] >= 0):
            runs.append((name, int(begins.min()), last))
    named = []
    if _ranks_meet(links) and runs:
        work, thread, until = max((last for _, _, last in runs), key=lambda last: last[2])
        named.append(NamedPath("whole", "whole job", "", walk(links, min(begin for _, begin, _ in runs), until, work, thread,
                                                          across=True)))
    for name, begin, (work, thread, until) in runs:
        key = f"whole-{len(named)}" if named else "whole"
        named.append(NamedPath(key, "whole run", name, walk(links, begin, until, work, thread)))
    return named


def _ranks_meet(links: Links) -> bool:
    return bool((links.meets >= 0).any())


_REAL = (Category.COMPUTE, Category.COMMUNICATION, Category.MEMCPY, Category.MEMSET, Category.RUNTIME, Category.CPU_OP)


def _step_paths(frame: Frame) -> list[NamedPath]:
    """Every step (as `analysis.temporal.steps` finds them): from its begin to the end of its CPU part, or of the last work
    that it launched. Steps of one name on ranks that met are one."""
    links, order = links_of(frame), links_of(frame).order
    across = _ranks_meet(links)
    if len(links.rank_names) > 1 and not any(frame.rank_of_track):       # several processes: a step does not say whose it is
        return []
    steps = steps_of(frame, devices(frame))
    asked_ns = order.start_ns if steps.source == "detected" else order.call_start_ns
    groups: dict[tuple[str, str, int], list[Span]] = {}
    counts: dict[tuple[str, str], int] = {}
    for span in steps.spans:
        turn = counts[span.name, span.rank] = counts.get((span.name, span.rank), -1) + 1
        groups.setdefault((span.name, "" if across else span.rank, turn), []).append(span)
    named = []
    for number, ((name, rank, _), spans) in enumerate(list(groups.items())[:MOST_STEPS]):
        lasts = []
        for span in spans:
            of_rank = links.rank_names.index(span.rank) if span.rank in links.rank_names else 0
            mine = np.flatnonzero(order.has_call & (asked_ns >= span.start_ns) & (asked_ns < span.end_ns)
                                  & (links.ranks[order.track] == of_rank))
            last = int(mine[np.argmax(order.end_ns[mine])]) if mine.size else -1
            behind = last >= 0 and (order.end_ns[last] > span.end_ns or steps.source == "detected")
            lasts.append((int(order.end_ns[last]), last, -1) if behind else
                         (span.end_ns, -1, _last_thread(links, of_rank, span.end_ns)))
        begin, (until, work, thread) = min(span.start_ns for span in spans), max(lasts)
        if until > begin:
            step_ns = float(np.mean([span.end_ns - span.start_ns for span in spans]))
            named.append(NamedPath(f"step-{number}", name, rank, walk(links, begin, until, work, thread, across), step_ns))
    return named


def _last_thread(links: Links, rank: int, by_ns: int) -> int:
    """The launching thread of a rank that was active last before a moment; -1 where none was."""
    last, thread = -1, -1
    for track, active in links.activity.items():
        if links.ranks[track] != rank:
            continue
        begun = int(np.searchsorted(active.start_ns, by_ns))
        ended = min(int(active.end_ns[begun - 1]), by_ns) if begun else -1
        if ended > last:
            last, thread = ended, track
    return thread


def critical_result(frame: Frame) -> Result:
    if not frame.work.size:
        return Result("The trace holds no GPU work, so it has no path through host and GPU. Record with GPU activities on.",
                      applies=False)
    named = paths(frame)
    if not named:
        return Result(f"The critical path cannot be followed, as the trace does not say which call launched which GPU work: "
                      f"{why_no_calls(frame)}", applies=False)
    shares = Shares(frame)
    main = max((path for path in named if not path.key.startswith("step")),
               key=lambda each: (each.label == "whole job", each.path.end_ns - each.path.start_ns))
    ranks = _ranks(frame, main)
    rows = [_numbers(shares, path) for path in named]
    whole = rows[named.index(main)]
    kernels = _kernels(frame, main.path)
    threads = _threads(frame, shares, main.path)
    numbers = {
        "paths": rows, "main": main.key, "kinds": [{"key": kind.key, "label": kind.label, "side": kind.side, "means": kind.means}
                                                   for kind in KINDS],
        "inferred": main.path.inferred, "segments": int(main.path.kind.size),
        "cpu_pct": _side(whole, "cpu"), "gpu_pct": _side(whole, "gpu"), "wait_pct": _side(whole, "wait"),
        "wall_ns": frame.wall[1] - frame.wall[0],
        "off_path_ns": kernels.off_ns, "gpu_busy_ns": kernels.busy_ns, "kernel_ns": kernels.all_ns,
    }
    tables = [_kinds_table(whole), ranks, _paths_table(rows), kernels.table, threads, _longest(frame, main.path)]
    return Result(_answer(main, whole, numbers, kernels, ranks), numbers, [cut_to_fit(table) for table in tables if table.rows],
                  _findings(whole, numbers, kernels, threads))


def _numbers(shares: Shares, path: NamedPath) -> dict[str, Any]:
    kinds = shares.by_kind(path.path)
    return {"key": path.key, "label": path.label, "rank": path.rank, "start_ns": path.path.start_ns, "end_ns": path.path.end_ns,
            "length_ns": path.path.end_ns - path.path.start_ns, "step_ns": path.step_ns,
            **{f"{key}_ns": ns for key, ns in kinds.items()}}


def _side(row: dict[str, Any], side: str) -> float:
    return 100.0 * sum(int(row[f"{kind.key}_ns"]) for kind in KINDS if kind.side == side) / max(1, int(row["length_ns"]))


@dataclass(frozen=True)
class _Kernels:
    table: SummaryTable
    all_ns: int                     # of all kernels within the window
    off_ns: int                     # of that: not on the path
    busy_ns: int                    # time in which at least one ran: the run cannot be shorter, whatever the host does
    first: str                      # full name of the kernel with the most time on the path
    first_pct: float
    first_kind: int                 # its category


def _kernels(frame: Frame, path: Path) -> _Kernels:
    """Every kernel and copy: how much of its time is on the path. What is off it could be slower without ending the run later."""
    on = np.flatnonzero(path.kind < CPU)
    code_on, on_ns = frame["name"][path.row[on]], path.length_ns[on]
    work = frame.work[(frame["start_ns"][frame.work] < path.end_ns) & (frame.end_ns[frame.work] > path.start_ns)]
    ranks = links_of(frame).ranks
    mine = np.isin(ranks, np.unique(ranks[path.track[path.track >= 0]]))
    work = work[mine[frame["track"][work]]]
    codes, place = np.unique(frame["name"][work], return_inverse=True)
    total = sums_by(place, frame["dur_ns"][work])
    launches = np.bincount(place)
    on_path = sums_by(np.searchsorted(codes, code_on), on_ns, codes.size)
    length = max(1, path.end_ns - path.start_ns)
    order = np.lexsort((-total, -on_path))[:MOST].tolist()
    table = SummaryTable("Kernels on the path",
        summary_columns("kernel: kernel | launches: count | total: ns | on the path: ns | of the path: pct | "
                        "of its own time: pct"),
        [[frame.names[codes[i]], int(launches[i]), int(total[i]), int(on_path[i]), 100.0 * int(on_path[i]) / length,
          100.0 * int(on_path[i]) / int(total[i]) if total[i] else None] for i in order],
        "Time off the path is hidden behind something else: making it faster wins nothing until the path has changed.")
    first = int(np.argmax(on_path)) if on_path.size else -1
    busy = intervals.union(frame["start_ns"][work], frame.end_ns[work]).length_ns
    return _Kernels(table, int(total.sum()), int(total.sum() - on_path.sum()), busy, frame.names[codes[first]] if first >= 0
                    else "",
                    100.0 * int(on_path[first]) / length if first >= 0 else 0.0,
                    int(frame["category"][work[place == first][0]]) if first >= 0 else -1)


def _ranks(frame: Frame, main: NamedPath) -> SummaryTable:
    """Whose time the path of a job is; no rows where it is the path of one rank."""
    path = main.path
    label = np.array([frame.rank_of_track[track] if track >= 0 else "" for track in path.track.tolist()])
    names = [name for name in dict.fromkeys(frame.rank_of_track) if name and main.label == "whole job"]
    rows: CellRows = []
    for name in names:
        mine = label == name
        host = int(path.length_ns[mine & (path.kind == CPU)].sum())
        own = int(path.length_ns[mine].sum())
        rows.append([name, own, 100.0 * own / max(1, path.end_ns - path.start_ns), host,
                     int(path.length_ns[mine & (path.kind < CPU)].sum())])
    rows.sort(key=lambda row: -int(row[1] or 0))
    return SummaryTable("Ranks on the path",
        summary_columns("rank: text | time on the path: ns | of the path: pct | its host: ns | its GPU: ns"), rows,
        "From a collective that waited the path goes on to the rank that came last: the rank with the most time is the one that "
        "the "
        "job waits for.")


def _threads(frame: Frame, shares: Shares, path: Path) -> SummaryTable:
    rows, own = shares.by_slice(path)
    codes, place = np.unique(frame["name"][rows], return_inverse=True)
    total = sums_by(place, own) if rows.size else np.empty(0, np.int64)
    count = np.bincount(place)
    kind = np.zeros(codes.size, np.int64)
    kind[place] = frame["category"][rows]
    length = max(1, path.end_ns - path.start_ns)
    words = {int(Category.CPU_OP): "operator", int(Category.RUNTIME): "runtime call", int(Category.PYTHON): "Python",
             int(Category.ANNOTATION): "range"}
    return SummaryTable("Host work on the path",
        summary_columns("slice: text | what it is: text | times: count | own time on the path: ns | of the path: pct"),
        [[frame.names[codes[i]] if codes[i] >= 0 else None, words[int(kind[i])], int(count[i]), int(total[i]),
          100.0 * int(total[i]) / length]
         for i in stable_order(-total)[:MOST].tolist()],
        "Own time: without the slices within it. A range's own time is the program's own code in it."
        + (f" {frame.left_out}." if frame.left_out else ""))


def _longest(frame: Frame, path: Path) -> SummaryTable:
    names = {kind.key: kind.label for kind in KINDS}
    of = {11: "launch", 12: "between", 13: "dependency", 14: "returning", 15: "handed", 16: "unexplained", BEFORE: "unexplained"}
    chosen = np.flatnonzero((path.kind > CPU) & (path.length_ns > 0))
    chosen = chosen[stable_order(-path.length_ns[chosen])][:50]
    return SummaryTable("Longest waits on the path",
        summary_columns("wait: text | took: ns | at: ns | before: text | where: window"),
        [[names[of[int(path.kind[i])]], int(path.length_ns[i]), int(path.from_ns[i]),
          frame.text(int(path.row[i])) if path.row[i] >= 0 else None, f"{int(path.from_ns[i])}-{int(path.to_ns[i])}"]
         for i in chosen.tolist()])


def _kinds_table(whole: dict[str, Any]) -> SummaryTable:
    return SummaryTable("What the path consists of",
        summary_columns("kind: text | time: ns | of the path: pct | what it means: text"),
        [[kind.label, whole[f"{kind.key}_ns"], 100.0 * whole[f"{kind.key}_ns"] / max(1, whole["length_ns"]), kind.means]
         for kind in KINDS])


def _paths_table(rows: list[dict[str, Any]]) -> SummaryTable:
    kinds = [kind for kind in KINDS if any(row[f"{kind.key}_ns"] for row in rows)]
    return SummaryTable("Path of each step",
        [*summary_columns("path: text | rank: text | step: ns | its path: ns"),
         *(SummaryColumn(kind.label, "ns") for kind in kinds),
         *summary_columns("where: window")],
        [[row["label"], row["rank"] or None, row["step_ns"], row["length_ns"], *(row[f"{kind.key}_ns"] for kind in kinds),
          f"{row['start_ns']}-{row['end_ns']}"] for row in rows],
        "A step's path goes from its begin to the end of the last work it launched: it is longer than the step, and paths of steps "
        "overlap. Kinds that no path has are left out.")


def _answer(main: NamedPath, whole: dict[str, Any], numbers: dict[str, Any], kernels: _Kernels, ranks: SummaryTable) -> str:
    cpu, gpu = numbers["cpu_pct"], numbers["gpu_pct"]
    largest = max(KINDS, key=lambda kind: whole[f"{kind.key}_ns"])
    head = (f"{'The job' if ranks.rows else 'The run'} takes {time_text(numbers['wall_ns'])}; its critical path"
            f"{f' on {main.rank}' if main.rank else ''}, {time_text(whole['length_ns'])} of it, spends {pct_text(gpu)} in GPU work "
            f"and {pct_text(cpu)} on the host, most of all in {largest.label} "
            f"({pct_text(100 * whole[f'{largest.key}_ns'] / max(1, whole['length_ns']))})")
    if ranks.rows:
        head += f"; {pct_text(float(ranks.rows[0][2] or 0))} of the path is on {ranks.rows[0][0]}"
    if cpu > gpu:
        hidden = 100 * kernels.off_ns / max(1, kernels.all_ns)
        return f"{head}: faster kernels would hardly help, {pct_text(hidden)} of the GPU's time is hidden behind the host."
    if not kernels.first:
        return f"{head}."
    return f"{head}: `{short_name(kernels.first)}` alone makes {pct_text(kernels.first_pct)} of it."


_COPY = "Move fewer bytes, pin host memory, and copy ahead on a stream of its own so that kernels run meanwhile."
_ADVICE = {int(Category.MEMCPY): _COPY, int(Category.MEMSET): _COPY,
           int(Category.COMMUNICATION): "See the page of communication: transfer, or the wait for a late rank? Overlap it with "
                                        "compute, send fewer or larger messages, or balance the ranks."}


def _findings(whole: dict[str, Any], numbers: dict[str, Any], kernels: _Kernels, threads: SummaryTable) -> list[Finding]:
    findings = []
    share = {kind.key: 100.0 * whole[f"{kind.key}_ns"] / max(1, whole["length_ns"]) for kind in KINDS}
    host = numbers["cpu_pct"]
    if host >= HOST_PCT:
        first = threads.rows[0] if threads.rows else None
        where = f", most in `{str(first[0])[:100]}` ({time_text(float(first[3] or 0))} on the path)" if first else ""
        findings.append(Finding(
            "host_on_path", "high" if host >= 60 else "medium",
            f"The host is on the critical path for {pct_text(host)} of the run: operators {pct_text(share['operator'])}, runtime "
            f"calls "
            f"{pct_text(share['runtime'])}, outside both {pct_text(share['outside'])}{where}",
            "Tuning kernels will not shorten this run. Take host work off the path: fewer, larger kernels (torch.compile), CUDA "
            "graphs, data "
            "loading in other processes, fewer waits.",
            {"cpu_pct": host, **{f"{key}_pct": share[key] for key in ("operator", "runtime", "outside", "compute")}},
            worth_ns=float(min(sum(whole[f"{key}_ns"] for key in ("operator", "runtime", "outside")),
                               max(0, whole["length_ns"] - numbers["gpu_busy_ns"])))))
    elif kernels.first and kernels.first_pct >= KERNEL_PCT:
        findings.append(Finding(
            "kernel_on_path", "medium",
            f"`{short_name(kernels.first)}` makes {pct_text(kernels.first_pct)} of the critical path: what it wins, the run wins",
            _ADVICE.get(kernels.first_kind, "Tune this kernel first, or give it less to do."),
                           {"share_pct": kernels.first_pct, "length_ns": whole["length_ns"]},
            worth_ns=kernels.first_pct / 100 * whole["length_ns"], kernel=kernels.first))
    waits = whole["returning_ns"] + whole["unexplained_ns"] + whole["dependency_ns"]
    if 100.0 * waits / max(1, whole["length_ns"]) >= 10:
        findings.append(Finding(
            "waits_on_path", "medium",
            f"{time_text(waits)} of the critical path ({pct_text(100.0 * waits / max(1, whole['length_ns']))}) is waiting between "
            f"one thing and the "
            f"next: {plural(numbers['inferred'], 'dependency')} between streams had to be inferred",
            "Look at the longest waits in the table; record events (experimental_config enable_cuda_sync_events=True) to see what "
            "is waited for.",
            {"waits_ns": waits, "inferred": numbers["inferred"]}, worth_ns=float(waits)))
    return findings


__all__ = ["CPU", "NamedPath", "critical_result", "links_of", "paths"]
