"""The adapter of a recorded call of a CUDA C++ host function: a CudaOperator, as `calls.adapting` writes a TritonOperator."""

from __future__ import annotations

import keyword
import re
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

from profiles.base.refused import Refused
from tuner.bring.calls.adapting import SMS, Writing
from tuner.bring.calls.expression import CallExpression
from tuner.bring.cuda.formulas import RecordedCuda, threads_of
from tuner.bring.cuda.source import CudaSource
from tuner.bring.cuda.space import TYPES
from tuner.bring.cuda.structs import fields_written, held_names
from tuner.bring.python_text import in_docstring, write_mapping, write_tuple
from tuner.bring.recorded import DTYPES
from tuner.bring.references import NOT_INDEPENDENT
from tuner.bring.write import Draft


def read_kernel(source: CudaSource, kernel: RecordedCuda, record: Mapping[str, Any]) -> Any:
    """Return a kernel as `calls` asks one: which arguments it writes and reads. What other code gets and the host returns, too."""
    results = {tensor["storage"] for tensor in record.get("result", ())}
    arguments = []
    for argument in source.function.arguments:
        description = kernel.launch["arguments"].get(argument.name, {})
        names = held_names(description)
        fields = fields_written(source.text, source.function.name, argument.name) if names and not argument.written else {}
        for name in names or [argument.name]:                         # of a struct the tensors whose addresses it holds
            storage = kernel.launch["arguments"].get(name, {}).get("storage")
            field = name.removeprefix(f"{argument.name}_")
            is_field_written = fields.get(field, fields.get("") if len(names) == 1 else None)
            is_written = argument.written or is_field_written is True
            is_written |= (argument.unsure or (name != argument.name and is_field_written is None)) and storage in results
            arguments.append(SimpleNamespace(name=name, written=is_written, loaded=argument.read, kind=argument.kind))
    return SimpleNamespace(name=source.function.name, arguments=tuple(arguments), tiles=(), dots=False, loops=source.function.loops,
                           line=source.line, steps=None)


def macros_for(source: CudaSource, macros: Mapping[str, int]) -> dict[str, int]:
    """Return the macros of a build that a kernel's text is given: without the template parameters of its host."""
    return {name: value for name, value in macros.items()
            if not re.search(rf"template\s*<[^;{{]*\b{re.escape(name)}\b", source.text)}


_TAKEN = ("shape", "dtype", "device", "torch", "triton", "args", "out")


class _CudaWriting(Writing):
    each: RecordedCuda

    def __init__(self, kernel: RecordedCuda, source: CudaSource, record: Mapping[str, Any], call: CallExpression) -> None:
        super().__init__(kernel, read_kernel(source, kernel, record), record, call, "", "")
        self.source = source
        self.launch = {**self.launch, "constexprs": {}}         # of the template, which is no argument
        arguments = source.function.arguments
        sure = {argument.name for argument in self.kernel.arguments if argument.written} if self.kernel else set()
        if unsure := [argument.name for argument in arguments if argument.unsure and argument.name not in sure and not sure]:
            self.asks.append(f"whether {', '.join(unsure)} are written: code that is not in the file gets their addresses")

    def launched(self) -> str:
        return "KERNEL"

    def arguments(self) -> list[str]:
        """Return the lines; C++ may call an argument `in`, `shape` or `torch`."""
        lines = super().arguments()
        for name in [name for name in self.tensors if keyword.iskeyword(name) or name in _TAKEN]:
            lines = [re.sub(rf"^    {name} = ", f"    {name}_ = ", line) for line in lines]
            lines = [re.sub(rf"^(    \w+ = ){name}$", rf"\g<1>{name}_", line) for line in lines]
            lines[-1] = re.sub(rf'(?<="{name}": ){name}(?=[,}}])', f"{name}_", lines[-1])
        return lines

    def _value(self, name: str, one: Mapping[str, Any], part: str) -> str:
        if one["kind"] != "tuple":
            return super()._value(name, one, part)
        words = [repr(word["value"]) if word["kind"] == "str" else
                 self._formula(f"arguments.{name}.value.{index}.value", word["value"]) for index, word in enumerate(one["value"])]
        return f"Struct([{', '.join(words)}])"

    def lambda_of(self, axes: list[str]) -> str:
        """Return a function of `meta` that gives the axes, those behind that are 1 left out."""
        axes = [self._of_gpu(self._in_arguments(axis)) for axis in axes]
        while len(axes) > 1 and axes[-1] == "1":
            axes.pop()
        return f"lambda meta: ({', '.join(axes)}{',' if len(axes) == 1 else ''})"

    def reference(self) -> list[str]:
        return ["def reference(args):",
                f'    """Return what the default itself computes: {NOT_INDEPENDENT}, it shows whether configurations agree."""',
                "    args = {name: value.to(TYPES[name]) if name in TYPES else value for name, value in args.items()}",
                *self._own_result(), "    if not out.is_meta:",
                f"        launch_default(OPERATORS[0], {{**args{self._own_arguments()}}})", "    return out"]

    def types(self) -> str:
        """Return the types that tensors of fractions have at a launch: a pointer to double is given nothing shorter."""
        return write_mapping({name: f"torch.{spec['dtype']}" for name, spec in self.tensors.items() if "float" in spec["dtype"]})

    def default(self) -> dict[str, str]:
        return {name: repr(value) for name, value in self.each.default.items()}

    def template(self) -> tuple[str, ...]:
        """Return what stands for each template parameter: a place for one that is tuned, else what the host gave."""
        values = []
        for name, value in self.each.template.items():
            text = {True: "true", False: "false"}.get(value, str(value)) if isinstance(value, bool) else str(value)
            values.append(f"{{{name}}}" if name in self.each.params else TYPES.get(text, text))
        return tuple(values)

    def kernel_text(self, file: str, macros: Mapping[str, int]) -> str:
        """Return the CudaKernel, whose file lies beside the adapter."""
        template = f", template={write_tuple(self.template())}" if self.each.template else ""
        texts = {name: f'"{value}"' for name, value in macros_for(self.source, macros).items() if name not in self.each.params}
        texts |= {name: f'"{tie.macro}"' for name, tie in self.each.ties.items()}
        defines = f", defines={write_mapping(texts)}" if texts else ""
        return f'CudaKernel(Path(__file__).with_name("{file}"), "{self.source.function.qualified}"{template}{defines})'

    def record(self) -> list[str]:
        dtype = DTYPES.get(self.dtype, "fp32")
        name = self._function()
        lines = ["OPERATORS = [CudaOperator(", f'    name="{name.strip("_")[:40]}", title="{name}", kernel=KERNEL,',
                 "    dims=(" + ", ".join(self._dim(dim, size) for dim, size in self.dims.items()) + ",),",
                 f'    dtypes=("{dtype}",),',
                 "    presets=({" + ", ".join(f'"{dim}": {size}' for dim, size in self.dims.items()) + "},),",
                 f'    arguments=arguments, grid=GRID, out="{self.out}", reference=reference,',
                 f"    block={self.lambda_of([str(axis) for axis in self.each.block])},"]
        if self.each.smem not in ("0", None):
            lines.append(f"    smem=lambda meta: {self._of_gpu(self._in_arguments(str(self.each.smem)))},")
        lines.append(f'    flops="{" * ".join(self._extents(self.out)) or "1"}", bytes="{self._bytes()}", unit="B/s",')
        self.to_do.append("flops: one per element of the result is proposed")
        values = {param: write_tuple(some) for param, some in self.each.params.items()}
        lines += [f"    params={write_mapping(values)},", f"    default={write_mapping(self.default())},"]
        if threads := threads_of(self.each):
            lines.append(f'    constraints={{"threads per block": "{threads} <= threads"}},')
        return self.close(lines)


def write_called_cuda(kernel: RecordedCuda, source: CudaSource, told: Mapping[str, Any], call: CallExpression, file: str,
                      macros: Mapping[str, int]) -> Draft:
    """Return the adapter of one kernel of a recorded call; `file` is its .cu file's name, which lies beside it. Raises Refused.

    macros  those that a build gives by -D, with their numbers
    """
    if not kernel.dims:
        raise Refused(f"{kernel.name}: nothing of the launch follows a number of the call, so its sizes are not told")
    if not [name for name, argument in kernel.launch["arguments"].items() if argument["kind"] == "tensor"]:
        raise Refused(f"{kernel.name}: the call gives it no tensor")
    writing = _CudaWriting(kernel, source, told, call)
    grid = writing.lambda_of([str(axis) for axis in kernel.grid])
    answer, record = writing.reference(), writing.record()
    arguments = writing.arguments()             # last: it raises for what the others had to ask
    has_structs = any(argument["kind"] == "tuple" for argument in kernel.launch["arguments"].values())
    parts = [f'"""{kernel.name} as an operator of Ridgepoint, from the call {in_docstring(call.text)}."""', "",
             "from pathlib import Path", "", "import torch", "import triton", "",
             f"from tuner.team.adapter import CudaKernel, CudaOperator, Dim, {'Struct, ' if has_structs else ''}launch_default", "",
             *([SMS] if writing.counts_sms else []),
             f"KERNEL = {writing.kernel_text(file, macros)}", f"GRID = {grid}", f"TYPES = {writing.types()}", "", "",
             *arguments, "", "", *answer, "", "", *record, ""]
    to_do = [*(f"arguments: {ask}" for ask in dict.fromkeys(writing.asks)), *dict.fromkeys(writing.to_do),
             f"reference: the default's own result, {NOT_INDEPENDENT}; write what the kernel computes, in torch"]
    return Draft("\n".join(parts), tuple(to_do))
