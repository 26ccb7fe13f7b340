"""cublasLt by its C functions: the library that this process has loaded, one product, its algorithms.

Functions, attributes and their types: cublasLt.h and the cuBLAS documentation, "Using the cublasLt API". No CUDA code is compiled
and nothing is installed: torch brings the library.
"""

from __future__ import annotations

import ctypes
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tuner.tuning.vendor.lt_names import ATTRIBUTES, PLACE, Numbers

SONAMES = ("libcublasLt.so.13", "libcublasLt.so.12", "libcublasLt.so")
_COMPUTE_32F, _R_32F = 68, 0                                   # cublasComputeType_t, cudaDataType_t
DATA_TYPES = {"fp32": 0, "fp16": 2, "bf16": 14, "fp8": 28}     # cudaDataType_t
_DESC_TRANSA, _DESC_A_SCALE, _DESC_B_SCALE, _DESC_FAST_ACCUM = 3, 17, 18, 25
_PREFERENCE_WORKSPACE = 1
_CAP_SPLIT_K, _CAP_REDUCTIONS, _CAP_SWIZZLE, _CAP_TILES, _CAP_CUSTOM_MAX, _CAP_STAGES = 0, 1, 2, 6, 7, 13
_TRANSPOSE = 1
_MOST_IDS, _MOST_VALUES = 1024, 4096


class LibraryMissing(Exception):
    """cublasLt is not here, or is too old."""


class Algorithm(ctypes.Structure):
    """cublasLtMatmulAlgo_t: opaque, set through attributes."""

    _fields_ = [("data", ctypes.c_uint64 * 8)]


class _Result(ctypes.Structure):
    """cublasLtMatmulHeuristicResult_t."""

    _fields_ = [("algorithm", Algorithm), ("workspace_bytes", ctypes.c_size_t), ("state", ctypes.c_int), ("waves", ctypes.c_float),
                ("reserved", ctypes.c_int * 4)]


@dataclass(frozen=True)
class Check:
    """What cublasLt says of an algorithm that it accepts: workspace in bytes, waves of blocks over the GPU."""

    workspace_bytes: int
    waves: float


@dataclass(frozen=True)
class Capabilities:
    """What an algorithm can be given: ids of tiles and stages, the largest custom option, swizzling, split K and its schemes."""

    tiles: tuple[int, ...]
    stages: tuple[int, ...]
    custom_max: int
    swizzle: bool
    split_k: bool
    reductions: tuple[int, ...]


@dataclass(frozen=True)
class Matrix:
    """One operand as cublasLt sees it: columns in memory one after the other, `leading` elements apart."""

    data_type: int
    rows: int
    columns: int
    leading: int
    transposed: bool = False


def loaded_path() -> str | None:
    """Return the file of cublasLt that this process has loaded, which is torch's; None where it has none."""
    try:
        found = re.findall(r"(/\S*libcublasLt\.so\S*)", Path("/proc/self/maps").read_text())
    except OSError:
        return None
    return found[0] if found else None


class CublasLt:
    """The library, with a handle once one is asked for. Raises LibraryMissing."""

    def __init__(self) -> None:
        self.path, self._library = _open_library()
        version = self._function("cublasLtGetVersion", restype=ctypes.c_size_t)
        self.version = version_text(int(version()))
        self._handle = ctypes.c_void_p()
        self.set_attribute = self._function("cublasLtMatmulAlgoConfigSetAttribute")
        self.set_attribute.argtypes = (ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t)
        self.check_algorithm = self._function("cublasLtMatmulAlgoCheck")

    @property
    def name(self) -> str:
        """Return "cublasLt 13.1.0"."""
        return f"cublasLt {self.version}"

    def handle(self) -> ctypes.c_void_p:
        """Return the handle of the present CUDA device. Raises RuntimeError where there is none."""
        if not self._handle:
            self.call("cublasLtCreate", ctypes.byref(self._handle))
        return self._handle

    def call(self, name: str, *arguments: Any) -> None:
        """Call a function. Raises RuntimeError with its status where that is not success."""
        status = self.status(name, *arguments)
        if status:
            raise RuntimeError(f"{name}: {_STATUS.get(status, f'status {status}')}")

    def status(self, name: str, *arguments: Any) -> int:
        """Return the cublasStatus_t of a call, 0 for success."""
        return int(self._function(name)(*arguments))

    def _function(self, name: str, restype: Any = ctypes.c_int) -> Any:
        try:
            function = getattr(self._library, name)
        except AttributeError as error:
            raise LibraryMissing(f"{self.path} lacks {name}: it is too old") from error
        function.restype = restype
        return function


# cublasStatus_t
_STATUS = {1: "not initialised: no CUDA GPU, or its driver is too old for this library", 3: "out of memory", 7: "invalid value",
           8: "architecture mismatch", 11: "mapping error", 13: "execution failed", 14: "internal error", 15: "not supported",
           16: "licence error"}


def version_text(number: int) -> str:
    """Return "13.1.0" of cublasLtGetVersion: 10000 a major version since CUDA 12, 1000 before."""
    scale = 10000 if number >= 100_000 else 1000
    return f"{number // scale}.{number % scale // 100}.{number % 100}"


def _open_library() -> tuple[str, ctypes.CDLL]:
    tried = []
    for name in filter(None, (loaded_path(), *SONAMES)):
        try:
            return name, ctypes.CDLL(name)
        except OSError as error:
            tried.append(str(error)[:120])
    raise LibraryMissing(f"no cublasLt: {'; '.join(tried)}")


class Product:
    """D = A · B of column-major matrices with float32 accumulation: descriptors, and what cublasLt says of algorithms for it.

    a, b, d   operands; `transposed` of a is applied, that of b must be false
    scales    addresses of two float32 numbers on the GPU that A and B are multiplied with (fp8); then with fast accumulation
    """

    def __init__(self, library: CublasLt, a: Matrix, b: Matrix, d: Matrix, scales: tuple[int, int] | None = None) -> None:
        self.library = library
        self._types = (_COMPUTE_32F, _R_32F, a.data_type, b.data_type, d.data_type, d.data_type)
        self._desc = ctypes.c_void_p()
        library.call("cublasLtMatmulDescCreate", ctypes.byref(self._desc), _COMPUTE_32F, _R_32F)
        if a.transposed:
            self._describe(_DESC_TRANSA, ctypes.c_int32(_TRANSPOSE))
        if scales is not None:
            self._describe(_DESC_A_SCALE, ctypes.c_void_p(scales[0]))
            self._describe(_DESC_B_SCALE, ctypes.c_void_p(scales[1]))
            self._describe(_DESC_FAST_ACCUM, ctypes.c_int8(1))
        self._layouts = [self._make_layout(matrix) for matrix in (a, b, d, d)]
        self._one, self._zero = ctypes.c_float(1.0), ctypes.c_float(0.0)
        self._begun: dict[int, tuple[bytes, Numbers] | None] = {}

    def _describe(self, attribute: int, value: Any) -> None:
        self.library.call("cublasLtMatmulDescSetAttribute", self._desc, attribute, ctypes.byref(value),
                          ctypes.c_size_t(ctypes.sizeof(value)))

    def _make_layout(self, matrix: Matrix) -> ctypes.c_void_p:
        layout = ctypes.c_void_p()
        self.library.call("cublasLtMatrixLayoutCreate", ctypes.byref(layout), matrix.data_type, ctypes.c_uint64(matrix.rows),
                          ctypes.c_uint64(matrix.columns), ctypes.c_int64(matrix.leading))
        return layout

    def preferred(self, count: int, workspace_bytes: int) -> list[tuple[Numbers, bytes]]:
        """Return what the heuristics choose, best first: attributes' values, and the algorithm as they wrote it."""
        preference, got = ctypes.c_void_p(), ctypes.c_int()
        results, most = (_Result * count)(), ctypes.c_uint64(workspace_bytes)
        call = self.library.call
        call("cublasLtMatmulPreferenceCreate", ctypes.byref(preference))
        try:
            call("cublasLtMatmulPreferenceSetAttribute", preference, _PREFERENCE_WORKSPACE, ctypes.byref(most), ctypes.c_size_t(8))
            call("cublasLtMatmulAlgoGetHeuristic", self.library.handle(), self._desc, *self._layouts, preference, count, results,
                 ctypes.byref(got))
        finally:
            self.library.status("cublasLtMatmulPreferenceDestroy", preference)
        fine = [result.algorithm for result in results[:got.value] if result.state == 0]
        return [(self.attributes(each), bytes(each)) for each in fine]

    def ids(self) -> list[int]:
        """Return the numbers of all algorithms for these data types."""
        numbers, got = (ctypes.c_int * _MOST_IDS)(), ctypes.c_int()
        self.library.call("cublasLtMatmulAlgoGetIds", self.library.handle(), *self._types, _MOST_IDS, numbers, ctypes.byref(got))
        return list(numbers[:got.value])

    def capabilities(self, number: int) -> Capabilities | None:
        """Return what an algorithm can be given; None where the library does not take it for these data types."""
        algorithm = self._init(number)
        if algorithm is None:
            return None
        mask = self._capability(algorithm, _CAP_REDUCTIONS, ctypes.c_uint32)
        return Capabilities(
            self._capability_list(algorithm, _CAP_TILES), self._capability_list(algorithm, _CAP_STAGES),
            self._capability(algorithm, _CAP_CUSTOM_MAX, ctypes.c_int32),
            self._capability(algorithm, _CAP_SWIZZLE, ctypes.c_uint32) == 1,
            self._capability(algorithm, _CAP_SPLIT_K, ctypes.c_int32) != 0, tuple(bit for bit in (1, 2, 4) if mask & bit))

    def algorithm(self, numbers: Sequence[int]) -> Algorithm | None:
        """Return the algorithm of attributes' values; None where the library has none of this number, or refuses a value."""
        begun = self._begin(numbers[PLACE["ALGO"]])
        if begun is None:
            return None
        algorithm, set_attribute = Algorithm.from_buffer_copy(begun[0]), self.library.set_attribute
        for attribute, number, default in zip(ATTRIBUTES, numbers, begun[1], strict=True):
            if number == default:                # a listing asks for a hundred thousand
                continue
            value = ctypes.c_uint16(number) if attribute.bytes == 2 else ctypes.c_uint32(number)
            if set_attribute(ctypes.byref(algorithm), attribute.number, ctypes.byref(value), attribute.bytes):
                return None
        return algorithm

    def _begin(self, number: int) -> tuple[bytes, Numbers] | None:
        """Return an algorithm as the library initialises it and its attributes' values; None where it has none of this number."""
        if number not in self._begun:
            algorithm = self._init(number)
            self._begun[number] = None if algorithm is None else (bytes(algorithm), self.attributes(algorithm))
        return self._begun[number]

    def attributes(self, algorithm: Algorithm) -> Numbers:
        """Return the attributes' values of an algorithm."""
        values = []
        for attribute in ATTRIBUTES:
            value, written = (ctypes.c_uint16 if attribute.bytes == 2 else ctypes.c_uint32)(), ctypes.c_size_t()
            self.library.call("cublasLtMatmulAlgoConfigGetAttribute", ctypes.byref(algorithm), attribute.number,
                              ctypes.byref(value), ctypes.c_size_t(attribute.bytes), ctypes.byref(written))
            values.append(int(value.value))
        return tuple(values)

    def check(self, algorithm: Algorithm) -> Check | None:
        """Return workspace and waves of an algorithm that the library accepts for this product on this GPU; else None."""
        result = _Result()
        if self.library.check_algorithm(self.library.handle(), self._desc, *self._layouts, ctypes.byref(algorithm),
                                        ctypes.byref(result)):
            return None
        return Check(int(result.workspace_bytes), float(result.waves))

    def run(self, algorithm: Algorithm, a: int, b: int, d: int, workspace: int, workspace_bytes: int, stream: int) -> None:
        """Queue the product on a CUDA stream; operands and workspace by their addresses. Raises RuntimeError."""
        pointer = ctypes.c_void_p
        left, right, result, _ = self._layouts
        self.library.call("cublasLtMatmul", self.library.handle(), self._desc, ctypes.byref(self._one), pointer(a), left,
                          pointer(b), right, ctypes.byref(self._zero), pointer(d), result, pointer(d), result,
                          ctypes.byref(algorithm), pointer(workspace), ctypes.c_size_t(workspace_bytes), pointer(stream))

    def _init(self, number: int) -> Algorithm | None:
        algorithm = Algorithm()
        failed = self.library.status("cublasLtMatmulAlgoInit", self.library.handle(), *self._types, number,
                                     ctypes.byref(algorithm))
        return None if failed else algorithm

    def _capability(self, algorithm: Algorithm, attribute: int, kind: Any) -> int:
        value, written = kind(), ctypes.c_size_t()
        failed = self.library.status("cublasLtMatmulAlgoCapGetAttribute", ctypes.byref(algorithm), attribute, ctypes.byref(value),
                                     ctypes.c_size_t(ctypes.sizeof(value)), ctypes.byref(written))
        return 0 if failed else int(value.value)

    def _capability_list(self, algorithm: Algorithm, attribute: int) -> tuple[int, ...]:
        """Return a list of ids; (0,), which is "undefined", where the algorithm has none."""
        size = ctypes.c_size_t()
        values = (ctypes.c_uint32 * _MOST_VALUES)()
        if self.library.status("cublasLtMatmulAlgoCapGetAttribute", ctypes.byref(algorithm), attribute, None, ctypes.c_size_t(0),
                               ctypes.byref(size)) or not 0 < size.value <= ctypes.sizeof(values):
            return (0,)
        if self.library.status("cublasLtMatmulAlgoCapGetAttribute", ctypes.byref(algorithm), attribute, values, size,
                               ctypes.byref(size)):
            return (0,)
        return tuple(int(each) for each in values[:size.value // 4]) or (0,)
