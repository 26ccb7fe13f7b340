"""What is read of a CUDA C++ file: its `__global__` functions, their arguments, template parameters and threads, its macros."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

INTEGERS = {
    "char": "i1", "signed char": "i1", "unsigned char": "u1", "short": "i2", "unsigned short": "u2", "int": "i4",
    "signed": "i4", "signed int": "i4", "unsigned": "u4", "unsigned int": "u4", "long": "i8", "unsigned long": "u8",
    "long long": "i8", "unsigned long long": "u8", "int8_t": "i1", "uint8_t": "u1", "int16_t": "i2", "uint16_t": "u2",
    "int32_t": "i4", "uint32_t": "u4", "int64_t": "i8", "uint64_t": "u8", "size_t": "u8", "ptrdiff_t": "i8", "uint": "u4",
    "bool": "b1", "uchar": "u1", "ushort": "u2", "ulong": "u8",
}
NUMBERS = {"float": "f4", "double": "f8", "__half": "f2", "half": "f2"}
C_TYPES = {"fp16": "__half", "bf16": "__nv_bfloat16", "fp32": "float", "fp8": "__nv_fp8_e4m3"}
BLOCK = ("block_size_x", "block_size_y", "block_size_z")  # threads of a block, as Kernel Tuner names them
WHOLE = {
    "int", "unsigned", "uint", "size_t", "long", "short", "char", "int32_t", "uint32_t", "int64_t", "uint64_t", "int16_t",
    "uint16_t", "uint8_t", "int8_t", "signed", "auto", "index_t",
}
MOST_THREADS = 1024


@dataclass(frozen=True)
class Axis:
    """Threads along one axis of a block.

    used     the kernel asks for its thread along it
    adapts   it asks how many there are (blockDim), so that their number may change
    extent   an expression over the kernel's own names and numbers; "" where nothing tells
    value    the number of it that the file launches, if it tells
    several  numbers that the file launches, or lists
    implied  whether `extent` is read from index arithmetic and no launch tells
    split    names by which the kernel divides its thread's number: none is the number of threads
    most     the largest number that fits static shared memory or __launch_bounds__
    """

    used: bool = False
    adapts: bool = False
    extent: str = ""
    value: int | None = None
    several: tuple[int, ...] = ()
    implied: bool = False
    split: tuple[str, ...] = ()
    most: int = MOST_THREADS

    @property
    def is_free(self) -> bool:
        """Whether the number of threads may change by itself."""
        return self.adapts and not re.search(r"[A-Za-z_]", self.extent)


@dataclass(frozen=True)
class CudaArgument:
    """One argument of a function: `type` without qualifiers ("float", "T", "long long"), `pointer` for an address.

    scalar   NumPy's name of the type of a number ("i4", "f4"); "" of a pointer, a struct and a template's type
    written  whether the function stores through it, as far as the file tells
    unsure   whether the file does not tell: the address is handed to code that is not in it
    read     whether the function reads what lies there
    generic  whether `type` is a type parameter of the template: a number of the tensors' type
    """

    name: str
    type: str
    pointer: bool
    scalar: str = ""
    written: bool = False
    unsure: bool = False
    read: bool = False
    generic: bool = False

    @property
    def kind(self) -> str:
        if self.pointer:
            return "index" if self.type in INTEGERS and INTEGERS[self.type] in ("i4", "i8") else "pointer"
        if self.generic:
            return "number"
        return "integer" if self.scalar[:1] in ("i", "u", "b") else "number" if self.scalar else "struct"


@dataclass(frozen=True)
class TemplateParam:
    """`type` is "typename" for a type, else the type of a value; `default` as written, "" for none.

    launched  what the file's launches and instances give for it, each once, in order: numbers as whole numbers, types as text
    """

    name: str
    type: str
    default: str = ""
    launched: tuple[int | str, ...] = ()

    @property
    def is_type(self) -> bool:
        return self.type.split()[0] in ("typename", "class") if self.type else False

    @property
    def is_flag(self) -> bool:
        return self.type.replace("const ", "") == "bool"

    @property
    def is_number(self) -> bool:
        return not self.is_type and set(self.type.replace("::", " ").split()) <= WHOLE | {"const", "std"}


@dataclass(frozen=True)
class CudaFunction:
    """One `__global__` function.

    template   its template parameters in order; () of a plain function
    undefined  names that it uses, that look tuned, and that nothing in the file declares
    uses       all names of its text, and of the functions that it reaches
    threads    of `__launch_bounds__`, where that is a number
    scope      the namespaces around it ("a::b")
    block      the threads along x, y and z
    launches   how often the file launches it
    smem       dynamic shared memory of the first launch: an expression over its names, "" for none, None where it is not told
    grid       blocks along x, y, z of the first launch: expressions over its arguments, names and block; () where none is told
    problem    why it cannot be read; "" where it can
    counted    names that say how much one block does, where a result has an element for each block: its size follows them
    """

    name: str
    line: int
    arguments: tuple[CudaArgument, ...]
    template: tuple[TemplateParam, ...] = ()
    undefined: tuple[str, ...] = ()
    uses: frozenset[str] = frozenset()
    threads: int | None = None
    dynamic_shared: bool = False
    loops: bool = False
    scope: str = ""
    block: tuple[Axis, Axis, Axis] = (Axis(), Axis(), Axis())
    launches: int = 0
    smem: str | None = ""
    grid: tuple[str, ...] = ()
    problem: str = ""
    counted: frozenset[str] = frozenset()

    @property
    def qualified(self) -> str:
        return f"{self.scope}::{self.name}" if self.scope else self.name


@dataclass(frozen=True)
class CudaText:
    """defines: macro or constant → number; guarded: those of them that stand under `#ifndef`, so that a compiler's -D holds.

    types: names of the types that the file declares, without enumerations.
    """

    functions: tuple[CudaFunction, ...]
    defines: dict[str, int] = field(default_factory=dict)
    guarded: frozenset[str] = frozenset()
    types: tuple[str, ...] = ()
