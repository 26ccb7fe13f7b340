"""Other values for what a host chooses, each tried on a small call of the same kind: does the kernel leave the same?"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations

import torch

from tuner.bring.calls.recorder import Launch
from tuner.bring.calls.tried.comparing import UNTRIED, compare_launches
from tuner.bring.forked import told_in_fork

TRY_S, KERNEL_S, LEAST_S = 60.0, 15.0, 3.0          # for one call, for one kernel of it, at least
MOST_TRIED = 24                         # other launches of one kernel
SMALLER, BLOCKS = (256, 64, 16, 4, 2), 4        # a size stays so many blocks long
LEAST = 16                              # what a tile has at least, for a matrix product and for a descriptor
NO_TIME = f"{UNTRIED}: there was no time"
LARGE, MOST_PAIRED = 64, 6              # sizes that are made smaller together

# (other numbers of the call, other choices) → its launches; None where it goes another way through the host
Run = Callable[[Mapping[int, int], Mapping[str, int]], list[Launch] | None]
Made = Callable[[], Mapping[str, int]]          # what the host chose in the call that was run last


@dataclass(frozen=True)
class Trial:
    """One launch of the small call in another form: `choice` of the host or, of a grid that is a function, its `names` alone."""

    at: int
    launch: Launch
    names: tuple[str, ...]
    choice: str = ""
    chosen: int = 0
    was: dict[str, int] = field(default_factory=dict)       # what those constexprs are without it
    changes: int = 1            # how many numbers of the launch are others
    verdict: str = ""
    tiles: bool = False         # whether the sizes of what it loads and stores at once are others
    sizes: dict[int, int] = field(default_factory=dict)     # numbers of the call that are others


def try_choices(run: Run, look: Run, made: Made, sizes: Sequence[int], launches: Sequence[Launch], choices: Iterable[str]
                ) -> list[Trial]:
    """Return each trial with its verdict; `choices` are the keys of what is tried, and `look` runs without what tensors hold.

    Those of a small call. A kernel that does not run there is tried with the call's own numbers: a list of lengths in the call
    stays as it is where the tensor that they are of gets smaller.
    """
    end_s = time.monotonic() + TRY_S
    keys, small = list(choices), choose_small(look, sizes, launches)
    done = _try_at(run, made, small, sizes, keys, end_s)
    lost = {trial.at for trial in done if trial.verdict.startswith(UNTRIED) and trial.verdict != NO_TIME} - {
        trial.at for trial in done if not trial.verdict.startswith(UNTRIED)}
    if not small or not lost:
        return done
    whole = _try_at(run, made, {}, sizes, keys, end_s, lost)
    ran = {trial.at for trial in whole if not trial.verdict.startswith(UNTRIED)}
    return [*(trial for trial in done if trial.at not in ran), *(trial for trial in whole if trial.at in ran)]


def _try_at(run: Run, made: Made, instead: Mapping[int, int], sizes: Sequence[int], choices: Sequence[str], end_s: float,
            only: Collection[int] = ()) -> list[Trial]:
    """Return the trials with their verdicts, with `instead` for numbers of the call; of the launches at `only` alone, if given."""
    base = run(instead, {})
    if base is None:
        return []
    chosen = made()
    trials = list(_of_choices(run, instead, base, {key: chosen[key] for key in choices if key in chosen}))
    keys = {(trial.at, *trial.names) for trial in trials}
    trials += [trial for trial in _of_grids(base, sizes) if (trial.at, *trial.names) not in keys]
    trials = [replace(trial, sizes=dict(instead)) for trial in trials if not only or trial.at in only]
    done: list[Trial] = []
    kernels = list(dict.fromkeys(trial.at for trial in trials))
    for number, index in enumerate(kernels):
        own = _in_turn([trial for trial in trials if trial.at == index], sizes)[:MOST_TRIED]
        left_s = end_s - time.monotonic()
        share_s = max(LEAST_S, left_s / (len(kernels) - number))
        done += _judge(base[index], own, min(KERNEL_S, share_s) if left_s > 0 else 0.0)
    return done


def _judge(base: Launch, trials: Sequence[Trial], limit_s: float) -> list[Trial]:
    """Return the trials of one kernel with their verdicts. One of which its process dies is wrong; the next is tried in another."""
    done: list[Trial] = []
    end_s = time.monotonic() + 2 * limit_s          # of the clock, where others use this machine too
    while len(done) < len(trials) and (left_s := end_s - time.monotonic()) > 0:
        rest = trials[len(done):]
        lines, died = told_in_fork(compare_launches, base, [trial.launch for trial in rest], min(limit_s, left_s), limit_s=left_s)
        verdicts = [line for line in lines if "verdict" in line]
        if died and lines and "base" in lines[-1]:
            verdicts.append({"verdict": "its process dies", "tiles": False})            # addresses that are none
        done += [replace(trial, verdict=its["verdict"], tiles=its["tiles"]) for trial, its in zip(rest, verdicts, strict=False)]
        if not died or not verdicts:
            break
    return [*done, *(replace(trial, verdict=NO_TIME) for trial in trials[len(done):])]


def _in_turn(trials: Sequence[Trial], sizes: Sequence[int]) -> list[Trial]:
    """Return the trials in the order in which time is spent: one of each choice, then the others; numbers of the call last."""
    met: Counter[tuple[str, tuple[str, ...]]] = Counter()
    turns = []
    for trial in trials:
        turns.append(met[trial.choice, trial.names])
        met[trial.choice, trial.names] += 1
    is_size = [all(its in sizes for its in trial.was.values()) and bool(trial.choice) for trial in trials]
    return [trials[index] for index in sorted(range(len(trials)), key=lambda at: (is_size[at], turns[at]))]


def choose_small(run: Run, sizes: Sequence[int], launches: Sequence[Launch]) -> dict[int, int]:
    """Return smaller numbers for those of a call, with which its launches have the same blocks and several programs an axis.

    Each alone, then those that are left two by two: `arange(16384).view(16, 1024)` has two that go together.
    """
    instead: dict[int, int] = {}
    ordered = sorted(set(sizes), reverse=True)
    for several in (*((size,) for size in ordered), *combinations([size for size in ordered if size >= LARGE][:MOST_PAIRED], 2)):
        if any(size in instead for size in several):
            continue
        for by in SMALLER:
            others = {size: size // by for size in several if size % by == 0 and size // by >= min(size, LEAST)}
            if len(others) < len(several) or (small := run({**instead, **others}, {})) is None:
                continue
            if all(_is_like(launch, its, size, other) for launch, its in zip(launches, small, strict=True)
                   for size, other in others.items()):
                instead |= others
                break
    return instead


def _is_like(launch: Launch, small: Launch, size: int, other: int) -> bool:
    """Return whether a launch has the same blocks, or blocks that shrank as the size did, and still several of each."""
    pairs = [(value, constexprs_of(small).get(name, 0)) for name, value in constexprs_of(launch).items()]
    if any(after not in (before, before * other // size) and after != power_of(other) for before, after in pairs):
        return False
    same = [before for before, after in pairs if before == after and before <= size]
    return other >= BLOCKS * max(same, default=0) and len(launch.programs) == len(small.programs) and all(
        after > 1 or before == 1 for before, after in zip(launch.programs, small.programs, strict=True))


def power_of(size: int) -> int:
    return 1 << max(0, (size - 1).bit_length())


def constexprs_of(launch: Launch) -> dict[str, int]:
    """Return the constexprs that are whole numbers."""
    return {parameter.name: value for parameter in launch.kernel.params if parameter.is_constexpr
            and type(value := launch.given.get(parameter.name)) is int and value > 0}


def _firsts(launches: Sequence[Launch]) -> Iterator[int]:
    """Yield where each kernel is launched first."""
    names: set[str] = set()
    for index, launch in enumerate(launches):
        if launch.name not in names:
            names.add(launch.name)
            yield index


def _others(value: int) -> tuple[int, ...]:
    """Return what is tried in place of a value: half may still cover nearly all of a row of 1,025, so a fourth too."""
    return (2 * value, value // 2, *((value // 4,) if value // 4 >= LEAST else ()))


def _of_choices(run: Run, instead: Mapping[int, int], base: Sequence[Launch], choices: Mapping[str, int]) -> Iterator[Trial]:
    for key, value in choices.items():
        for other in _others(value):
            if other < 1 or (runs := run(instead, {key: other})) is None:
                continue
            for index in _firsts(base):
                before, after = constexprs_of(base[index]), constexprs_of(runs[index])
                names = tuple(name for name, its in after.items() if before.get(name) != its)
                if names:
                    yield Trial(index, runs[index], names, key, other, {name: before[name] for name in names if name in before},
                                _count_changes(base[index], runs[index]))


def _count_changes(one: Launch, other: Launch) -> int:
    """Return how many numbers that the kernel is given, and extents of its tensors, are others."""
    pairs = [(its, other.given.get(name)) for name, its in one.given.items()]
    return sum(left.shape != right.shape if isinstance(left, torch.Tensor) and isinstance(right, torch.Tensor)
               else type(left) is int and left != right for left, right in pairs)


def _of_grids(base: Sequence[Launch], sizes: Sequence[int]) -> Iterator[Trial]:
    """Yield launches whose grid, a function of the constexprs, tells how many programs there are with another value of one.

    Those that the host does not give have the same grid. Not of those that are a number of the call: a size.
    """
    for index in _firsts(base):
        launch = base[index]
        listed = len((launch.autotune or {}).get("configs", ())) > 1
        for name, value in constexprs_of(launch).items():
            is_listed, is_size = listed and name in launch.tuned, value in sizes and name not in launch.tuned
            is_free = callable(launch.grid) or name in launch.defaulted
            if not is_free or name in launch.heuristics or is_listed or is_size:
                continue
            for other in _others(value):
                try:
                    programs = launch.programs if name in launch.defaulted else launch.programs_with({name: other})
                except Exception:
                    continue
                if other and programs and min(programs) > 0:
                    yield Trial(index, replace(launch, given={**launch.given, name: other}, programs=programs), (name,),
                                was={name: value})
