"""What a launch reads and writes: what must hold before each launch what it held before the first, and what that is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tuner.bring.source import Kernel

KNOWN = {"values", "packed", "counts", "permutes"}        # what is told of whole numbers, so that they can be made anew


@dataclass(frozen=True)
class Changed:
    """Of one launch, by arguments.

    same      an argument that is the same tensor as an earlier one, with that one: a function that works in place gives it twice
    holds     what the host filled a tensor with that the kernel then reads and writes: zeros that atomic operations add to
    restored  inputs of the call that the kernel reads and writes, and what an earlier kernel of the call computes
    resets    what the kernel's own autotuner resets or restores
    """

    same: Mapping[str, str]
    holds: Mapping[str, float]
    restored: Sequence[str]
    resets: Sequence[str]

    @property
    def known(self) -> list[str]:
        """Return the arguments of which it is known what each launch must find."""
        return list(dict.fromkeys([*self.holds, *self.restored, *self.resets]))

    def first(self, name: str) -> str:
        """Return the argument that stands for a tensor that is given several times."""
        return self.same.get(name, name)

    def notes(self) -> list[str]:
        """Return what a person must know of how it is launched again and again."""
        notes = [f"{name} is read and written: each launch finds in it what the first found, which is no part of the time"
                 for name in self.restored]
        return [*notes, *(f"{name} is read and written: it holds {number:g} before each launch, as the host filled it"
                          for name, number in self.holds.items())]


def read_changed(launch: Mapping[str, Any], kernel: Kernel | None, inputs: Sequence[Mapping[str, Any]], is_later: bool = False
                 ) -> Changed:
    """Return it for a launch as `tuner.bring.calls.recorder` tells it; `inputs`: tensors that the call itself makes.

    is_later  whether other kernels of the call are launched before
    """
    tensors = {name: argument for name, argument in launch["arguments"].items() if argument["kind"] == "tensor"}
    same = _find_same(tensors)
    autotune = launch["autotune"]
    resets = [name for name in (*autotune["reset_to_zero"], *autotune["restore_value"]) if name in tensors] if autotune else []
    arguments = kernel.arguments if kernel else ()
    written = {same.get(argument.name, argument.name) for argument in arguments if argument.written}
    reads = {same.get(argument.name, argument.name) for argument in arguments if argument.loaded}
    changed = [name for name in tensors if name in written & reads and name not in resets
               and not tensors[name].get("anything")]
    holds = {name: float(tensors[name]["filled"]) for name in changed if "filled" in tensors[name]}
    keys = {tensor["storage"] for tensor in inputs}
    return Changed(same, holds, [name for name in changed if name not in holds and (
        tensors[name]["storage"] in keys or (is_later and ("float" in tensors[name]["dtype"] or KNOWN & tensors[name].keys())))],
                   resets)


def _find_same(tensors: Mapping[str, Mapping[str, Any]]) -> dict[str, str]:
    first: dict[tuple[Any, ...], str] = {}
    same = {}
    for name, tensor in tensors.items():
        place = (tensor["storage"], tensor["offset"], tuple(tensor["shape"]), tuple(tensor["strides"]), tensor["dtype"])
        if place in first:
            same[name] = first[place]
        else:
            first[place] = name
    return same
