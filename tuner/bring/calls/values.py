"""Whole numbers that a host looks at (`cu_seqlens[-1].item()`, `mask.sum().item()`), kept beside tensors that have no memory.

Small tensors of whole numbers and of truth values whose values are known from how they were made (arange, zeros, full, randint of
the call) are computed on the CPU beside. A host that looks at what a kernel would compute is told nothing. Of every other tensor
one thing is known: the number that the host filled it with and nothing changed since.
"""

from __future__ import annotations

import math
import weakref
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, ClassVar

import torch
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes
from torch.utils._pytree import tree_flatten, tree_map

from tuner.bring.python_text import MOST_PACKED, pack

MOST_ELEMENTS, MOST_FRACTIONS, FEW_VALUES, FEWEST = 1 << 20, 1 << 20, 1 << 14, 64
# operations that fill a tensor with one number; None: it is the last argument
_FILLS = {"zeros": 0.0, "zeros_like": 0.0, "new_zeros": 0.0, "zero_": 0.0, "zero": 0.0, "ones": 1.0, "ones_like": 1.0,
          "new_ones": 1.0, "full": None, "full_like": None, "new_full": None, "fill_": None, "fill": None}
_OF_TORCH = ("aten", "prims", "prim", "debugprims", "profiler", "inductor", "higher_order", "c10d", "_c10d_functional")
_COPIES = ("_to_copy", "clone")
_EMPTY = ("empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided")
_WHOLE_RANDOM = ("randint", "randperm")
_RANDOM = ("rand", "empty", "dropout", "bernoulli", "multinomial", "normal", "new_empty")


class Values(TorchDispatchMode):        # type: ignore[misc]
    """Keeps values beside tensors; the innermost mode but one, above that in which tensors have no memory."""

    computes = False                # whether torch itself looks at tensors just now
    fractions = False               # whether values of fractions are kept too, and drawn for memory that kernels fill
    fills = False                   # whether kernels are run, which fill memory that holds whole numbers
    follows = False                 # whether one was, so that what several tensors hold belongs together

    all: ClassVar[list[Values]] = []

    def __init__(self) -> None:
        super().__init__()
        self.all.append(self)
        self._kept: dict[int, tuple[Any, torch.Tensor]] = {}
        self._filled: dict[int, tuple[Any, float | None]] = {}      # None: memory that nothing was written to

    def keep(self, tensor: torch.Tensor, values: torch.Tensor) -> None:
        """Note the values of a tensor for as long as it lives."""
        key = id(tensor)
        self._kept[key] = (weakref.ref(tensor, lambda _: self._kept.pop(key, None)), values)

    def of(self, tensor: Any) -> torch.Tensor | None:
        """Return the values of a tensor; None where they are not known."""
        if type(tensor) is torch.Tensor and tensor.device.type == "cpu" and self.is_small(tensor):
            return tensor                   # a constant of the host, which has its memory
        entry = self._kept.get(id(tensor))
        return entry[1] if entry is not None and entry[0]() is tensor else None

    def describe(self, tensor: Any) -> dict[str, Any]:
        """Return what a tensor is known to hold: `filled` with one number, `counts` from 0, few `values`; {} where nothing is.

        `anything`: memory that the host does not write, so that whatever it holds will do.
        Once a kernel was run, of more values all that can be `packed`, as those of several tensors belong together.
        Of some values: whether it `permutes` the numbers from 0; of many: their `bounds` [low, high) and whether they are `sorted`.
        """
        values = self.of(tensor)
        filled = self._filled.get(id(tensor))
        if filled is not None and filled[0]() is tensor and filled[1] is None:
            return {"anything": True}
        if values is None or not values.numel() or values.shape != tensor.shape:
            if filled is None or filled[0]() is not tensor or filled[1] is None:
                return {}
            return {"filled": filled[1] if math.isfinite(filled[1]) else str(filled[1])}        # JSON has no such number
        with _disable_current_modes():
            first = values.reshape(-1)[0].item()
            if bool((values.double() == first).all()):
                return {"filled": first}
            if values.is_floating_point():
                return {}
            flat, count = values.reshape(-1).long(), torch.arange(values.numel())          # torch compares no uint32
            if values.dim() == 1 and bool((flat == count).all()):
                return {"counts": True}
            if not self.follows and values.numel() > FEWEST and values.dim() == 1 and bool((flat.sort().values == count).all()):
                return {"permutes": True}
            if values.numel() <= FEW_VALUES:
                return {"values": values.tolist()}
            if self.follows and values.numel() <= MOST_ELEMENTS and len(packed := pack(flat.tolist())) <= MOST_PACKED:
                return {"packed": packed}
            if values.dtype is torch.bool:
                return {}
            return {"bounds": [int(flat.min()), int(flat.max()) + 1], "sorted": bool((flat[1:] >= flat[:-1]).all())}

    def look(self, tensor: torch.Tensor) -> dict[str, Any]:
        """Return what a kernel of which nothing is known finds in a tensor (`describe`); it may write there."""
        description = self.describe(tensor)
        self.note_written(tensor)
        return description

    def note_written(self, tensor: torch.Tensor) -> None:
        """Note that a kernel wrote to a tensor: it does not hold what it was filled with any more."""
        self._filled.pop(id(tensor), None)

    def look_whole(self, tensor: torch.Tensor) -> dict[str, Any]:
        """Return the same for a launch that is run here: the `tensor` of its values, however many there are."""
        values, known = self.of(tensor), self.describe(tensor)
        if values is not None and self.fills:           # a kernel may write there next
            with _disable_current_modes():
                values = values.clone()
        return {**known, **({"tensor": values} if values is not None and values.shape == tensor.shape else {})}

    def forget(self, tensor: torch.Tensor) -> None:
        """Note that a tensor's values are not known any more: a kernel wrote it."""
        self._kept.pop(id(tensor), None)
        self._filled.pop(id(tensor), None)

    def forget_memory(self, tensor: torch.Tensor) -> None:
        """Note the same of a tensor and of each that shares its memory."""
        values = self.of(tensor)
        self.forget(tensor)
        if values is None:
            return
        place = values.untyped_storage().data_ptr()
        for at in [at for at, (_, its) in self._kept.items() if its.untyped_storage().data_ptr() == place]:
            self._kept.pop(at)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (),
                           kwargs: Mapping[str, Any] | None = None) -> Any:
        before, Values.computes = Values.computes, True
        try:
            return self._compute(func, args, {name: torch.device("cpu") if isinstance(part, torch.device) and part.type == "cuda"
                                              else part for name, part in (kwargs or {}).items()})
        finally:
            Values.computes = before

    def _compute(self, func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        if (written := _python_kernel(func)) is not None:
            with self:                          # its launches are the call's, and it makes tensors as the host does
                return written(*args, **kwargs)
        tensors = [leaf for leaf in tree_flatten((args, kwargs))[0] if isinstance(leaf, torch.Tensor)]
        contents = [self.of(tensor) for tensor in tensors]
        if func is torch.ops.aten._local_scalar_dense.default and contents and contents[0] is not None:
            with _disable_current_modes():
                return contents[0].item()
        if func is torch.ops.aten._local_scalar_dense.default and (filled := self._fill_of(tensors[0])) is not None:
            return filled
        if func is torch.ops.aten.equal.default and (same := self._equal(*tensors)) is not None:
            return same
        try:
            out = func(*args, **kwargs)
        except RuntimeError as error:
            if type(error).__name__ == "DynamicOutputShapeException" and all(content is not None for content in contents):
                return self._of_values(func, args, kwargs)      # nonzero, unique: a shape that values tell
            if "not implemented for" not in str(error):         # histc of whole numbers: torch has it on a GPU alone
                raise
            args = tree_map(_as_fraction, args)
            out = func(*args, **kwargs)
        is_made = not tensors and self.is_small(out)
        name = func.__name__
        if name.startswith(_WHOLE_RANDOM) and self.is_small(out):
            torch.default_generator.manual_seed(0)          # a seed that the host draws is the same in each call
            self._beside(func, args, kwargs, out)
        elif self.fractions and ("empty" in name or name.startswith("rand")) and self.is_small(out) and out.is_floating_point():
            self.keep(out, self.draw(out.shape, out.dtype, uniform=name.startswith(("rand.", "rand_"))))
        elif self.fills and name.partition(".")[0] in _EMPTY and self.is_small(out):
            with _disable_current_modes():
                self.keep(out, torch.empty_strided(tuple(out.shape), out.stride(), dtype=out.dtype, device="cpu").zero_())
        elif (is_made or (tensors and all(content is not None for content in contents))) and not any(
                word in name for word in _RANDOM):
            self._beside(func, args, kwargs, out)
        else:
            for tensor in tensors if func._schema.is_mutable else ():
                self.forget(tensor)
        self._note_fill(name.partition(".")[0], args, out)
        return out

    def _fill_of(self, tensor: torch.Tensor) -> float | None:
        """Return the number that a tensor was filled with, of which nothing has changed since; None where none is known."""
        filled = self._filled.get(id(tensor))
        return filled[1] if filled is not None and filled[0]() is tensor else None

    def _equal(self, one: torch.Tensor, other: torch.Tensor) -> bool | None:
        """Return what torch.equal says; None where the tensors' values would have to be known."""
        if one.shape != other.shape:
            return False
        fills = self._fill_of(one), self._fill_of(other)
        return None if None in fills else fills[0] == fills[1]

    def _note_fill(self, name: str, args: Any, out: Any) -> None:
        if name in _EMPTY and isinstance(out, torch.Tensor):
            key = id(out)
            self._filled[key] = (weakref.ref(out, lambda _: self._filled.pop(key, None)), None)
        if name not in (*_FILLS, *_COPIES) or not isinstance(out, torch.Tensor) or out.is_complex() or self.of(out) is not None:
            return
        fill = self.describe(args[0]).get("filled") if name in _COPIES else args[-1] if _FILLS[name] is None else _FILLS[name]
        if isinstance(fill, int | float):
            key = id(out)
            self._filled[key] = (weakref.ref(out, lambda _: self._filled.pop(key, None)), float(fill))

    def _run_known(self, func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        """Return what an operation gives for the values of its tensors. Raises what torch raises."""
        def real(each: Any) -> Any:
            values = self.of(each) if isinstance(each, torch.Tensor) else None
            return values if values is not None else torch.device("cpu") if isinstance(each, torch.device) else each

        with _disable_current_modes():
            return func(*tree_map(real, args), **{name: tree_map(real, argument) for name, argument in kwargs.items()})

    def _of_values(self, func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        """Return the result of an operation whose shape follows the values, its values kept beside."""
        values = self._run_known(func, args, kwargs)
        out = tree_map(_as_fake, values)
        for tensor, its in zip(tree_flatten(out)[0], tree_flatten(values)[0], strict=True):
            if self.is_small(its):
                self.keep(tensor, its)
        return out

    def is_small(self, tensor: Any) -> bool:
        """Return whether the values of a tensor are kept: of few whole numbers, and of few fractions where they are asked for."""
        if not isinstance(tensor, torch.Tensor) or tensor.is_complex():
            return False
        return tensor.numel() <= (MOST_FRACTIONS if tensor.is_floating_point() else MOST_ELEMENTS) and (
            self.fractions or not tensor.is_floating_point())

    @staticmethod
    def draw(shape: Sequence[int], dtype: torch.dtype, uniform: bool = False) -> torch.Tensor:
        """Return normal numbers, or some between 0 and 1; the same each time."""
        with _disable_current_modes():
            draw = torch.rand if uniform else torch.randn
            return draw(tuple(shape), generator=torch.Generator().manual_seed(0), device="cpu").to(dtype)

    def _beside(self, func: Any, args: Any, kwargs: dict[str, Any], out: Any) -> None:
        """Compute the same of the values, and keep them beside the results; nothing where a result is not small."""
        if any(isinstance(tensor, torch.Tensor) and tensor.numel() > MOST_ELEMENTS for tensor in tree_flatten(out)[0]):
            return

        try:
            values = self._run_known(func, args, kwargs)
        except Exception:               # what needs a GPU, or another place for its result: not known
            return
        for each, its in zip(tree_flatten(out)[0], tree_flatten(values)[0], strict=False):
            if isinstance(each, torch.Tensor) and isinstance(its, torch.Tensor) and each.shape == its.shape and self.is_small(its):
                self.keep(each, its)


def forget_given(given: Any) -> None:
    """Note that nothing is known any more of tensors that something which is not here was given: it may have written them."""
    written = {each.untyped_storage()._cdata for each in tree_flatten(given)[0] if isinstance(each, torch.Tensor)}
    for values in Values.all if written else ():
        for known in (values._kept, values._filled):
            for at, (tensor, _) in list(known.items()):
                if (its := tensor()) is not None and its.untyped_storage()._cdata in written:
                    known.pop(at, None)


def _python_kernel(func: Any) -> Any:
    """Return what a custom operator runs on a GPU, where that is Python: of `torch.library.impl`, `custom_op`, `triton_op`."""
    if func.namespace in _OF_TORCH:
        return None
    for key in ("CUDA", "CompositeExplicitAutograd"):
        if torch._C._dispatch_has_kernel_for_dispatch_key(func.name(), key):
            return partial(func._op_dk, getattr(torch._C.DispatchKey, key))
    return None


def _as_fake(values: Any) -> Any:
    """Return a tensor without memory like one with values; anything else as it is."""
    return torch.empty(values.shape, dtype=values.dtype) if isinstance(values, torch.Tensor) else values


def _as_fraction(value: Any) -> Any:
    return value.double() if isinstance(value, torch.Tensor) and not value.is_floating_point() else value
