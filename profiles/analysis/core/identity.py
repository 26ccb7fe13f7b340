"""What a kernel is, by its name alone: the function it computes, the operation it stands for, the element type.

One name must give one identity wherever it was seen, so nothing but the name counts here: the same kernel in a trace, in a
counter report and in a table of sums is one family. What varies from launch to launch (grid, operator's shapes) is told
apart within a family, by `analysis.shapes`.

What a template is given to run belongs to the function: a lambda by the function it stands in and its number
(`clover::par_ranged2d_kernel PdV_kernel #1`), a functor, the address of a function, the kernel that a launcher of Kokkos, SYCL,
AMReX or Thrust starts. A mangled name is first demangled.

What is noise, and goes: return types, parameters, other template arguments, versioned namespaces (CUB_200802_NS), tile
sizes, pipeline stages, layouts, architectures (sm90, ampere), split-K and epilogue marks of libraries, hashes, counters at
the end (triton_poi_fused_add_0), the vectorised and unrolled variants of one ATen operation. A library's products of one
type are one family: their names change with every version and every shape, and nobody but the library chooses them.

After a change that gives names another key, `manage.py families --again` puts the kernels that are there into their families;
what people merged, split and renamed stays with the keys and names it was said of.

Sources: Itanium C++ ABI (mangled names); ATen/native/cuda/{Loops,CUDALoops,Reduce}.cuh (which functor a kernel computes);
NCCL's src/device/generate.py (ncclDevKernel_Coll_RedOp_Type_Algo_Proto); names as they stand in the corpus.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

from profiles.ingest.naming.label_tree import computes
from profiles.ingest.naming.names import family, is_collective, laid_out, readable, strip_parameters

# The element type that a kernel's name states: template arguments, a lambda's parameter, a library's own letters.

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
    for text in (*(lambda_text for lambda_text in reversed(lambdas) if not _LOOP.match(lambda_text)), arguments):
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


MAX_CHARS = 160                 # of a function
MOST_CHARS = 2_500              # of a name and of its parameters that are looked at: patterns cost the square of it
_SEPARATOR = "\N{INFORMATION SEPARATOR ONE}"


@dataclass(frozen=True)
class Identity:
    """`dtype` "" where the name does not state it, `op` "" where the name does not say what it does."""

    function: str
    op: str
    dtype: str

    @property
    def key(self) -> str:
        """Return what `FamilyRule` rows are found by.

        The operation follows from the function.
        """
        return f"{self.function}{_SEPARATOR}{self.dtype}"

    @property
    def label(self) -> str:
        return f"{self.function} · {self.dtype}" if self.dtype else self.function


# Products and convolutions of libraries: pattern in the whole name -> function, operation. The first that is found.
_LIBRARY = tuple((re.compile(pattern), function, op) for pattern, function, op in (
    (r"splitK_?[rR]educe", "cuBLAS split-K reduction", "reduce"),
    (r"sdpa_\w{0,120}?(bprop|bwd)", "cuDNN attention backward", "attention"),
    (r"_sdpa_|cudnn\w{0,120}?(fmha|attention)", "cuDNN attention forward", "attention"),
    (r"flash_bwd|flash_\w{0,60}?backward", "flash attention backward", "attention"),
    (r"flash_fwd|flash_\w{0,60}?forward", "flash attention forward", "attention"),
    (r"fmha_cutlassB", "memory-efficient attention backward", "attention"),
    (r"fmha_cutlassF|AttentionKernel", "memory-efficient attention forward", "attention"),
    (r"(?i)xmma_dgrad|conv\w{0,60}?dgrad|dgrad_engine|dgrad2d|Dgrad", "cuDNN convolution, data gradient", "convolution"),
    (r"(?i)xmma_wgrad|conv\w{0,60}?wgrad|wgrad_alg|wgrad2d|winograd\w{0,60}?Wgrad|Wgrad",
     "cuDNN convolution, weight gradient", "convolution"),
    (r"xmma_fprop|scudnn_|hcudnn_|implicit_convolve|cudnn::winograd|winograd|ImplicitGemmConvolution|conv2d_|fprop",
     "cuDNN convolution, forward", "convolution"),
    (r"\bgemv|gemvx?::|cublasGemv|gemv2", "cuBLAS GEMV", "matmul"),
    (r"Cijk_", "Tensile GEMM", "matmul"),
    (r"nvjet_|xmma_gemm|\b(?:ampere|volta|turing|maxwell|hopper|pascal)_\w{0,60}?gemm|cublas\w{0,60}?[gG]emm|gemmSN|gemmk1_|gemm_largek",
     "cuBLAS GEMM", "matmul"),
    (r"cutlass\w{0,40}?_(?:tensorop|simt|wmma)_\w{0,40}?gemm|cutlass\w{0,40}?::\w{0,40}?(?:device_kernel|Kernel2?)<.*[gG]emm",
     "CUTLASS GEMM", "matmul"),
))
_ATEN = re.compile(r"(?:^|::|\s)(vectorized_elementwise_kernel|unrolled_elementwise_kernel\w*"
                   r"|elementwise_kernel(?:_manual_unroll|_with_index)?|legacy_elementwise_kernel|reduce_kernel|multi_tensor_apply_kernel|index_elementwise_kernel"
                   r"|_scatter_gather_elementwise_kernel|distribution_elementwise_grid_stride_kernel)(?=$|[<\s])")
_DOES = {"reduce_kernel": "reduce", "multi_tensor_apply_kernel": "multi-tensor", "index_elementwise_kernel": "indexed",
         "_scatter_gather_elementwise_kernel": "scatter gather", "distribution_elementwise_grid_stride_kernel": "random"}
_COMPUTES = re.compile(r"\w*(?:[Ff]unctor\w*|_kernel_cuda|_cuda_kernel|_kernel_impl|_kernel|CUDAKernelImpl|Ops|_out)(?![\w])"
                       r"|(?:launch_\w+|arange_cuda_out|\w+_gpu)(?=\()")
_NO_COMPUTATION = re.compile(r"gpu_kernel_impl\w*|opmath\w*|func_wrapper_t|elementwise_kernel\w*|gpu_index_kernel"
                             r"|.*elementwise_kernel|.*internal_kernel|(?:Unary|Binary|AUnary|BUnary|Ternary)(?:Op\w*)?Functor|.*_elementwise_\w*kernel"
                             r"|uniform_kernel|\w*Op(?:Scalar|List|Lists)?\w*Functor")
_AFFIX = re.compile(r"^CUDAFunctor(?:OnSelf|OnOther)?_|^launch_|(?:CUDA)?KernelImpl$|_tensor_scalar_kernel_impl$|_kernel_impl$"
                    r"|_kernel_cuda$|_cuda_kernel$|_cuda_out$|_kernel$|[Ff]unctor$|_functor$|Ops$|_gpu$")
_COLLECTIVE = re.compile(r"(?:nccl|rccl|msccl)\w{0,80}?(AllReduce|AllGather|ReduceScatter|Broadcast|SendRecv|AllToAll|Reduce)",
                         re.IGNORECASE)
_VERSIONED = re.compile(r"(?:at_cuda_detail::|at::cuda::)(?=cub::)|at::native::|(?:CUB|ROCPRIM|THRUST)_\w*?NS::"
                        r"|(?<=cudnn)_(?:infer|train)\b|cask_(?=cudnn)|vllm::|(?<=CatArrayBatchedCopy)_\w+|(?<=::)detail::|cudnn::\w+::(?=nc?hw\w*To)")
_CLONE = re.compile(r"(?:\s*\[clone [^\]]*\]|\.kd)+$")
_TAIL = re.compile(r"(?:_\d+)+$|_0d1d\w*$|(?:_\d+d\d*c?)+$|__\w*_0x[0-9a-f]+$")
_TRITON = re.compile(r"^triton_(?:poi|red|per|tem|for|unk|mm|spl)\w*")


@lru_cache(maxsize=16384)
def identity(name: str) -> Identity:
    """Return what a kernel's name, mangled or not, says it is. Never empty."""
    text = plain_casts(readable(name) if name.startswith("_Z") else name.strip())
    text = text.removeprefix("typeinfo name for ")
    text = text[:-200] + _CLONE.sub("", text[-200:])
    head = strip_parameters(text)
    head, text = head[:MOST_CHARS], head[:MOST_CHARS] + text[len(head):][:MOST_CHARS]
    function, op = _function(head, text)
    function = re.sub(r"\s+", " ", function.replace(_SEPARATOR, " ")).strip() or name.strip()[:MAX_CHARS] or "(no name)"
    return Identity(function[:MAX_CHARS], op or operation(function), dtype(text, head))


def _function(head: str, text: str) -> tuple[str, str]:
    """What the kernel is called, and its operation where the way it was found says it."""
    match = _COLLECTIVE.search(head) if is_collective(head) else None
    if match:
        vendor = "RCCL" if head.lower().lstrip("void ").startswith("rccl") else "NCCL"
        return f"{vendor} {match[1]}", "communication"
    for pattern, function, op in _LIBRARY:
        if pattern.search(head):
            return function, op
    if head.startswith("_Z"):
        return _split_mangled(head)
    kernel = _ATEN.search(_before_arguments(head))
    if kernel:
        return _aten(kernel[1], head)
    if _TRITON.match(head):
        return _TAIL.sub("", head), ""
    function = _TAIL.sub("", family(_VERSIONED.sub("", text))) or head
    launched, arguments = computes(laid) if not isinstance(laid := laid_out(text), str) else ("", "")
    return f"{launched or function} {arguments}".strip(), ""


def _before_arguments(head: str) -> str:
    """`void at::native::reduce_kernel<…>` -> `void at::native::reduce_kernel`, unnamed namespaces aside."""
    return re.sub(r"\(anonymous namespace\)::|<unnamed>::", "", head).split("<", 1)[0]


def _aten(kernel: str, head: str) -> tuple[str, str]:
    """"elementwise add": what ATen's loop kernels compute, whichever of them runs it."""
    does = next((word for part, word in _DOES.items() if kernel.startswith(part)), "elementwise")
    computes = [name for name in _COMPUTES.findall(head.split("<", 1)[-1]) if not _NO_COMPUTATION.fullmatch(name)]
    if not computes:                                                 # std::plus<float>, Sqrt<float>
        computes = re.findall(r"std::(plus|minus|multiplies|divides)<|native::([A-Z][a-z]+\w*)<", head)
        computes = ["".join(pair) for pair in computes if "".join(pair) not in ("ReduceOp", "OpaqueType", "Memory")]
    what = _words(computes[-1]) if computes else ""
    return f"{does} {what}".strip(), {"reduce": "reduce", "random": "random"}.get(does, "elementwise")


def _words(functor: str) -> str:
    """"MulFunctor" -> "mul", "CompareEqFunctor" -> "compare eq", "GeluBackwardCUDAKernelImpl" -> "gelu backward"."""
    bare = functor
    while (shorter := _AFFIX.sub("", bare)) and shorter != bare:
        bare = shorter
    spaced = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", " ", bare.strip("_"))
    return spaced.replace("_", " ").lower()


_WORD = re.compile(r"([1-9][0-9]?)(?=[A-Za-z_])")


def _split_mangled(head: str) -> tuple[str, str]:
    """The same of a mangled name (Itanium C++ ABI): names stand behind their length, `_ZN` begins a qualified one. The last of
    the first run of names is the kernel, those behind it are its arguments."""
    runs: list[list[str]] = [[]]
    position = head.index("Z") + 1
    while position < len(head) and sum(map(len, runs)) < 60:
        match = _WORD.match(head, position)
        word = head[match.end():match.end() + int(match[1])] if match else ""
        if match and re.fullmatch(r"[A-Za-z_]\w*", word):
            runs[-1].append(word)
            position = match.end() + len(word)
        else:
            if runs[-1]:
                runs.append([])
            position += 1
    own = [word for word in runs[0] if not word.startswith("_GLOBAL__N_")]
    if not own:
        return head, ""
    inner = [word for run in runs[1:] for word in run if word not in NAMESPACES]
    if _ATEN.search(own[-1]):
        return _aten(own[-1], "<" + ",".join(f"{name}(" if name.startswith("launch_") else name for name in inner))
    qualified = "::".join(word for word in own if word != "detail")
    return _TAIL.sub("", family(_VERSIONED.sub("", qualified))), ""


# Words in a function's name -> what it does; the first that is found. "": unknown.
_OPERATIONS = (
    ("communication", r"nccl|rccl|allreduce|allgather|alltoall|reducescatter|deep_ep"),
    ("attention", r"attention|attn|fmha|sdpa|flash"),
    ("softmax", r"softmax"),
    ("norm", r"layer_?norm|rms_?norm|batch_?norm|bn_[fb]w|group_?norm|welford|gammabeta|rowwisemoments"),
    ("convolution", r"conv|im2col|im3d2col|winograd"),
    ("matmul", r"(?<!fb)gemm|matmul|_mm\b|\bmm_|addmm|gemv"),
    ("elementwise", r"rotary"),
    ("embedding", r"embedding|indexselect|index_select"),
    ("sort", r"sort|topk"),
    ("scan", r"scan|cumsum|cumprod"),
    ("optimizer", r"adam|sgd|adagrad|lamb|lerp|addcmul|addcdiv"),
    ("pooling", r"pool"),
    ("dropout", r"dropout"),
    ("copy", r"copy|cat_?array|transpose|nchwto|nhwcto|permute|contig"),
    ("fill", r"fill|memset|initialize|\bzero"),
    ("reduce", r"reduce|reduction|\bsum\b|\bdot\b|_dot\b|triton_(?:red|per)_"),
    ("random", r"random|philox|curand|dropout_gen"),
    ("elementwise", r"elementwise|_poi_|pointwise|(?:^|_|\b)(?:add|mul)(?:_|\b)|relu|gelu|silu|sigmoid|tanh|swiglu"),
)
_OPERATION = tuple((op, re.compile(words, re.IGNORECASE)) for op, words in _OPERATIONS)


def operation(function: str) -> str:
    """Return what a function's name says it does, "" where it says nothing known."""
    return next((op for op, words in _OPERATION if words.search(function)), "")
