"""Calls of a CUDA C++ file's host function, made again and again as `calls.session` makes those of a Python module."""

from __future__ import annotations

import ast
import ctypes
import os
import re
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from profiles.base.refused import Refused
from tuner.bring.calls.choices import Choices
from tuner.bring.calls.expression import CallExpression
from tuner.bring.calls.recorder import describe
from tuner.bring.calls.session import MOST_SIZES, Session, short_of
from tuner.bring.cuda.host_edits import Parameter
from tuner.bring.cuda.host_text import HostPart
from tuner.bring.cuda.recorder import DTYPES, Recorder, pointed_type

GIVES_OTHER = "a tensor of "                # how a refusal begins of one whose type the call itself names
STREAMS = ("CUstream_st", "CUevent_st")


class Library:
    """A compiled host part: its functions as Python calls them."""

    def __init__(self, path: Path, part: HostPart, recorder: Recorder) -> None:
        self.recorder = recorder
        # lazily: a function of CUDA's that has no stand-in, and is not called, stands in nobody's way
        opened = ctypes.CDLL(None)
        opened.dlopen.restype = ctypes.c_void_p
        opened.dlerror.restype = ctypes.c_char_p            # looked up before: what a look-up leaves is no error of dlopen's
        handle = opened.dlopen(str(path).encode(), os.RTLD_LAZY | os.RTLD_LOCAL)
        if not handle:
            raise Refused(f"the host's part cannot be loaded: {(opened.dlerror() or b'').decode(errors='replace')}")
        self._library = ctypes.PyDLL(str(path), handle=handle)
        self._library.ridgepoint_functions.restype = ctypes.py_object
        self._library.ridgepoint_call.restype = ctypes.py_object
        self._library.ridgepoint_call.argtypes = [ctypes.c_int, ctypes.py_object]
        self._library.ridgepoint_begin.argtypes = [ctypes.py_object]
        if part.uses_torch:
            place = self._library.ridgepoint_place
            place.argtypes, place.restype = [ctypes.c_ulonglong, ctypes.c_ulonglong], None
            recorder.place = place
        self._library.ridgepoint_begin(recorder)
        self.converts = True
        self.variant = 0                # which variant is called: 0 is the file as it is
        named = [(int(name.rpartition("|")[2]), types) for name, types in self._library.ridgepoint_functions()]
        self.variants = dict(enumerate(part.variants, 1)) if any(number for number, _ in named) else {}
        self._functions: dict[int, list[tuple[int, tuple[Parameter, ...], list[str]]]] = {}
        for index, (number, types) in enumerate(named):
            of = self._functions.setdefault(number, [])
            of.append((index, part.overloads[min(len(of), len(part.overloads) - 1)], types))
        self.made: Callable[[torch.Tensor, str], torch.Tensor] = lambda tensor, dtype: tensor

    def call(self, *given: Any, **named: Any) -> list[torch.Tensor]:
        """Return the tensors that the overload for these arguments returns. Raises what it raises, Refused where there is none."""
        refused: Exception | None = None
        overloads = self._functions[self.variant]
        for tries, (index, parameters, types) in enumerate(overloads if len(overloads) == 1 else [*overloads, *overloads]):
            self.converts = tries >= len(overloads) or len(overloads) == 1      # only where none takes them as they are
            try:
                values = _bound(parameters, types, given, named)
                values = [self._value(value, of) for value, of in zip(values, types, strict=True)]
            except Refused as error:
                refused = refused or error
                continue
            tensors = [self.recorder.tensor_of(place) for place in self._library.ridgepoint_call(index, tuple(values)) if place]
            return [tensor for tensor in tensors if tensor is not None]
        raise refused or Refused("it cannot be called")

    def _value(self, value: Any, pretty: str) -> Any:
        """Return what the library is given: a tensor by its address, or by that of its implementation."""
        if isinstance(value, list | tuple):                     # of one kind, else what a constructor takes
            return [self._value(element, pretty) if _LISTS.search(pretty) else self._field(element) for element in value]
        if isinstance(value, dict):
            return {name: self._field(field) for name, field in value.items()}
        if isinstance(value, torch.dtype):
            return _SCALAR_TYPES.get(str(value).removeprefix("torch."), 6)
        if isinstance(value, torch.device) or not isinstance(value, torch.Tensor):
            return value
        if "*]" not in pretty.replace(" ", ""):
            return value._cdata
        dtype = DTYPES.get(pointed_type(pretty), "")
        actual = str(value.dtype).removeprefix("torch.")
        if dtype and dtype != actual:
            if not self.converts:
                raise Refused(f"{GIVES_OTHER}{dtype} is taken, {actual} is given")
            value = self.made(value, dtype)
        return self.recorder.address_of(value)

    def _field(self, value: Any) -> Any:
        """Return what a field of a struct is given: of a tensor both, as its type there is not told."""
        if isinstance(value, torch.Tensor):
            return "tensor", self.recorder.address_of(value), value._cdata
        return list(map(self._field, value)) if isinstance(value, list | tuple) else self._value(value, "")


_LISTS = re.compile(r"vector|ArrayRef|List|\barray<")
# of c10/core/ScalarType.h
_SCALAR_TYPES = {"uint8": 0, "int8": 1, "int16": 2, "int32": 3, "int64": 4, "float16": 5, "float32": 6, "float64": 7, "bool": 11,
                 "bfloat16": 15, "float8_e5m2": 23, "float8_e4m3fn": 24}


def _bound(parameters: Sequence[Parameter], types: Sequence[str], given: Sequence[Any], named: dict[str, Any]) -> list[Any]:
    """Return a value for each parameter; what is not given is its default, a stream none. Raises Refused."""
    if len(given) > len(types):
        raise Refused(f"it takes {len(types)} arguments, {len(given)} were given")
    names = [entry.name for entry in parameters]
    if unknown := [name for name in named if name not in names]:
        raise Refused(f"it takes no {unknown[0]}; it takes {', '.join(names)}")
    values = list(given)
    for parameter, pretty in list(zip(parameters, types, strict=False))[len(given):]:
        if parameter.name in named:
            values.append(named[parameter.name])
        elif any(stream in pretty for stream in STREAMS):
            values.append(None)
        else:
            values.append(_default(parameter))
    return values


def _default(parameter: Parameter) -> Any:
    text = parameter.default.strip()
    plain = {"true": "True", "false": "False", "nullptr": "None", "NULL": "None", "{}": "None", "std::nullopt": "None",
             "c10::nullopt": "None", "torch::nullopt": "None", "at::nullopt": "None"}.get(text, text.rstrip("fFuUlL"))
    try:
        return ast.literal_eval(plain)
    except (ValueError, SyntaxError):
        raise Refused(f"{parameter.name} ({parameter.type}) is not given") from None


class CudaSession(Session):
    """See `calls.session`. `name` is the function as the call writes it."""

    def __init__(self, library: Library, name: str, mode: FakeTensorMode, dtype: torch.dtype) -> None:
        super().__init__(ModuleType("host"), Choices(), mode, dtype)
        self.values = self.recorder = self.known = library.recorder
        self.library = library
        setattr(self.module, name, library.call)
        library.made = self._as
        self._chose = False             # whether the variants were called

    def _run(self, call: CallExpression, instead: Mapping[int, int] | None = None) -> tuple[str, Any]:
        self.known.begin()
        return super()._run(call, instead)

    def _with_sizes(self, call: CallExpression, end_s: float) -> list[dict[str, Any]]:
        """Call also with a small size that is no power of two: hosts take threads by the power below, or above."""
        again = super()._with_sizes(call, end_s)
        for size in call.sizes[:MOST_SIZES]:
            other = size // 12
            if other > 4 and time.monotonic() < end_s and self._goes_as_before(call, {size: other}):
                again.append({"size": size, "is": other, "launches": [short_of(launch) for launch in self.recorder.launches]})
        return again

    def _with_choices(self, call: CallExpression, *_: Any) -> list[dict[str, Any]]:
        """Call with each variant of the file: another number for what its host chooses."""
        again = []
        for number, (name, value) in self.library.variants.items() if not self._chose else ():
            self.library.variant = number
            if self._goes_as_before(call):
                again.append({"choice": name, "is": value, "launches": [short_of(launch) for launch in self.recorder.launches]})
        self.library.variant, self._chose = 0, True
        return again

    def _unnamed(self, *_: Any) -> dict[str, int]:
        """Return no choices: what the host chooses is seen by compiling it again."""
        return {}

    def _tries(self, *_: Any) -> list[dict[str, Any]]:
        """Return nothing: nobody here runs CUDA C++ without a GPU."""
        return []

    def _as(self, tensor: torch.Tensor, dtype: str) -> torch.Tensor:
        """Return a tensor that the call makes in the type that the host function takes. Raises Refused for any other."""
        index = next((index for index, (candidate, _) in enumerate(self._made) if candidate is tensor), None)
        is_named = tensor.dtype not in (self.dtype, torch.int64)           # by the call itself
        if index is None or is_named:
            raise Refused(f"{GIVES_OTHER}{dtype} is taken, {str(tensor.dtype).removeprefix('torch.')} is given")
        other = tensor.to(getattr(torch, dtype))
        self._made[index] = other, {**self._made[index][1], **describe(other)}
        return other
