"""What a grid is with other values of the blocks, where the host gives it as a function."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tuner.bring.calls.recorder import Launch

MOST_LISTED = 128           # configurations of an autotuner whose grids are looked at


def grids_of(launch: Launch) -> list[dict[str, Any]]:
    """Return the grid with other values of each constexpr that is a size, where the host gave it as a function.

    With those that may be offered, and with each configuration that is listed: two blocks may move it together.
    """
    found: list[dict[str, Any]] = []
    sizes = {each.name: launch.given[each.name] for each in launch.kernel.params
             if each.is_constexpr and type(launch.given.get(each.name)) is int and launch.given[each.name] > 0}
    flags = {each.name for each in launch.kernel.params if type(launch.given.get(each.name)) is bool}
    listed = [{name: value for name, value in config.items() if (name in sizes and type(value) is int) or name in flags}
              for config in (launch.autotune or {}).get("kept", ())[:MOST_LISTED]]
    alone = [{name: other} for name, value in sizes.items()
             for other in (2 * value, value // 2, 4 * value, value // 4, *(config[name] for config in listed if name in config))]
    for instead in _once([*alone, *listed]):
        try:
            programs = launch.programs_with(instead) if all(each > 0 or each is False for each in instead.values()) else None
        except Exception:
            continue
        if programs is not None:
            found.append({"instead": instead, "grid": list(programs)})
    return found


def _once(several: Sequence[dict[str, int]]) -> list[dict[str, int]]:
    return list({tuple(each.items()): each for each in several}.values())
