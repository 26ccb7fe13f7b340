"""The adapter of a recorded call: tensors, numbers, grid and space as the host gave them, written over the sizes of the call.

What could not be told is asked: a line raises NotImplementedError, so that `operators check` does not pass before it is written.
"""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Iterator, Mapping
from typing import Any

from profiles.base.refused import Refused
from tuner.bring.calls.changed import read_changed
from tuner.bring.calls.descriptors import IMPORT
from tuner.bring.calls.expression import CallExpression
from tuner.bring.calls.found import is_contiguous
from tuner.bring.calls.reference_call import write_reference_call
from tuner.bring.calls.understand import META, OPTIONS, Recorded
from tuner.bring.python_text import (
    in_docstring,
    pack,
    write_between,
    write_bracketed,
    write_config,
    write_mapping,
    write_number,
    write_packed,
    write_tuple,
)
from tuner.bring.recorded import DTYPES
from tuner.bring.references import NOT_INDEPENDENT
from tuner.bring.source import Kernel
from tuner.bring.write import Draft, import_lines

FEW_VALUES = 1024           # that are written out; more are packed


class Writing:
    """One adapter being written: what must be asked is collected while its parts are."""

    def __init__(self, each: Recorded, kernel: Kernel | None, record: Mapping[str, Any], call: CallExpression,
                 reference: str, text: str) -> None:
        self.each, self.kernel, self.told, self.call, self.named_reference, self.text = each, kernel, record, call, reference, text
        self.launch = each.launch
        self.asks: list[str] = list(each.unsure)
        self.to_do: list[str] = []
        self.counts_sms = False
        self.functions: dict[str, list[str]] = {}       # compiled functions that it is given, by their modules
        self.is_here = bool(each.here)          # whether the operator has the call's own sizes alone
        self.dims = each.dims or {"N": 1}
        self.tensors = {name: argument for name, argument in self.launch["arguments"].items() if argument["kind"] == "tensor"}
        self.dtype = self._main_dtype()
        self.changed = read_changed(self.launch, kernel, record.get("inputs", ()), each.at > 0)
        self.out = self._find_out()

    def _main_dtype(self) -> str:
        """Return the dtype of most tensors of fractions that the call makes, else that the kernel gets."""
        input_dtypes = [tensor["dtype"] for tensor in self.told.get("inputs", ()) if tensor["dtype"] in DTYPES]
        tensor_dtypes = [tensor["dtype"] for tensor in self.tensors.values() if tensor["dtype"] in DTYPES]
        shorter: list[str] = [dtype for dtype in input_dtypes + tensor_dtypes if dtype != "float32"]
        return (shorter or input_dtypes or tensor_dtypes or ["bfloat16"])[0]

    def _find_out(self) -> str:
        arguments = {argument.name: argument for argument in self.kernel.arguments} if self.kernel else {}
        written = [name for name in self.tensors if name in arguments and arguments[name].written]
        results = {tensor["storage"] for tensor in self.told.get("result", ())}
        returned = [name for name in written or self.tensors if self.tensors[name]["storage"] in results]
        out: str = (returned or written or [""])[0]
        if not out:
            self.asks.append("which argument holds the result: none is written that the text shows")
            return next(reversed(self.tensors), "")
        shares = [name for name, entry in self.tensors.items() if name != out and entry["storage"] == self.tensors[out]["storage"]
                  and self.changed.first(name) != self.changed.first(out)]
        is_read = out in arguments and arguments[out].loaded
        is_told = self.changed.first(out) in self.changed.known or self.tensors[out].get("anything")
        if shares or (is_read and not is_told):
            self.asks.append(f"{out} is read and written: what it holds before a launch, and how it comes back to that")
        return out

    # ---- arguments ----

    def arguments(self) -> list[str]:
        lines = [f'    {name} = shape["{name}"]' for name in self.dims]
        entries = []
        for name, argument in self.launch["arguments"].items():
            if name in self.each.derived:
                continue
            if argument["kind"] == "tensor":
                lines.append(f"    {name} = {self.changed.same.get(name) or self._tensor(name, argument)}")
                entries.append(f'"{name}": {name}')
            else:
                entries.append(f'"{name}": {self._value(name, argument, "arguments")}')
        above = self.launch["heuristics"] if self.launch["heuristics_above"] else []
        for name, constant in self.launch["constexprs"].items():
            if name in self.each.params or name in self.launch["heuristics"] or name in self.each.derived:
                continue
            entries.append(f'"{name}": {self._value(name, constant, "constexprs")}')
        body = [*lines, "    return {" + ", ".join(entries) + "}"]
        if above:
            body[-1] = "    args = {" + ", ".join(entries) + "}"
            rules = f"{self._function()}.values"
            body += [f'    args["{name}"] = {rules}["{name}"](args)' for name in above]
            body.append("    return args")
        asks = [f"    raise NotImplementedError({f'write what a call does not tell: {ask}'!r})" for ask in dict.fromkeys(self.asks)]
        return ["def arguments(shape, dtype, device):", *asks, *body]

    def _function(self) -> str:
        return self.kernel.name if self.kernel else self.each.name

    def launched(self) -> str:
        """Return what is launched: the file's kernel, under rules for what its host computes from its blocks."""
        return "KERNEL" if self.each.derived or self.each.makes or self._is_listed() else self._function()

    def _is_listed(self) -> bool:
        """Return whether configurations are written out: of an autotuner of somebody's own, or above rules that need them."""
        autotune = self.launch["autotune"]
        return bool(autotune and (autotune.get("own") or self.each.makes or self.each.derived))

    def rules(self) -> list[str]:
        """Return the line that makes them."""
        rules = {name: f"lambda meta: {self._in_arguments(formula)}"
                 for name, formula in (*self.each.derived.items(), *self.each.makes.items())}
        above = f"triton.heuristics({write_mapping(rules)})" if rules else ""
        if not self._is_listed():
            return [f"KERNEL = {above}({self._function()})"] if rules else []
        autotune = self.launch["autotune"]
        configs = ", ".join(write_config(config, OPTIONS) for config in autotune["configs"])
        keywords = "".join(f", {name}={autotune[name]!r}" for name in ("reset_to_zero", "restore_value") if autotune[name])
        below = f"{self._function()}.fn" + (".fn" if self.launch["heuristics_above"] else "")
        kernel = f"{above}({below})" if rules else below
        return [f"KERNEL = triton.autotune(configs=[{configs}], key=[]{keywords})({kernel})"]

    def _tensor(self, name: str, argument: Mapping[str, Any]) -> str:
        extents = [self._formula(f"arguments.{name}.shape.{axis}", size) for axis, size in enumerate(argument["shape"])]
        shape = f"({', '.join(extents)}{',' if len(extents) == 1 else ''})"
        if argument["dtype"] not in DTYPES and not argument["dtype"].startswith("float"):
            return self._whole(name, argument, shape)
        dtype = "dtype" if argument["dtype"] == self.dtype else f"torch.{argument['dtype']}"
        if is_contiguous(argument["shape"], argument["strides"]):
            return f"torch.empty({shape}, dtype={dtype}, device=device)"
        strides = [self._formula(f"arguments.{name}.strides.{axis}", size) for axis, size in enumerate(argument["strides"])]
        text = f"({', '.join(strides)}{',' if len(strides) == 1 else ''})"
        return f"torch.empty_strided({shape}, {text}, dtype={dtype}, device=device)"

    def _whole(self, name: str, one: Mapping[str, Any], shape: str) -> str:
        dtype = f"torch.{one['dtype']}"
        loaded = {argument.name for argument in (self.kernel.arguments if self.kernel else ()) if argument.loaded}
        if one.get("anything") or (name == self.out and name not in loaded):
            return f"torch.empty({shape}, dtype={dtype}, device=device)"
        source = next((tensor for tensor in self.told.get("inputs", ()) if tensor["storage"] == one["storage"]), None)
        bounds = source["bounds"] if source else []
        if source and source["maker"] == "randint" and len(bounds) == 2:
            return f"{write_between(bounds, shape)}.reshape({shape}).to({dtype})"
        is_drawn = source and source["maker"] == "randperm" and source["shape"] == one["shape"] and not self.each.follows
        if is_drawn or one.get("permutes"):
            return f"torch.randperm({shape.strip('()').rstrip(',')}, device=device).to({dtype})"
        if "filled" in one:
            filled = one["filled"]
            number = write_number(float(filled)) if isinstance(filled, str) else repr(filled)
            return f"torch.full({shape}, {number}, dtype={dtype}, device=device)"
        if one.get("counts"):
            return f"torch.arange({shape.strip('()').rstrip(',')}, dtype={dtype}, device=device)"
        if "values" in one:
            return f"torch.tensor({one['values']!r}, dtype={dtype}, device=device)" if math.prod(one["shape"]) <= FEW_VALUES \
                else f"torch.tensor({write_packed(pack(one['values']))}).reshape({shape}).to({dtype}).to(device)"
        if "packed" in one:
            return f"torch.tensor({write_packed(one['packed'])}).reshape({shape}).to({dtype}).to(device)"
        if "bounds" in one:
            in_order = ".sort().values" if one["sorted"] else ""
            return f"{write_between(one['bounds'], shape)}{in_order}.reshape({shape}).to({dtype})"
        if one["dtype"] == "bool":              # either will do
            return f"{write_between((0, 2), shape)}.reshape({shape}).to({dtype})"
        arguments = self.kernel.arguments if self.kernel else ()
        if any(argument.name == name and argument.written and not argument.loaded for argument in arguments):
            return f"torch.empty({shape}, dtype={dtype}, device=device)"
        self.asks.append(f"what {name} holds ({one['dtype']})")
        return f"torch.zeros({shape}, dtype={dtype}, device=device)"

    def _formula(self, path: str, value: int) -> str:
        formula = self.each.formulas.get(path, str(value))
        if formula is None:                 # as it is at the call's sizes, which are then the only ones
            return str(value)
        return self._of_gpu(formula)

    def _value(self, name: str, argument: Mapping[str, Any], part: str) -> str:
        kind: str = argument["kind"]
        value: Any = argument.get("value")
        if kind == "int":
            return self._formula(f"{part}.{name}.value", value)
        if kind == "tuple" and all(element["kind"] in ("int", "bool", "float", "str", "none") for element in value):
            parts = [self._formula(f"{part}.{name}.value.{index}.value", element["value"]) if element["kind"] == "int"
                     else repr(element["value"]) for index, element in enumerate(value)]
            return f"({', '.join(parts)}{',' if len(parts) == 1 else ''})"
        if kind in ("float", "bool", "str", "none"):
            is_finite = kind != "float" or not isinstance(value, str)
            return self.each.formulas.get(f"{part}.{name}.value") or (repr(value) if is_finite else f"float({value!r})")
        if kind == "dtype":
            return f"tl.{_TYPES.get(value, value)}"
        if kind == "function":
            self.functions.setdefault(argument["module"], []).append(value)
            return str(value)
        self.asks.append(f"{name}: {'a TMA descriptor that the host makes' if kind == 'descriptor' else f'a value of {kind}'}")
        return "None"

    # ---- grid, reference, record ----

    def _dim(self, name: str, size: int) -> str:
        return f'Dim("{name}", "{name}", high=1 << 30{f", only=({size},)" if self.is_here else ""})'

    def grid(self) -> str:
        axes = [self._in_arguments(axis) if axis is not None else "None" for axis in self.each.grid]
        while len(axes) > 1 and axes[-1] == "1":
            axes.pop()
        axes = [self._of_gpu(axis) for axis in axes]
        return f"lambda meta: ({', '.join(axes)}{',' if len(axes) == 1 else ''})"

    def _in_arguments(self, formula: str) -> str:
        """Return a formula with sizes of the call as the kernel's arguments tell them."""
        for name in self.dims:
            term = META.format(name)
            is_given = name in self.launch["arguments"] or name in self.launch["constexprs"]
            if not is_given and term in formula:
                formula = formula.replace(term, self._from_arguments(name))
        return formula

    def _of_gpu(self, formula: str) -> str:
        """Return a formula with the multiprocessors of the GPU here in place of those of the GPU that was answered for."""
        count = self.told.get("sms")
        if not count or count in self.dims.values() or "{" in formula:         # a table has the call's own numbers
            return formula
        self.counts_sms |= bool(re.search(rf"\b{count}\b", formula))
        return re.sub(rf"\b{count}\b", "SMS", formula)

    def _from_arguments(self, dim: str) -> str:
        """Return a size of the call as the kernel's arguments tell it: an extent of a tensor."""
        for name, tensor in self.tensors.items():
            for axis in range(len(tensor["shape"])):
                if self.each.formulas.get(f"arguments.{name}.shape.{axis}") == dim:
                    return f'meta["{name}"].shape[{axis}]'
        for name, argument in self.launch["arguments"].items():
            if argument["kind"] == "int" and self.each.formulas.get(f"arguments.{name}.value") == dim:
                return META.format(name)
        self.is_here = True                 # no argument of the kernel tells it
        return str(self.dims[dim])

    def reference(self) -> list[str]:
        if self.named_reference:
            named = write_reference_call(self.text, self.named_reference, self.call, self._tensor_of_call)
            return ["def reference(args):", f"    return {named}"]
        launcher = f"{self.launched()}{self._below()}"
        return ["def reference(args):",
                f'    """Return what the default itself computes: {NOT_INDEPENDENT}, it shows whether configurations agree."""',
                "    args = {name: value.to(TYPES[name]) if name in TYPES else value for name, value in args.items()}",
                *self._own_result(), "    if not out.is_meta:",
                f'        {launcher}[GRID](**{{**args{self._own_arguments()}}}, **DEFAULT)', "    return out"]

    def _own_result(self) -> list[str]:
        """Return the lines that make what a launch changes: copies of its own, and the result."""
        lines = [f'    {name} = args["{name}"].clone()' for name in self.changed.known]
        first = self.changed.first(self.out)
        return [*lines, f"    out = {first}" if first in self.changed.known else f'    out = torch.empty_like(args["{self.out}"])']

    def _own_arguments(self) -> str:
        outputs = {name: first for name in self.tensors if (first := self.changed.first(name)) in self.changed.known}
        outputs = outputs if self.out in outputs else {self.out: "out", **outputs}
        return "".join(f', "{name}": {value}' for name, value in outputs.items())

    def _below(self) -> str:
        above = 1 if self.launch["heuristics_above"] and not self._is_listed() else 0
        return ".fn" * (above + (1 if self.launch["autotune"] else 0))

    def _tensor_of_call(self, number: int) -> str:
        """Return what of the kernel's arguments is a tensor that the call makes."""
        inputs = self.told.get("inputs", ())
        source = inputs[number] if number < len(inputs) else None
        for name, tensor in self.tensors.items():
            if source is None or tensor["storage"] != source["storage"]:
                continue
            if tensor["shape"] == source["shape"] and tensor["strides"] == source["strides"]:
                return f'args["{name}"]'
            if tensor["offset"] == source.get("offset", 0):
                self.is_here = True         # the call's own extents are written
                return f'args["{name}"].as_strided({tuple(source["shape"])}, {tuple(source["strides"])})'
        raise Refused("an argument of the call is none of the kernel's")

    def record(self) -> list[str]:
        kernel, launch = self._function(), self.launch
        above = ".fn" if launch["heuristics_above"] and launch["autotune"] and not self._is_listed() else ""
        extra = ["bf16", "fp16"] if self.named_reference and DTYPES.get(self.dtype) in ("bf16", "fp16") else []
        dtypes = list(dict.fromkeys([DTYPES.get(self.dtype, "bf16"), *extra]))
        is_product = bool(self.kernel and self.kernel.tiles and self.kernel.dots and {"M", "N", "K"} <= self.dims.keys())
        result = "2 * M * N * K" if is_product else " * ".join(self._extents(self.out)) or "1"
        lines = ["OPERATORS = [TritonOperator(",
                 f'    name="{kernel.strip("_")[:40]}", title="{kernel}", kernel={self.launched()}{above},',
                 "    dims=(" + ", ".join(self._dim(name, size) for name, size in self.dims.items()) + ",),",
                 "    dtypes=(" + ", ".join(f'"{dtype}"' for dtype in dtypes) + ",),",
                 "    presets=({" + ", ".join(f'"{name}": {size}' for name, size in self.dims.items()) + "},),",
                 f'    arguments=arguments, grid=GRID, out="{self.out}", reference=reference,',
                 f'    flops="{result}", bytes="{self._bytes()}", unit="{"FLOP/s" if is_product else "B/s"}",']
        if not is_product:
            self.to_do.append("flops: one per element of the result is proposed")
        if self.each.widened or not launch["autotune"]:
            values = {name: write_tuple(some) for name, some in self.each.params.items()}
            lines += [f"    params={write_mapping(values)},", f"    default={write_mapping(self.default())},"]
            rules = {f"{' × '.join(tile)} accumulators fit into the registers": f'"{" * ".join(tile)} <= 255 * 32 * num_warps"'
                     for tile in (self.kernel.tiles if self.kernel else ()) if all(name in self.each.params for name in tile)}
            if rules and "num_warps" in self.each.params:
                lines.append(f"    constraints={write_mapping(rules)},")
        return self.close(lines)

    def close(self, lines: list[str]) -> list[str]:
        """Return the lines of the list of operators with what each launch must find, and its end."""
        if self.changed.restored:
            lines.append("    restored=(" + "".join(f'"{name}", ' for name in self.changed.restored).rstrip() + "),")
        if self.changed.holds:
            lines.append(f"    holds={write_mapping({name: write_number(number) for name, number in self.changed.holds.items()})},")
        lines[-1] = lines[-1].rstrip(",") + ")]"
        return lines

    def default(self) -> dict[str, str]:
        return {name: repr(value) for name, value in self.each.default.items() if name in self.each.params or name in OPTIONS}

    def _extents(self, name: str) -> list[str]:
        shape = self.tensors.get(name, {}).get("shape", [])
        return [f"{write_bracketed(self._formula(f'arguments.{name}.shape.{axis}', size).replace('triton.', ''))}"
                for axis, size in enumerate(shape)]

    def _bytes(self) -> str:
        parts = []
        for name, tensor in self.tensors.items():
            size = "size" if tensor["dtype"] == self.dtype else str(_SIZES.get(tensor["dtype"], 4))
            parts.append(" * ".join([size, *[extent for extent in self._extents(name) if extent != "1"]]))
        return " + ".join(parts)[:480] or "1"

    def types(self) -> str:
        exact = {name: f"torch.{tensor['dtype']}" for name, tensor in self.tensors.items() if tensor["dtype"] in DTYPES}
        return write_mapping(exact)


_SIZES = {"float32": 4, "float64": 8, "int64": 8, "int32": 4, "int16": 2, "int8": 1, "uint8": 1, "bool": 1, "float16": 2,
          "bfloat16": 2, "float8_e4m3fn": 1, "float8_e5m2": 1}
SMS = "SMS = torch.cuda.get_device_properties(0).multi_processor_count if torch.cuda.is_available() else 132"
_TYPES = {"fp32": "float32", "fp16": "float16", "bf16": "bfloat16", "fp8e4nv": "float8e4nv", "fp8e5": "float8e5", "fp64": "float64"}


def write_called(each: Recorded, kernel: Kernel | None, told: Mapping[str, Any], call: CallExpression, module: str,
                 reference: str = "", text: str = "") -> Draft:
    """Return the adapter of one kernel of a recorded call. Raises Refused where there is nothing to write one of.

    reference  a function of the file whose `text` is given, called with the arguments of the call
    """
    if not each.dims:
        raise Refused(f"{each.name}: nothing of the launch follows a number of the call, so its sizes are not told")
    if not [name for name, argument in each.launch["arguments"].items() if argument["kind"] in ("tensor", "descriptor")]:
        raise Refused(f"{each.name}: the call gives it no tensor")
    writing = Writing(each, kernel, told, call, reference, text)
    grid, rules = writing.grid(), writing.rules()
    answer = writing.reference()            # before the record, which may then be of the call's own sizes alone
    record = writing.record()
    arguments = writing.arguments()             # last: it raises for what the others had to ask
    name = kernel.name if kernel else each.name
    imported = list(dict.fromkeys([name, *([reference] if reference else [])]))
    needs_tl = any("tl." in line for line in arguments)
    parts = [f'"""{name} as an operator of Ridgepoint, from the call {in_docstring(call.text)}."""', "",
             *(["import array", "import base64", "import zlib", ""] if any("b85decode" in line for line in arguments) else []),
             "import torch", "import triton", *(["import triton.language as tl"] if needs_tl else []),
             *([IMPORT] if each.makes else []), "",
             *import_lines(module, imported),
             *(line for of, names in writing.functions.items() for line in import_lines(of, list(dict.fromkeys(names)))),
             "from tuner.team.adapter import Dim, TritonOperator", "",
             *([SMS] if writing.counts_sms else []),
             f"DEFAULT = {write_mapping(writing.default())}", f"GRID = {grid}", *rules,
             *([] if reference else [f"TYPES = {writing.types()}"]), "", "", *arguments, "", "", *answer, "", "", *record, ""]
    to_do = [*(f"arguments: {ask}" for ask in dict.fromkeys(writing.asks)), *dict.fromkeys(writing.to_do)]
    if not reference:
        to_do.append(f"reference: the default's own result, {NOT_INDEPENDENT}; --reference NAME takes a function of the file")
    return Draft("\n".join(parts), tuple(to_do))


def names_of_reference(text: str) -> Iterator[str]:
    """Yield functions of a file that may be its reference, by what they are called: naive, torch, ref, …"""
    for node in ast.parse(text).body:
        if isinstance(node, ast.FunctionDef) and not node.decorator_list and any(
                part in node.name.lower() for part in ("ref", "naive", "torch", "native", "baseline", "golden")):
            yield node.name
