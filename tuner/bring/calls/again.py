"""The calls that were made again: with another size, with another value for what the host chooses."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(eq=False)
class Again:
    """One launch of one call: with another `size` (and what it `is`), with another `choice`, or the call as it is."""

    launch: Mapping[str, Any]
    size: int = 0
    other: int = 0
    choice: str = ""
    chosen: int = 0             # what that choice is here
    numbers: Mapping[int, int] = field(default_factory=dict)        # other numbers of the call, of several at once

    def value(self, name: str) -> Any:
        """Return what a number, a flag or a text is that the kernel is given; None where it is none."""
        return (self.launch["arguments"].get(name) or self.launch["constexprs"].get(name) or {}).get("value")

    def constexpr(self, name: str) -> int | None:
        """Return the whole number that a constexpr is; None where it is none."""
        value = self.launch["constexprs"].get(name, {}).get("value")
        return value if type(value) is int else None

    def env(self, dims: Mapping[str, int]) -> dict[str, int]:
        """Return the value of each dimension in this call."""
        return {name: self.other if size == self.size else self.numbers.get(size, size) for name, size in dims.items()}

    def known(self, dims: Mapping[str, int]) -> dict[str, int]:
        """Return dimensions, constexprs and options of the launch that are whole numbers."""
        arguments = {**self.launch["arguments"], **self.launch["constexprs"]}
        blocks = {name: argument["value"] for name, argument in arguments.items() if type(argument.get("value")) is int}
        return {**blocks, **{name: knob for name, knob in self.launch["options"].items() if type(knob) is int}, **self.env(dims)}

    def shapes(self) -> list[Any]:
        """Return the extents of each tensor that the kernel is given."""
        return [tensor.get("shape") for tensor in self.launch["arguments"].values() if tensor["kind"] in ("tensor", "descriptor")]

    def moves(self, base: Again, blocks: Sequence[str]) -> bool:
        """Return whether another choice changes blocks or options, and no tensor's extents."""
        changed = any(self.constexpr(name) != base.constexpr(name) for name in blocks)
        changed = changed or self.launch["options"] != base.launch["options"]
        return bool(self.choice) and changed and self.shapes() == base.shapes()

    def chooses(self, base: Again, blocks: Sequence[str]) -> bool:
        """Return whether it `moves` because a block itself was chosen otherwise, not a size that a block follows."""
        return self.moves(base, blocks) and any(self.constexpr(name) == self.chosen != base.constexpr(name) for name in blocks)

    def moves_alone(self, base: Again, blocks: Sequence[str], derived: Mapping[str, Any]) -> bool:
        """Return whether another choice changes blocks, options and what is derived of them, and nothing else of the launch."""
        before = {**base.launch["arguments"], **base.launch["constexprs"]}
        names = {name for name, value in {**self.launch["arguments"], **self.launch["constexprs"]}.items()
                 if value.get("value") != before[name].get("value")}
        return self.moves(base, blocks) and names <= {*blocks, *derived}


def read_again(record: Mapping[str, Any], index: int, launch: Mapping[str, Any]) -> Iterator[Again]:
    """Yield the launch at `index` as it is, and in each call that goes the same way through the host."""
    yield Again(launch)
    for trial in record.get("with_sizes", ()):
        if (same := _same(trial["launches"], index, record)) is not None:
            yield Again(same, trial["size"], trial["is"])
    for trial in record.get("with_choices", ()):
        if (same := _same(trial["launches"], index, record)) is not None:
            yield Again(same, choice=trial["choice"], chosen=trial["is"])


def _same(launches: Sequence[Mapping[str, Any]], index: int, record: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return the launch that stands where this one stood; another count or order of kernels is another way through the host."""
    names = [launch["kernel"] for launch in record["launches"]]
    if [launch["kernel"] for launch in launches] != names:
        return None
    return launches[index]
