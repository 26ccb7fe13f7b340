"""What leads an account: the cause, or the causes that one change takes away together, with the most to win."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from profiles.analysis.trace.account.causes import CAUSES, Group

LEAD_PCT = 10.0                     # of all GPUs' time: a cause with less to win does not lead
TYPE_TIMES = 3
# The host does not keep up: whether it is then in a launch, between two, or the kernels are too short for any host, is one fault.
HOST_BOUND = ("host_launch", "small_kernels", "host_code")
LEAST_JOINED = 0.1                  # of what they win together: the rest beside the largest, to be told together


@dataclass(frozen=True)
class HostBound:
    """The causes of HOST_BOUND together, where one CUDA graph wins more than any other single cause; ns are means over the GPUs."""

    groups: tuple[Group, ...]       # the most to win first
    idle_ns: int                    # time that the GPU waits for a launch: what there is to win at most
    graph_ns: int                   # of that what launching the same kernels as one CUDA graph wins, at most


def lead_of(groups: Sequence[Group], wall_ns: int, graph_ns: int) -> tuple[Group | None, HostBound | None]:
    """Return what leads, and that it is a host which does not keep up where it is. `graph_ns`: what one CUDA graph wins.

    The cause with the most to win, else what the GPUs did the most. Tensor cores change results, so they lead only where they win
    TYPE_TIMES as much as what costs nothing. A group that stands for several causes has the time and the rows of all.
    """
    if not groups:
        return None, None
    bound = _host_bound(groups, wall_ns, graph_ns)
    if bound:
        joined = replace(bound.groups[0], wall_ns=bound.idle_ns, recoverable_ns=bound.idle_ns,
                         rows=tuple(row for group in bound.groups for row in group.rows))
        groups = sorted([joined, *(each for each in groups if each not in bound.groups)], key=lambda each: -_gain(each))
    lead = _lead(groups, wall_ns)
    return lead, bound if bound and lead is joined else None


def _gain(group: Group) -> int:
    return group.recoverable_ns or 0


def _host_bound(groups: Sequence[Group], wall_ns: int, graph_ns: int) -> HostBound | None:
    """The causes of a host that does not keep up, where a graph alone wins more than any other cause does."""
    mine = [each for each in groups if each.cause in HOST_BOUND and _gain(each) and not each.rank]
    idle_ns = sum(map(_gain, mine))
    graph_ns = min(graph_ns, idle_ns)
    others = max((_gain(each) for each in groups if each not in mine), default=0)
    if 100 * graph_ns < LEAD_PCT * wall_ns or graph_ns <= others or idle_ns - _gain(mine[0]) < LEAST_JOINED * idle_ns:
        return None
    return HostBound(tuple(mine), idle_ns, graph_ns)


def _lead(groups: Sequence[Group], wall_ns: int) -> Group:
    """`groups`: the most to win first."""
    worth = [each for each in groups if 100 * _gain(each) >= LEAD_PCT * wall_ns]
    free = [each for each in worth if each.cause != "no_tensor_cores"]
    if worth and worth[0].cause == "no_tensor_cores" and free and _gain(worth[0]) < TYPE_TIMES * _gain(free[0]):
        return free[0]
    if worth:
        return worth[0]
    most = max((each for each in groups if CAUSES[each.cause].side != "outside"), key=lambda each: (each.wall_ns, each.cause),
               default=None)
    return most if most and most.wall_ns * 20 >= wall_ns else max(groups, key=lambda each: (each.wall_ns, each.cause))
