"""Words in the names of C++ kernels by what they say about a kernel: libraries, functors, types, launchers, noise."""

from __future__ import annotations

import re

FILLER = frozenset({
    "at", "native", "std", "cuda", "c10", "detail", "internal", "binary_internal", "cub", "cutlass", "thrust", "cuda_cub", "core",
    "Kokkos", "Impl", "impl", "RAJA", "policy", "sycl", "_V1", "__1", "__detail", "hip", "rocprim", "hipcub", "amrex", "Gpu",
    "kernel", "collective", "cute", "gemm", "threadblock", "warp", "arch", "epilogue", "thread", "layout", "experimental",
    "at_cuda_detail", "pytorch_flash", "templates", "system", "__", "functional", "fusion", "device", "cudnn"})
LIBRARIES = frozenset({"cub", "thrust", "cudnn", "cutlass", "rocprim", "hipcub", "amrex", "Kokkos", "RAJA"})
VERSIONED = re.compile(r"(?:CUB|THRUST|ROCPRIM|HIPCUB|CCCL|V)_\w*NS|_V\d+|__\d+|v\d+_\d+\w*")
GENERIC = re.compile(r"(?:functor|Functor|type|value_type|Policy\d*|operator@call|impl|Kernel|kernel|apply|run|main|body|Body|call"
                     r"|launch|compute|execute|Agent|Tag\w*|Params)\Z")
FUNCTOR = re.compile(r"[Ff]unctor")
CALLABLE = re.compile(r"[Ff]unctor|(?:Op|Ops|Body|Loop|_op|_functor)\Z"
                      r"|\A(?:plus|minus|multiplies|maximum|minimum|less|greater|Sum|Min|Max|ArgMax|ArgMin|Sqrt)\Z")
NOISE = re.compile(r"(?:"
                   r"\w*(?:Policy\w*|[Ii]terator\w*|OffsetCalculator|(?:integer|index)_sequence|TileState|Params\w*|Accessor\w*|Metadata\w*)"
                   r"|Array|array|Load\w*|Store\w*|NullType|InputValue|HardwareInfo|CompilerMetadata|\w*KernelContext|_"
                   r"|cublasGemv\w+|biasType|KernelInfo|MemoryAccess|always_true|Launch(?:Bounds|Params)\w*|Default\w*|identity"
                   r"|iteration_mapping\w*|IndexGlobal|\w*[Ss]tyle|Extruded|HIPBuffer|DeviceMemory|NDRange|OneTo"
                   r"|CartesianIndices|AlignedArray|\w*_exec\w*|Tuple|Layout|TiledMMA|MMA_Atom|SM\d+_\w+|\w*Swizzle"
                   r"|ComposedLayout|Direct|FunctorAnalysis|\w*_tag|PersistentScheduler|Cuda|HIP|SYCL|Experimental|T\d+)\Z")
TYPE = re.compile(r"(?:float|double|half|bool|char|short|int|long|__half2?|Half|BFloat16|__nv_bfloat16\w*|__hip_bfloat16|half_t"
                  r"|bfloat16_t|tfloat32_t|float_e\w+|Float8_\w+|__nv_fp8_\w+|Float\d+|Int\d+|UInt\d+|u?int\d+_t|complex"
                  r"|_Float16|__bf16|unsigned \w+|signed char|long long|unsigned|float\d|double\d|int\d)\Z")
INDEX = re.compile(r"(?:unsigned |signed )?(?:int|long|short|char)(?: long| int)?\Z|u?int\d+_t\Z|U?Int\d+\Z|unsigned\Z|bool\Z")
NUMBER = re.compile(r"-?\d[\w.]*\Z|true\Z|false\Z")
TILE = re.compile(r"\w*(?:Shape|tuple|Int|sequence)\Z")
CONSTANT = re.compile(r"(?:C|Int|constant|integral_constant)\Z")
WRAPPER = re.compile(r"(?:gpu_kernel_impl\w*|gpu_kernel\w*|opmath_\w+|func_wrapper_t|ReduceOp|__nv_h?dl_wrapper_t"
                     r"|__pf_kernel_wrapper|RoundedRangeKernel\w*|_?kernel_agent|unary_transform_f|binary_transform_f"
                     r"|wrapped_function|device_unary_op)\Z")
LAUNCHER = re.compile(r"(?:(?:cuda|hip|sycl)_parallel_launch\w*|launch_global|_kernel_agent|trampoline_kernel|device_kernel"
                      r"|Kernel2?|kernel_helper_with_policy|__pf_kernel_wrapper|RoundedRangeKernel\w*|kentry)\Z")
JULIA = re.compile(r"\b(?:CompilerMetadata|CuDeviceArray|ROCDeviceArray|oneDeviceArray|MtlDeviceArray|CuKernelContext"
                   r"|Broadcasted)<|\bCuKernelContext\b")
