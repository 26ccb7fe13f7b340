"""One call made again and again without a GPU: as it is, with other sizes, with other values for what the host chooses."""

from __future__ import annotations

import math
import random
import signal
import sys
import time
import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
import triton
from torch._subclasses.fake_tensor import FakeTensorMode

from profiles.base.refused import Refused
from tuner.bring.calls.choices import Choices
from tuner.bring.calls.expression import MAX_ELEMENTS, MAX_RANK, CallExpression, Evaluation
from tuner.bring.calls.pretending import pretended
from tuner.bring.calls.recorder import Launch, Recorder, describe, describe_launch
from tuner.bring.calls.told.grids import grids_of
from tuner.bring.calls.told.makers import bounds_of, is_whole, shape_of, values_of
from tuner.bring.calls.tried.earlier import Earlier
from tuner.bring.calls.tried.trials import constexprs_of, try_choices
from tuner.bring.calls.values import MOST_ELEMENTS, Values

MOST_SIZES, MOST_CHOICES, AGAIN_S = 16, 24, 60.0        # calls made again: for so many numbers, choices, seconds
LOOKS = "the host looks at values of tensors, which have none here: record the call where it runs (ridgepoint_client.record)"
AGAIN_LEAST_S, AGAIN_TIMES = 3.0, 4     # one of them may take so long, and so many times what the call itself takes
MAX_SIZE, LARGE = 1 << 30, 1 << 14
CALL = "call:"                              # before the key of a choice that is a number of the call
# where a failure is no line that its reader can mend: ours, torch's, Triton's
_NOT_THE_FILE = tuple(f"{Path(path).parent}/" for path in (__file__, torch.__file__, triton.__file__))


class TooLongError(Exception):
    """A call that was made again and takes too long."""


@contextmanager
def _ended_after(limit_s: float) -> Iterator[None]:
    """Raise TooLongError in what takes longer. Of the main thread."""
    def end(*_: Any) -> None:
        raise TooLongError

    before = signal.signal(signal.SIGALRM, end)
    signal.setitimer(signal.ITIMER_REAL, limit_s)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


class Session:
    """Calls of one module's functions. `launches` are those of the call as it is, with their values: what is compiled."""

    def __init__(self, module: ModuleType, choices: Choices, mode: FakeTensorMode, dtype: torch.dtype) -> None:
        self.module, self.choices, self.mode, self.dtype = module, choices, mode, dtype
        self.values = Values()
        self.recorder = Recorder(look=self.values.describe)
        self.earlier = Earlier(self.values)
        self.recorder.after = self.earlier.note
        self.launches: list[Launch] = []
        self._made: list[tuple[Any, dict[str, Any]]] = []
        self._took_s = self._run_s = 0.0        # what the call itself takes, and what the last one took
        self._lost: dict[str, str] = {}         # kernels that could not be run, and why
        self._reads = self._runs = False        # whether the host looks at values, and whether kernels are run for them
        self._fails = False                     # whether the call as it is ends in an error, after what it launched

    def record(self, call: CallExpression) -> dict[str, Any]:
        """Return what the call launches, and what it launches with other numbers: see `understand`. {"failed"} where nothing."""
        self.recorder.start()
        try:
            failed, result = self._run_with_values(call)
            self.launches, self._fails = list(self.recorder.launches), bool(failed)
            record: dict[str, Any] = {
                "call": call.text, "sms": torch.cuda.get_device_properties(0).multi_processor_count,
                "sizes": list(call.sizes)[:MOST_SIZES], "inputs": [tensor for _, tensor in self._made],
                "launches": [describe_launch(launch) for launch in self.launches],
                "result": _describe_result(result)}
            if failed:
                record["failed_at"] = failed
            record["ran"] = [name for name in self.earlier.ran if name not in self.earlier.lost]
            record["lost"] = [f"{name}: {why}" for name, why in self._lost.items()]
            if self.values.fractions:
                record["drawn"] = True
            self._keep_more(self._runs and self._reads, self.values.fractions)      # made again, it needs what the host reads
            if not self.launches:
                return {**record, "failed": failed or "the call launches no Triton kernel"}
            chosen, placed = dict(self.choices.made), dict(self.choices.placed)
            end_s = time.monotonic() + AGAIN_S
            record["grids"] = [grids_of(launch) for launch in self.launches]
            record["with_sizes"] = self._with_sizes(call, end_s)
            choices = {f"{CALL}{size}": size for size in record["sizes"] if self._only_chooses(size, record["with_sizes"])}
            record["sizes"] = [size for size in record["sizes"] if size not in choices.values()]
            record["with_sizes"] = [again for again in record["with_sizes"] if again["size"] not in choices.values()]
            record["choices"] = choices | {key: value for key, value in chosen.items() if self._may_be_block(value)}
            record["with_choices"] = self._with_choices(call, record["choices"], end_s)
            varied = {again["size"] for again in record["with_sizes"]}
            record["choices"] |= (more := self._unnamed(placed, record["with_choices"], set(record["sizes"]) - varied))
            record["with_choices"] += self._with_choices(call, more, end_s)
            record["tries"] = self._tries(call, list(record["choices"]))
            return record
        finally:
            self.recorder.stop()

    def _only_chooses(self, size: int, again: Sequence[Mapping[str, Any]]) -> bool:
        """Return whether a number of the call tells constexprs alone, no extent and no number of an argument: a block."""
        def told_by(launch: Mapping[str, Any]) -> list[Any]:
            return [(entry.get("value"), entry.get("shape"), entry.get("strides")) for entry in launch["arguments"].values()]

        def kernels_of(launches: Sequence[Mapping[str, Any]]) -> list[Any]:
            return [(launch["kernel"], told_by(launch)) for launch in launches]

        others = [trial["launches"] for trial in again if trial["size"] == size]
        own = [short_of(launch) for launch in self.launches]
        return bool(others) and all(kernels_of(its) == kernels_of(own) for its in others) and any(
            theirs["constexprs"] != mine["constexprs"] for its in others for theirs, mine in zip(its, own, strict=True))

    def _goes(self, call: CallExpression, choices: Mapping[str, int], instead: Mapping[int, int] | None = None) -> bool:
        """Make the call again with other choices, those that the call itself gives among them; return `_goes_as_before`."""
        self.choices.instead = {key: value for key, value in choices.items() if not key.startswith(CALL)}
        of_call = {int(key.removeprefix(CALL)): value for key, value in choices.items() if key.startswith(CALL)}
        try:
            return self._goes_as_before(call, {**(instead or {}), **of_call})
        finally:
            self.choices.instead = {}

    def _may_be_block(self, value: int) -> bool:
        return any(type(argument) is int and argument == value for launch in self.launches
                   for argument in (*launch.given.values(), *launch.options.values()))

    def _run_with_values(self, call: CallExpression) -> tuple[str, Any]:
        """Make the call; where it, or a kernel's whole numbers, need more values, kernels are run and fractions kept as well."""
        failed, result = self._run(call)
        self._reads, unknown, writes = failed == LOOKS, self._count_unknown(), bool(self.earlier.lost)
        best = kept = False, False
        self._lost = {}
        for more in (*([(True, False)] if writes else []), (writes, True)):
            if not unknown and failed != LOOKS:
                break
            kept = more
            self._keep_more(*kept)
            (its_failed, its), its_unknown = self._run(call), self._count_unknown()
            self._lost = dict(self.earlier.lost) if more[0] else {}
            if failed == LOOKS or (its_failed == failed and its_unknown < unknown):
                failed, result, unknown, best = its_failed, its, its_unknown, kept
        if kept != best:
            self._keep_more(*best)
            failed, result = self._run(call)
        self._runs, self._took_s = best[0], self._run_s
        return failed, result

    def _keep_more(self, runs: bool, fractions: bool) -> None:
        """Say whether kernels that write whole numbers are run, and whether values of fractions are kept."""
        self.earlier.runs = self.values.fills = runs
        self.values.fractions = fractions

    def _count_unknown(self) -> int:
        """Return how many tensors of whole numbers were given to kernels of which nothing is known."""
        return sum(isinstance(value, torch.Tensor) and not (value.is_floating_point() or value.is_complex())
                   and not launch.held.get(name) for launch in self.recorder.launches for name, value in launch.given.items())

    def _run(self, call: CallExpression, instead: Mapping[int, int] | None = None) -> tuple[str, Any]:
        """Make the call; return why it failed, "" where it did not, and its result."""
        self.recorder.launches, self._made, self.choices.made, self.choices.placed = [], [], {}, {}
        self.earlier.start()
        began_s = time.monotonic()
        try:
            with pretended(self.mode, self.values):
                _seed()
                evaluation = Evaluation(self._names(), self._make, _dtype, instead, torch.is_tensor, self._is_own, _of_torch)
                return "", evaluation.value(call.tree)
        except Refused as error:
            return str(error), None
        except TooLongError:
            raise
        except Exception as error:
            return _explain(error), None
        finally:
            self._run_s = time.monotonic() - began_s

    def _names(self) -> Mapping[str, Any]:
        """Return the file's names, and its package by its own."""
        top = self.module.__name__.partition(".")[0]
        package = sys.modules.get(top)
        return {**({top: package} if package is not None and package is not self.module else {}), **vars(self.module)}

    def _is_own(self, module: ModuleType) -> bool:
        """Return whether a module lies in the file's package."""
        return module is not self.module and f"{module.__name__}.".startswith(f"{self.module.__name__.partition('.')[0]}.")

    def _goes_as_before(self, call: CallExpression, instead: Mapping[int, int] | None = None) -> bool:
        """Make the call again; return whether it ends, or fails where the call as it is fails: after the same launches.

        One that takes far longer than the call as it is goes another way: a host may loop over sizes.
        """
        try:
            with _ended_after(AGAIN_LEAST_S + AGAIN_TIMES * self._took_s):
                failed, _ = self._run(call, instead)
        except TooLongError:
            return False
        launched = [launch.name for launch in self.recorder.launches]
        return not failed or (self._fails and launched == [launch.name for launch in self.launches])

    def _with_sizes(self, call: CallExpression, end_s: float) -> list[dict[str, Any]]:
        """Call with each number of the call doubled (halved, where that fails), 1.5 times, one more, far larger and smaller."""
        again = []
        for size in call.sizes[:MOST_SIZES]:
            large = size * max(16, LARGE // size)
            for others in ((2 * size, size // 2), (size + size // 2,), (size + 1,), (large, 16 * size), (size // 16,)):
                for other in others:
                    if time.monotonic() > end_s or not 1 <= other <= MAX_SIZE or other == size:
                        continue
                    if self._goes_as_before(call, {size: other}):
                        again.append({"size": size, "is": other, "launches": [short_of(run) for run in self.recorder.launches]})
                        break
        return again

    def _with_choices(self, call: CallExpression, chosen: Mapping[str, int], end_s: float) -> list[dict[str, Any]]:
        again = []
        for key, value in list(chosen.items())[:MOST_CHOICES]:
            for other in (2 * value, max(1, value // 2)):
                if time.monotonic() > end_s or other == value:
                    continue
                if self._goes(call, {key: other}):
                    again.append({"choice": key, "is": other, "launches": [short_of(run) for run in self.recorder.launches]})
        return again

    def _unnamed(self, placed: Mapping[str, int], again: Sequence[Mapping[str, Any]], like: set[int]) -> dict[str, int]:
        """Return the numbers by their places that may be constexprs which no choice with a name changed, or `like` sizes."""
        still = like | {value for index, launch in enumerate(self.launches) for name, value in constexprs_of(launch).items()
                 if all(trial["launches"][index]["constexprs"][name].get("value") == value for trial in again
                        if len(trial["launches"]) == len(self.launches))}
        return {key: value for key, value in placed.items() if value in still}

    def _tries(self, call: CallExpression, chosen: Sequence[str]) -> list[dict[str, Any]]:
        """Return whether the kernels stay right with other choices: a small call's launches, run by Triton's interpreter."""
        def run(instead: Mapping[int, int], choices: Mapping[str, int]) -> list[Launch] | None:
            as_before = self._goes(call, choices, instead)
            same = [launch.name for launch in self.recorder.launches] == [launch.name for launch in self.launches]
            return list(self.recorder.launches) if as_before and same else None

        def look(instead: Mapping[int, int], choices: Mapping[str, int]) -> list[Launch] | None:
            self._keep_more(self._runs and self._reads, self.values.fractions)
            try:
                return run(instead, choices)
            finally:
                self._keep_more(self._runs, self.values.fractions)

        self.recorder.look = self.values.look_whole
        self._keep_more(self._runs, self.values.fractions)
        try:
            own = {key: int(key.removeprefix(CALL)) for key in chosen if key.startswith(CALL)}
            sizes = [size for size in call.sizes[:MOST_SIZES] if size not in own.values()]
            trials = try_choices(run, look, lambda: {**own, **self.choices.made, **self.choices.placed}, sizes, self.launches,
                                 chosen)
        finally:
            self.recorder.look = self.values.describe
        return [{"at": case.at, "sizes": [list(pair) for pair in case.sizes.items()], "names": list(case.names), "was": case.was,
                 "changes": case.changes, "choice": case.choice, "is": case.chosen, "verdict": case.verdict, "tiles": case.tiles,
                 "launch": short_of(case.launch)} for case in trials]

    def _make(self, maker: str, given: list[Any], more: dict[str, Any]) -> torch.Tensor:
        """Make a tensor that says it lies on the GPU and has no memory. Raises Refused."""
        try:
            return self._tensor(maker, given, more)
        except Refused:
            raise
        except Exception as error:      # whatever torch says of arguments that are none
            raise Refused(f"{maker}: {error}"[:300]) from error

    def _tensor(self, maker: str, given: list[Any], more: dict[str, Any]) -> torch.Tensor:
        needs_gradient = bool(more.get("requires_grad"))
        more = {name: value for name, value in more.items() if name in ("dtype", "low", "high", "size", "fill_value")}
        given = [*given, *(more.pop(name) for name in ("fill_value",) if name in more)]
        if "size" in more:
            given = [*given, more.pop("size")]
        whole = maker in ("randint", "randperm") or (maker in ("full", "tensor") and is_whole(given)) or (
            maker == "arange" and not any(isinstance(argument, float) for argument in given))
        dtype = more.get("dtype") or (torch.int64 if whole else self.dtype)
        shape = shape_of(maker, given)
        if len(shape) > MAX_RANK or math.prod(shape) > MAX_ELEMENTS:
            raise Refused(f"{maker}: {len(shape)} dimensions of {math.prod(shape):,} elements; "
                          f"at most {MAX_RANK}, {MAX_ELEMENTS:,}")
        tensor = torch.empty(shape, dtype=dtype, device="cuda")
        if maker != "empty":
            self.values.forget(tensor)
        if not dtype.is_floating_point and math.prod(shape) <= MOST_ELEMENTS:
            self.values.keep(tensor, values_of(maker, given, more, shape, dtype))
        elif maker in ("randn", "rand", "empty") and self.values.is_small(tensor):
            self.values.keep(tensor, self.values.draw(shape, dtype, uniform=maker == "rand"))
        self._made.append((tensor, {**describe(tensor), "maker": maker, "bounds": bounds_of(maker, given, more)}))
        return tensor.requires_grad_() if needs_gradient else tensor


def _dtype(name: str) -> torch.dtype:
    return getattr(torch, name)


def _of_torch(path: str) -> Any:
    """Return a function of tensors (`torch.cat`, `torch.nn.functional.softmax`), a class of torch.nn; None of anything else."""
    of, _, name = path.rpartition(".")
    if path == "device" or (not of and not name.startswith("from") and hasattr(torch._C._VariableFunctions, name)):
        return getattr(torch, path)
    member = getattr({"nn": torch.nn, "nn.functional": torch.nn.functional}.get(of), name, None)
    return member if callable(member) else None


def _seed() -> None:
    """Let what a host draws at random, a seed for dropout, be the same in each call."""
    random.seed(0)
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed(0)


def _describe_result(result: Any) -> list[dict[str, Any]]:
    results = result if isinstance(result, tuple | list) else [result]
    return [describe(tensor) for tensor in results if isinstance(tensor, torch.Tensor)][:16]


def _explain(error: BaseException) -> str:
    name = type(error).__name__
    if name in ("DataDependentOutputException", "DynamicOutputShapeException", "UnsupportedFakeTensorException",
                "GuardOnDataDependentSymNode"):
        return LOOKS
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if not frame.filename.startswith(_NOT_THE_FILE)]
    where = f" (line {frames[-1].lineno} of {Path(frames[-1].filename).name})" if frames else ""
    return f"{name}: {str(error).partition(chr(10))[0]}"[:300] + where


def short_of(launch: Launch) -> dict[str, Any]:
    """Return what is told of a launch of a call that is made again: without what its tensors hold."""
    description = describe_launch(launch)
    arguments = {name: {part: its for part, its in one.items() if part not in ("values", "packed")}
                 for name, one in description["arguments"].items()}
    return {**{name: description[name] for name in ("kernel", "grid", "constexprs", "options")}, "arguments": arguments}
