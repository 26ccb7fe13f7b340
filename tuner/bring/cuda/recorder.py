"""Launches that a compiled host part tells, and the addresses by which it knows its tensors, which have no memory."""

from __future__ import annotations

import math
import re
import struct
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from torch.utils._pytree import tree_flatten

from tuner.bring.calls.recorder import MOST_LAUNCHES, TooManyLaunches, describe
from tuner.bring.calls.values import Values

FIRST, ALIGNED, GAP = 0x3B9D << 32, 512, 2 << 20    # addresses that no process has, and no two extents in a struct; between two
MOST_VALUES = 1024
MOST_WORDS = 64                                     # of a struct that is told word by word
GPU = torch.device("cuda", 0)
_WITH = re.compile(r"\[with (.*)\]\s*$", re.DOTALL)
_OURS = re.compile(r"\bridgepoint_\d+::")          # the namespace of a variant
BLOCK = ("block_size_x", "block_size_y", "block_size_z")


@dataclass
class CudaLaunch:
    """One launch: `given` arguments by name as `calls.recorder.describe` tells them, `template` values by name as text."""

    name: str
    grid: tuple[int, ...]
    block: tuple[int, ...]
    shared_bytes: int
    given: dict[str, dict[str, Any]]
    template: dict[str, str] = field(default_factory=dict)
    options: dict[str, Any] = field(default_factory=dict)       # as Triton's launches have them; of threads see `block`
    autotune: None = None                                       # as well
    kernel: Any = field(default_factory=lambda: SimpleNamespace(params=()))

    def describe(self) -> dict[str, Any]:
        """Return it for programs, as a launch of Triton's is told: threads and shared memory are options."""
        grid = list(self.grid)
        while len(grid) > 1 and grid[-1] == 1:
            grid.pop()
        return {"kernel": self.name, "module": "", "grid": grid, "grid_is_function": False, "gluon": False, "line": 0, "file": "",
                "arguments": self.given, "constexprs": {name: describe(_number_of(text)) for name, text in self.template.items()},
                "options": {**dict(zip(BLOCK, self.block, strict=True)), "smem": self.shared_bytes},
                "autotune": None, "tuned": {}, "heuristics": [], "heuristics_above": False}


def _shortest(value: float, c_type: str) -> float:
    """Return the number with the fewest digits that a float (or a shorter type) holds as this one: 1e-05."""
    if "double" in c_type or not math.isfinite(value):
        return float(value)
    bits = struct.pack("<f", value)
    return next(short for digits in range(1, 18) if struct.pack("<f", short := float(f"{value:.{digits}g}")) == bits)


def _number_of(text: str) -> Any:
    plain = re.sub(r"[uUlL]+$", "", text.strip())
    if plain in ("true", "false"):
        return plain == "true"
    return int(plain) if re.fullmatch(r"-?\d{1,18}", plain) else text.strip()


class Recorder(Values):
    """Values of tensors as `calls.values` keeps them, and an address for each, at which a host part finds it on a GPU.

    place  (address of a tensor's implementation, address of its memory): of the library; None where it takes no tensors
    """

    def __init__(self) -> None:
        super().__init__()
        self.place: Callable[[int, int], Any] | None = None
        self.passed_over: list[str] = []                            # calls of libraries, of whatever call
        self.begin()

    def begin(self) -> None:
        """Begin a call: launches and tensors of the one before are no more."""
        self.launches: list[CudaLaunch] = []
        self._fields: dict[str, dict[int, str]] = {}                # argument → place → name, of the launch that is told next
        self._next = FIRST
        self._bases: list[int] = []
        self._tensors: dict[int, list[torch.Tensor]] = {}           # base → tensors on that memory, the first one made first
        self._base_of: dict[int, int] = {}                          # storage → base; tensors are kept, so that none is another's
        self._held: dict[int, bytes] = {}                           # base → what the host put there
        self._raw: dict[int, int] = {}                              # base → bytes that the host asked for itself

    def start(self) -> None:
        """Nothing of this process is replaced."""

    def stop(self) -> None:
        """See `start`."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.ops.prim.device.default:
            return GPU
        out = super().__torch_dispatch__(func, types, args, kwargs)
        for tensor in tree_flatten(out)[0]:
            if isinstance(tensor, torch.Tensor):
                self.address_of(tensor)
        return out

    def address_of(self, tensor: torch.Tensor) -> int:
        """Return where a tensor's first element lies."""
        before, Values.computes = Values.computes, True
        try:
            storage = tensor.untyped_storage()
            base = self._base_of.get(storage._cdata)
            if base is None:
                base = self._take(storage.nbytes())
                self._base_of[storage._cdata] = base
                if self.place is not None:
                    self.place(tensor._cdata, base)
            of_base = self._tensors.setdefault(base, [])
            if not any(candidate is tensor for candidate in of_base):
                of_base.append(tensor)
            return base + int(tensor.storage_offset()) * int(tensor.element_size())
        finally:
            Values.computes = before

    def _take(self, size: int) -> int:
        base = self._next
        self._next += (size + ALIGNED - 1) // ALIGNED * ALIGNED + GAP
        self._bases.append(base)
        return base

    def tensor_of(self, address: int) -> torch.Tensor | None:
        """Return the tensor that begins at an address; None where none does."""
        tensors = [tensor for some in self._tensors.values() for tensor in some]
        return next((tensor for tensor in reversed(tensors) if self.address_of(tensor) == address), None)

    # ---- what the library calls ----

    def allocate(self, size: int) -> int:
        """Return the address of memory that the host asks for itself."""
        base = self._take(size)
        self._raw[base] = size
        return base

    def hold(self, address: int, content: bytes) -> None:
        """Note what the host puts at the beginning of memory that it asked for itself: its bytes, or one byte everywhere."""
        if address in self._raw:
            self._held[address] = content

    def pass_over(self, name: str) -> None:
        """Note that the host calls a library, whose kernels are not recorded."""
        if name not in self.passed_over:
            self.passed_over.append(name)

    def field(self, argument: str, name: str, place: int) -> None:
        """Note where a field of an argument lies in it, in bytes; the first one of a place."""
        self._fields.setdefault(argument, {}).setdefault(place, name)

    def launch(self, kernel: str, pretty: str, grid: Sequence[int], block: Sequence[int], shared_bytes: int,
               given: Sequence[tuple[str, Any]]) -> None:
        """Keep a launch. Raises TooManyLaunches."""
        if len(self.launches) >= MOST_LAUNCHES:
            raise TooManyLaunches(f"the call launches more than {MOST_LAUNCHES} kernels")
        self.launches.append(CudaLaunch(kernel, tuple(grid), tuple(block), shared_bytes,
                                        {name: self._described(name, *told) for name, told in given if name}, template_of(pretty)))
        self._fields = {}

    def _described(self, name: str, kind: str, c_type: str, value: Any) -> dict[str, Any]:
        if kind == "pointer":
            return self.tensor_at(value, _type_of(c_type)) if value else {"kind": "none", "value": None}
        if kind == "struct":
            return {"kind": "tuple", "value": self._words(value, self._fields.get(name, {}))[:MOST_WORDS]}
        return describe(_shortest(value, c_type) if kind == "float" else value)

    def _words(self, content: bytes, fields: Mapping[int, str]) -> list[dict[str, Any]]:
        """Return a struct's addresses, and its other bytes as whole numbers of four."""
        words, offset = [], 0
        content += bytes(-len(content) % 4)
        while offset < len(content):
            address = struct.unpack_from("<Q", content, offset)[0] if offset % 8 == 0 and offset + 8 <= len(content) else 0
            if address >= FIRST and address < self._next:
                word = self.tensor_at(address, "")
                words.append({**word, "field": fields[offset]} if offset in fields and word["kind"] == "tensor" else word)
                offset += 8
            else:
                words.append(describe(struct.unpack_from("<i", content, offset)[0]))
                offset += 4
        return words

    def tensor_at(self, address: int, c_type: str) -> dict[str, Any]:
        """Return what is told of a tensor by an address within it."""
        index = bisect_right(self._bases, address) - 1
        base = self._bases[index] if index >= 0 else 0
        if not FIRST <= address < self._next or base not in {*self._tensors, *self._raw}:
            return {"kind": "other", "value": "an address of the host"}
        before, Values.computes = Values.computes, True
        try:
            return self._told(base, address - base, c_type)
        finally:
            Values.computes = before

    def _told(self, base: int, offset: int, c_type: str) -> dict[str, Any]:
        tensors = self._tensors.get(base, [])
        same = [tensor for tensor in tensors if tensor.storage_offset() * tensor.element_size() == offset]
        best = max(same, key=lambda each: each.numel(), default=None)           # of equals the first
        if best is not None:
            record = next((facts for tensor in same if (facts := self.look(tensor))), {})        # one of them is the call's own
            return {**describe(best), **({} if best.numel() > MOST_VALUES and "values" in record else record)}
        first = tensors[0] if tensors else None
        dtype = str(first.dtype).removeprefix("torch.") if first is not None else DTYPES.get(c_type, "uint8")
        size = SIZES.get(dtype, 1)
        storage = first.untyped_storage()._cdata if first is not None else base
        whole = first.untyped_storage().nbytes() if first is not None else self._raw[base]
        count = (whole - offset) // size
        content = self._held.pop(base, b"") if not offset else b""      # what a kernel then writes is not known
        return {"kind": "tensor", "dtype": dtype, "shape": [count], "strides": [1], "storage": storage, "offset": offset // size,
                **_content(content, dtype, count)}


def _content(held: bytes, dtype: str, count: int) -> dict[str, Any]:
    """Return what memory is known to hold, as `calls.values` tells it, of its bytes or of one byte everywhere."""
    kind = _NUMPY.get(dtype)
    if not held or kind is None:
        return {}
    size = np.dtype(kind).itemsize
    numbers = np.frombuffer(held * size if len(held) == 1 else held[:len(held) // size * size], kind)
    if len(held) == 1 or (len(numbers) == count and (numbers == numbers[0]).all()):
        return {"filled": numbers[0].item()} if math.isfinite(numbers[0]) else {}
    return {"values": numbers.tolist()} if len(numbers) == count <= MOST_VALUES and np.dtype(kind).kind in "iu" else {}


_NUMPY = {"float32": "f4", "float64": "f8", "int64": "i8", "int32": "i4", "int16": "i2", "int8": "i1", "uint8": "u1",
          "float16": "f2"}
DTYPES = {"float": "float32", "double": "float64", "__half": "float16", "__nv_bfloat16": "bfloat16", "int": "int32",
          "unsigned int": "int32",
          "long long unsigned int": "int64",
          "long int": "int64", "long long int": "int64", "long unsigned int": "int64", "signed char": "int8", "char": "int8",
          "unsigned char": "uint8", "short int": "int16", "bool": "bool", "c10::Half": "float16", "c10::BFloat16": "bfloat16",
          "short unsigned int": "int16", "__nv_fp8_e4m3": "float8_e4m3fn", "__half2": "float16", "float4": "float32",
          "float2": "float32",
          "int4": "int32", "__nv_bfloat162": "bfloat16", "int2": "int32"}
SIZES = {"float32": 4, "float64": 8, "int64": 8, "int32": 4, "int16": 2, "float16": 2, "bfloat16": 2}


def _type_of(pretty: str) -> str:
    """Return what an address points to, of "… [with T = const float*]"."""
    match = _WITH.search(pretty)
    text = match[1].partition("=")[2] if match else pretty
    return re.sub(r"\b(?:const|volatile|__restrict__)\b|\*|;.*", "", text).strip()


def pointed_type(pretty: str) -> str:
    """Return the element type of a parameter that is an address; "" of any other. `pretty`: of `ridgepoint::name_of`."""
    match = _WITH.search(pretty)
    text = match[1].partition("=")[2].strip() if match else ""
    return _type_of(pretty) if text.rstrip().endswith("*") else ""


def template_of(pretty: str) -> dict[str, str]:
    """Return template values by name, of "void k(T*) [with T = float; int N = 128; bool F = true]"."""
    match = _WITH.search(_OURS.sub("", pretty))
    arguments: dict[str, str] = {}
    for part in _split(match[1]) if match else ():
        name, equals, value = part.partition(" = ")
        word = name.split()[-1] if name.split() else ""
        if equals and word.isidentifier():
            arguments[word] = value.strip()
    return arguments


def _split(text: str) -> list[str]:
    """Return the parts between semicolons that stand in no bracket."""
    parts, depth, begin = [], 0, 0
    for index, char in enumerate(text):
        depth += (char in "(<[{") - (char in ")>]}")
        if char == ";" and depth <= 0:
            parts.append(text[begin:index])
            begin = index + 1
    return [*parts, text[begin:]]
