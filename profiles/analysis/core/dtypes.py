"""The element type that a kernel's name states: template arguments, a lambda's parameter, a library's own letters."""

from __future__ import annotations

import re

NAMESPACES = frozenset({"at", "native", "std", "cuda", "c10", "detail", "internal", "cub", "cutlass", "thrust", "vllm", "flash"})
_TYPES = {
    "fp64": r"double|Float64", "fp32": r"float|Float32",
    "bf16": r"(?:c10::)?BFloat16|__(?:nv|hip)_bfloat16|hip_bfloat16|(?:\w+::)?bfloat16_t|bf16",
    "fp16": r"(?:c10::)?Half|__half2?|(?:\w+::)?half_t|half|Float16", "tf32": r"(?:\w+::)?tfloat32_t",
    "fp8": r"(?:c10::)?Float8_\w+|__nv_fp8_\w+|(?:\w+::)?float_e[45]m[23]_t", "complex64": r"(?:c10::)?complex<float>",
    "complex128": r"(?:c10::)?complex<double>",
}
_WHOLE = {"int64": r"long(?: long)?|Int64|int64_t", "int32": r"int|Int32|int32_t", "int16": r"short", "int8": r"signed char|int8_t",
          "uint8": r"unsigned char|uint8_t", "bool": r"bool"}


def _table(words: dict[str, str]) -> re.Pattern[str]:
    return re.compile("|".join(rf"(?P<{dtype}>(?<![\w:])(?:{pattern})(?![\w]|::))" for dtype, pattern in words.items()))


# complex before its parts, so that complex<float> is not a float
_FLOATS = _table(dict(sorted(_TYPES.items(), key=lambda pair: not pair[0].startswith("complex"))))
_INTEGERS = _table(_WHOLE)
_LAMBDA = re.compile(r"lambda\d*'?\(([^(){}]+)\)")
_LOOP = re.compile(r"\s*int\s*(?:,|$)")
_OF_ELEMENTS = re.compile(r"at::native::|\b(?:cub|thrust|rocprim|hipcub)::|elementwise_kernel|cutlass::")
_CAST = re.compile(r"\((?:unsigned )?(?:int|bool|long|short|char)(?: long)?\)(?=-?\d)")
_UNSIGNED_INDEX = re.compile(r"unsigned (?:int|long)(?: long)?")
# A library's flat names: "ampere_bf16_s16816gemm", "sm80_xmma_gemm_tf32f32_tf32f32_f32", "nvjet_sm90_tst", "Sum_f32".
_FLAT = tuple((re.compile(pattern), dtype) for pattern, dtype in (
    (r"(?:^|_)(?:bf16)(?:bf16|f32|_|$)", "bf16"), (r"(?:^|_)tf32(?:tf32|f32|_|$)", "tf32"),
    (r"(?:^|_)(?:fp16|f16|half)(?:f16|f32|_|$)", "fp16"), (r"e4m3|e5m2|(?:^|_)fp8(?:_|$)", "fp8"),
    (r"(?:^|_)(?:f64|fp64|double)(?:f64|_|$)", "fp64"), (r"(?:^|_)(?:f32|fp32|float)(?:f32|_|$)", "fp32"),
    (r"(?:^|_)(?:int8_t|i8|int8|s8)(?:i8|i32|_|$)", "int8"),
    (r"_BBS_|_BSS_|_BH_", "bf16"), (r"_HHS_|_HSS_|_HB_", "fp16"), (r"_SB_", "fp32"), (r"_DB_", "fp64"),
    (r"[_b]h(?:\d+)?(?:gemm|cudnn)", "fp16"), (r"[_b]d(?:\d+)?gemm", "fp64"), (r"[_b]g?c(?:\d+)?gemm", "complex64"),
    (r"[_b]g?z(?:\d+)?gemm", "complex128"), (r"[_b]i(?:\d+)?gemm", "int8"), (r"(?:^|[_b])s(?:\d+)?(?:gemm|cudnn)", "fp32"),
))
_NVJET = re.compile(r"nvjet_(?:sm\d+_)?([a-z])[a-z]{2,5}_")
_NVJET_TYPES = {"t": "bf16", "h": "fp16", "s": "fp32", "q": "fp8", "r": "fp8", "d": "fp64", "o": "fp4"}
_OPAQUE = re.compile(r"OpaqueType<(\d+)u?>")
_MANGLED = (("bf16", "8BFloat16"), ("bf16", "13__nv_bfloat16"), ("bf16", "10bfloat16_t"), ("fp16", "4Half"), ("fp16", "6__half"),
            ("tf32", "10tfloat32_t"), ("fp16", "6half_t"))
_MANGLED_LETTER = re.compile(r"(?:[A-Za-z_]\w*?)I([fd])(?=[A-Za-z_0-9])")


def plain_casts(name: str) -> str:
    """"(int)4" -> "4": ncu writes what other tools leave out."""
    return _CAST.sub("", name)


def dtype(name: str, head: str) -> str:
    """Return the element type that a kernel's name states, "" where it states none.

    Takes the whole name and the part before its parameters.

    The parameter of the innermost lambda first (what an ATen kernel computes in), then the template arguments; then the letters
    of libraries, then plain parameters. Whole types are mostly indices and sizes: they count only where ATen's functors and the
    algorithms of CUB, Thrust and rocPRIM take them for their elements, never as a parameter.
    """
    if head.startswith("_Z"):
        return _mangled_dtype(head)
    opaque = _OPAQUE.search(head)
    if opaque:
        return f"{opaque[1]}-byte"
    lambdas = _LAMBDA.findall(head)
    arguments = head.split("<", 1)[1] if "<" in head else ""
    tables = (_FLOATS, _INTEGERS) if _OF_ELEMENTS.search(head) else (_FLOATS,)
    # lambda(int) and lambda(int, bool) are loops over elements: the number of an element, not its type
    for text in (*(each for each in reversed(lambdas) if not _LOOP.match(each)), arguments):
        if name_of_type := _first(_UNSIGNED_INDEX.sub("", text), tables):
            return name_of_type
    return _flat(head) or _first(name[len(head):], (_FLOATS,))


def _first(text: str, tables: tuple[re.Pattern[str], ...]) -> str:
    for table in tables:
        match = table.search(text)
        if match and match.lastgroup:
            return match.lastgroup
    return ""


def _flat(head: str) -> str:
    letters = _NVJET.search(head)
    if letters:
        return _NVJET_TYPES.get(letters[1], "")
    return next((dtype for pattern, dtype in _FLAT if pattern.search(head)), "")


def _mangled_dtype(head: str) -> str:
    places = [(head.find(text), dtype) for dtype, text in _MANGLED if text in head]
    if places:
        return min(places)[1]
    letter = _MANGLED_LETTER.search(head)
    return {"f": "fp32", "d": "fp64"}[letter[1]] if letter else ""
