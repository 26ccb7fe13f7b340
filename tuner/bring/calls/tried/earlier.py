"""What a kernel leaves for what comes after it in one call: Triton's interpreter runs it on the values kept beside tensors.

Run are kernels that write whole numbers: offsets, counts, tables of blocks, orders. The host then reads them, computes with
them and gives them to later kernels as it would on a GPU. What cannot be run, or not within the time, is not known afterwards.
"""

from __future__ import annotations

import hashlib
import resource
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch
from torch.utils._python_dispatch import _disable_current_modes

from profiles.base.refused import Refused
from tuner.bring.calls.recorder import Launch, describe
from tuner.bring.calls.tried.gaps import let_call
from tuner.bring.calls.tried.interpreted import FILLS, interpret
from tuner.bring.calls.values import Values
from tuner.bring.forked import told_in_fork
from tuner.bring.source import Kernel, all_kernels_of

CALL_S, MOST_S = 10.0, 40.0         # of CPU, for the kernels of one call and of all that is made again
MOST_KEPT, MOST_KEPT_BYTES = 64, 1 << 20            # launches whose results are kept for the same again, and their bytes
MOST_READ = 64              # texts of kernels that are kept
CLOCK = 3                   # seconds that one of CPU may take, where others use this machine too


class Earlier:
    """Runs kernels of one call as they are launched. `ran` and `lost`: the names of those that were run, and that were not."""

    def __init__(self, values: Values) -> None:
        self.values, self.runs = values, False
        self._most_s = MOST_S
        self._kept: dict[str, list[dict[str, Any]]] = {}        # what launches left, by all that they were given
        self.start()

    def start(self) -> None:
        """Begin another call."""
        self.ran: dict[str, None] = {}
        self.lost: dict[str, str] = {}
        self.values.follows = False
        self._left_s = min(CALL_S, self._most_s)

    def note(self, launch: Launch) -> None:
        """Run a launch that writes whole numbers, else note that they are not known any more."""
        written = [name for name in _written(launch) if isinstance(launch.given.get(name), torch.Tensor)]
        for name in written:
            self.values.note_written(launch.given[name])
        whole = [name for name in written if not _is_fraction(launch.given[name])]
        if not whole:
            return
        why = "" if self.runs else "it was not run"
        if not why:
            before_s = _spent_s()
            why = self._run(launch, written)
            took_s = _spent_s() - before_s
            self._left_s, self._most_s = self._left_s - took_s, self._most_s - took_s
        if why:
            self.lost[launch.name] = why
            for name in whole:
                self.values.forget_memory(launch.given[name])
        else:
            self.ran[launch.name], self.values.follows = None, True

    def _run(self, launch: Launch, written: list[str]) -> str:
        """Write what a launch leaves into the values beside its tensors; return why it could not be run, "" where it was."""
        if self._left_s <= 0:
            return "there was no time"
        held = {name: {**launch.held.get(name, {}), **({"tensor": known} if known is not None else {})}
                for name, tensor in launch.given.items() if isinstance(tensor, torch.Tensor)
                and ((known := self._known(tensor)) is not None or name in launch.held)}
        with _disable_current_modes():
            key = _key_of(launch, held)
            if (said := self._kept.get(key, [])) == []:
                said, died = told_in_fork(_leave, replace(launch, held=held), written, self._left_s, limit_s=CLOCK * self._left_s)
                if not said or not {"done", "failed"} & said[-1].keys():
                    return "its process dies" if died else "there was no time"
                if sum(len(one.get("bytes", b"")) for one in said) <= MOST_KEPT_BYTES:
                    self._kept[key] = said
                    self._kept.pop(next(iter(self._kept)) if len(self._kept) > MOST_KEPT else "", None)
        if "failed" in said[-1]:
            return str(said[-1]["failed"])
        for one in said[:-1]:
            self._keep(launch.given[one["name"]], one)
        return ""

    def _known(self, tensor: torch.Tensor) -> torch.Tensor | None:
        known = self.values.of(tensor)
        return known if known is not None and known.shape == tensor.shape else None

    def _keep(self, tensor: torch.Tensor, one: Mapping[str, Any]) -> None:
        with _disable_current_modes():
            left = torch.frombuffer(bytearray(one["bytes"]), dtype=getattr(torch, one["dtype"])) if one["bytes"] else torch.empty(0)
            left = left.reshape(tuple(tensor.shape)).to(tensor.dtype)
        known = self._known(tensor)
        if known is None and self.values.is_small(tensor):
            self.values.keep(tensor, left)
        elif known is not None:
            with _disable_current_modes():
                known.copy_(left)           # tensors that share its memory see it


def _leave(say: Callable[[dict[str, Any]], None], launch: Launch, written: list[str], limit_s: float) -> None:
    """Say what each written tensor of a launch holds after it, then "done"; else why it "failed". Of a fork of its own."""
    let_call()
    torch.set_num_threads(1)            # threads of the parent are none of a fork's
    try:
        left = _interpret(launch, limit_s)
    except BaseException as error:
        say({"failed": f"{type(error).__name__}: {error}".partition("\n")[0][:160]})
        return
    if left.unknown:
        say({"failed": f"what {left.unknown} holds is not known"})
        return
    for name in written:
        tensor = left.tensors[name].contiguous()
        kind = str(tensor.dtype).removeprefix("torch.")
        say({"name": name, "dtype": kind, "bytes": tensor.reshape(-1).view(torch.uint8).numpy().tobytes()})
    say({"done": True})


def _key_of(launch: Launch, held: Mapping[str, Mapping[str, Any]]) -> str:
    """Return a hash of all that a launch is given, as far as it is known."""
    key = hashlib.blake2b(repr((launch.name, launch.kernel.fn.__code__.co_filename, launch.programs)).encode())
    storages: dict[int, int] = {}           # whatever their addresses are in this call
    for name, value in launch.given.items():
        told = describe(value)
        at = storages.setdefault(told["storage"], len(storages)) if "storage" in told else 0
        key.update(f"{name}={told | {'storage': at}!r}".encode())
    for name, known in held.items():
        key.update(f"{name} {[(part, its) for part, its in known.items() if part != 'tensor']!r}".encode())
        if "tensor" in known:
            key.update(known["tensor"].contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
    return key.hexdigest()


def _spent_s() -> float:
    """Return the CPU that forks have taken, s."""
    spent = resource.getrusage(resource.RUSAGE_CHILDREN)
    return spent.ru_utime + spent.ru_stime


def _interpret(launch: Launch, limit_s: float) -> Any:
    whole = tuple(True for _ in launch.programs)
    try:
        return interpret(launch, FILLS[0], limit_s, whole, widens=True, may_rest=True)
    except (TypeError, ValueError, AssertionError, NotImplementedError):        # it names the type itself
        return interpret(launch, FILLS[0], limit_s, whole, widens=False, may_rest=True)


def _written(launch: Launch) -> list[str]:
    """Return the arguments that a kernel stores through, by its text and the branches that the launch takes; else all."""
    function = launch.kernel.fn
    given = tuple((each.name, value) for each in launch.kernel.params if each.is_constexpr
                  and isinstance(value := launch.given.get(each.name), bool | int | str | None))
    kernels = _kernels_of(function.__code__.co_filename, function.__name__, given)
    kernel = kernels.get(function.__name__) or next((each for each in kernels.values() if each.function == function.__name__), None)
    return [each.name for each in kernel.arguments if each.written] if kernel else list(launch.given)


@lru_cache(MOST_READ)
def _kernels_of(file: str, name: str, given: tuple[tuple[str, Any], ...]) -> dict[str, Kernel]:
    try:
        return all_kernels_of(Path(file).read_text(), {name: dict(given)})
    except (OSError, Refused, UnicodeDecodeError):
        return {}


def _is_fraction(tensor: torch.Tensor) -> bool:
    return bool(tensor.is_floating_point() or tensor.is_complex())
