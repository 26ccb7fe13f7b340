"""TMA descriptors that a host makes of its tensors: an adapter makes them anew for each configuration, whose blocks they hold."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tuner.bring.calls.again import Again
from tuner.bring.calls.fitting import fit

IMPORT = "from triton.tools.tensor_descriptor import TensorDescriptor"


def descriptor_rules(launch: Mapping[str, Any], points: Sequence[Again], dims: Mapping[str, int], sizes: Sequence[str],
                     blocks: Sequence[str], meta: str) -> dict[str, str]:
    """Return argument → the expression that makes its descriptor of the tensor in its place: `TensorDescriptor.from_tensor(…)`.

    points  the call as it is and made again; `sizes` and `blocks`: names that a block's extent may follow
    meta    how an expression names one: 'meta["{}"]'
    Blocks that an autotuner's hook sets follow its configurations. Only whole tensors: a descriptor of other extents than its
    tensor's, or with a block that nothing simple tells, is asked.
    """
    rules = {}
    autotune = launch["autotune"] or {}
    of_hook = autotune.get("blocks", [])            # where an autotuner's hook sets them
    if launch["gluon"] or (autotune and (launch["heuristics_above"] or bool(of_hook) != autotune["pre_hook"])):
        return {}
    for name, argument in launch["arguments"].items():
        if argument["kind"] != "descriptor":
            continue
        base = argument["base"]
        is_whole = (argument["shape"], argument["strides"], 0) == (base["shape"], base["strides"], base["offset"])
        given = [(again.known(dims), descriptor["block"]) for again in points
                 if (descriptor := again.launch["arguments"].get(name, {})).get("kind") == "descriptor"]
        given += [({**points[0].known(dims), **each["config"]}, each["blocks"][name]) for each in of_hook if name in each["blocks"]]
        block = [fit([(env, extents[axis]) for env, extents in given if axis < len(extents)], sizes, blocks, meta)
                 for axis in range(len(argument["block"]))]
        if is_whole and None not in block:
            rules[name] = f"TensorDescriptor.from_tensor({meta.format(name)}, [{', '.join(map(str, block))}])"
    return rules


def is_extent(name: str, points: Sequence[Again]) -> bool:
    """Return whether blocks of descriptors follow a constexpr: their extents are its values wherever it was chosen otherwise."""
    def extents(again: Again) -> set[int]:
        return {extent for spec in again.launch["arguments"].values() if spec["kind"] == "descriptor" for extent in spec["block"]}

    chosen = [again for again in points if again.choice and again.constexpr(name) != points[0].constexpr(name)]
    return bool(chosen) and all(again.constexpr(name) in extents(again) for again in (points[0], *chosen))


def with_tensors(launch: Mapping[str, Any], rules: Mapping[str, str]) -> dict[str, Any]:
    """Return the launch with the tensors of those descriptors in their places."""
    arguments = {name: argument["base"] if name in rules else argument for name, argument in launch["arguments"].items()}
    return {**launch, "arguments": arguments}
