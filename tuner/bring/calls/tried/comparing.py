"""A launch and others in its place, run by the interpreter one after the other, and whether they leave the same."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from tuner.bring.calls.recorder import Launch
from tuner.bring.calls.tried.gaps import fill_gaps
from tuner.bring.calls.tried.interpreted import FILLS, CannotTry, Left, interpret

RIGHT = "right"
UNTRIED = "not tried"
MOST_ERROR = 0.02           # ‖other − base‖ / ‖base‖: sums in another order, rounded to eight bits
# of one element, of itself and of what elements are like: more than rounding does, it is another number
OTHER, OF_ALL = 0.3, 0.3
MOST_SAID = 10              # of an error, as a number
LEAST_FINITE = 0.5          # of what a launch leaves, so that it says something


class _Base:
    """The launch as the host makes it, run once for each choice of axes."""

    def __init__(self, launch: Launch, limit_s: float) -> None:
        self.launch, self.end_s = launch, time.process_time() + limit_s
        self.fill, self.widens = FILLS[0], True
        self._left: dict[tuple[bool, ...], Left] = {}
        self._failed: dict[tuple[bool, ...], BaseException] = {}

    def left_s(self) -> float:
        return self.end_s - time.process_time()

    def run(self, whole: tuple[bool, ...]) -> Left:
        """Return what the launch itself leaves. Raises what running it raises."""
        if whole in self._failed:
            raise self._failed[whole]
        if whole not in self._left:
            try:
                self._left[whole] = self._interpret(self.launch, whole, 3) if self._left else self._choose(whole)
            except BaseException as error:
                self._failed[whole] = error
                raise
        return self._left[whole]

    def _choose(self, whole: tuple[bool, ...]) -> Left:
        """Return what is left with the types and the inputs with which the launch runs, and leaves something."""
        try:
            left = self._interpret(self.launch, whole, 3)
        except CannotTry:
            raise
        except Exception:
            self.widens = False         # it names the type itself
            left = self._interpret(self.launch, whole, 3)
        if any(_finite(each) < LEAST_FINITE for each in left.memory.values()):
            self.fill = FILLS[1]
            left = self._interpret(self.launch, whole, 3)
        return left

    def _interpret(self, launch: Launch, whole: tuple[bool, ...], parts: int) -> Left:
        return interpret(launch, self.fill, self.left_s() / parts, whole, self.widens)

    def compare(self, other: Launch, whole: tuple[bool, ...]) -> tuple[str, bool]:
        """Return the verdict on another launch, and whether what it loads and stores at once is of other sizes."""
        right = self.run(whole)
        its = self._interpret(other, whole, 2)
        if its.unknown and not right.unknown:       # what an earlier kernel leaves, which was not run for it
            raise CannotTry(f"what {its.unknown} holds with it is not known")
        verdict, is_tile = why_different(right.memory, its.memory) or RIGHT, its.shapes != right.shapes
        if verdict == RIGHT and its.unknown and not is_tile:
            raise CannotTry(f"what {its.unknown} holds is not known, and it may tell how far a loop goes")
        return verdict, is_tile


def compare_launches(say: Callable[[dict[str, Any]], None], base: Launch, others: Sequence[Launch], limit_s: float) -> None:
    """Say {"verdict", "tiles"} of each other launch: "right", "not tried: why", else what differs. Of a fork of its own.

    "tiles": whether the sizes of what it loads and stores at once are others. {"base": true} is said before the first, once the
    launch itself has run. Axes of a grid that stay as they are are run at their ends, then as a whole where that is not right: an
    order of programs may go over several axes.
    """
    fill_gaps()
    torch.set_num_threads(1)            # threads of the parent are none of a fork's
    tried = _Base(base, limit_s)
    for other in others:
        all_whole = tuple(True for _ in base.programs)
        moved = tuple(extent != its for extent, its in zip(base.programs, other.programs, strict=True))
        verdict, is_tile = "", False
        for whole in dict.fromkeys((moved, all_whole)):
            try:
                tried.run(whole)
            except BaseException as error:
                verdict = verdict or f"{UNTRIED}: {error if isinstance(error, CannotTry) else _say(error)}"
                break
            say({"base": True})
            try:
                verdict, is_tile = tried.compare(other, whole)
            except CannotTry as error:
                verdict = verdict or f"{UNTRIED}: {error}"
            except Exception as error:
                verdict = _say(error)
            if verdict == RIGHT:
                break
        say({"verdict": verdict, "tiles": is_tile})


def why_different(base: Mapping[str, torch.Tensor], other: Mapping[str, torch.Tensor]) -> str:
    """Return the first argument that holds something else; "" where each holds the same."""
    for name, right in base.items():
        tensor = other.get(name)
        if tensor is None or tensor.shape != right.shape or tensor.dtype != right.dtype:
            return f"the size of {name} follows it"
        first, two = right.double(), tensor.double()
        finite = first.isfinite()
        if not torch.equal(finite, two.isfinite()):
            return f"{name} differs"
        first, two = first[finite], two[finite]
        scale = float(first.norm())
        error = float((first - two).norm()) / scale if scale else float((first - two).norm())
        if not error <= MOST_ERROR:
            return f"{name} differs by {100 * error:.0f} %" if error < MOST_SAID else f"{name} differs"
        far, like = (first - two).abs(), scale / max(1, first.numel()) ** 0.5
        others = int(((far > OTHER * torch.maximum(first.abs(), two.abs())) & (far > OF_ALL * like)).sum())
        if others:
            return f"{others:,} of {first.numel():,} elements of {name} differ"
    return ""


def _finite(tensor: torch.Tensor) -> float:
    return float(tensor.double().isfinite().double().mean()) if tensor.numel() else 1.0


def _say(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}".partition("\n")[0][:160]
