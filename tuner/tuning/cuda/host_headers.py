"""Headers of a host compiler that kernel files include and NVRTC has none of: what device code uses of them, from libcu++.

As NVIDIA's Jitify does it: names of the C and C++ standard headers are answered with a few lines, so that a file whose kernel needs
none of the host's library compiles as it is.
"""

from __future__ import annotations

import tempfile
from functools import cache
from pathlib import Path

_STD = "#pragma once\n#include <cuda/std/{0}>\nnamespace std {{ using namespace cuda::std; }}\n"
_INTEGERS = ("#pragma once\n#include <cuda/std/cstdint>\n"
             + "".join(f"using ::cuda::std::{sign}int{bits}_t;\n" for bits in (8, 16, 32, 64) for sign in ("", "u"))
             + "namespace std { using namespace cuda::std; }\n")
_NOTHING = "#pragma once\n"
_NUMBERS = "#pragma once\n#include <cuda_fp16.h>\n#include <cuda_bf16.h>\n"          # which cuBLAS's own headers include
# cub/cub.cuh itself refuses NVRTC: what runs within a block, a warp or a thread of it
_CUB = "#pragma once\n" + "".join(f"#include <cub/{name}.cuh>\n" for name in (
    "block/block_reduce", "block/block_scan", "block/block_load", "block/block_store", "block/block_radix_sort",
    "block/block_exchange", "warp/warp_reduce", "warp/warp_scan"))
# operators that CUB had before its version 3
EARLIER_CUB = "ridgepoint_earlier_cub.h"
_EARLIER_CUB = """#pragma once
#include <cub/version.cuh>
#if CUB_MAJOR_VERSION >= 3
#include <cuda/functional>
#include <cuda/std/functional>
namespace cub {
using Sum = ::cuda::std::plus<>;
using Max = ::cuda::maximum<>;
using Min = ::cuda::minimum<>;
using Difference = ::cuda::std::minus<>;
using Division = ::cuda::std::divides<>;
using Equality = ::cuda::std::equal_to<>;
using Inequality = ::cuda::std::not_equal_to<>;
}
#endif
"""
# what methods of a type that only the host calls name; none of it runs
_STRING = """#pragma once
namespace std {
struct string {
  __host__ __device__ constexpr string(const char * = "") {}
  __host__ __device__ constexpr string operator+(const string &) const { return {}; }
  __host__ __device__ constexpr string &operator+=(const string &) { return *this; }
  __host__ __device__ constexpr const char *c_str() const { return ""; }
};
__host__ __device__ constexpr string operator+(const char *, const string &) { return {}; }
template <class T> __host__ __device__ constexpr string to_string(T) { return {}; }
}
"""
# as well
_VECTOR = """#pragma once
namespace std {
template <class T, class A = void> struct vector {
  using value_type = T;
  __host__ __device__ T *data() const { return nullptr; }
  __host__ __device__ T *begin() const { return nullptr; }
  __host__ __device__ T *end() const { return nullptr; }
  __host__ __device__ unsigned long long size() const { return 0; }
  __host__ __device__ bool empty() const { return true; }
  __host__ __device__ T &operator[](unsigned long long) const { return *data(); }
};
}
"""
FLOATS = """#pragma once
#ifndef FLT_MAX
#define FLT_MAX 3.402823466e+38F
#define FLT_MIN 1.175494351e-38F
#define FLT_EPSILON 1.192092896e-07F
#define DBL_MAX 1.7976931348623158e+308
#define DBL_EPSILON 2.2204460492503131e-16
#endif
"""
INTEGER_LIMITS = """#pragma once
#ifndef INT_MAX
#define INT_MAX 2147483647
#define INT_MIN (-INT_MAX - 1)
#define UINT_MAX 4294967295u
#define LLONG_MAX 9223372036854775807LL
#define CHAR_BIT 8
#endif
"""
# what device code uses of PyTorch's headers, which a run-time compiler cannot read: number types and macros
TORCH = """#pragma once
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>
#include <cuda_fp16.h>
#include <cuda_bf16.h>
#define C10_HOST_DEVICE __host__ __device__
#define C10_DEVICE __device__
#define C10_HOST __host__
#define C10_ALWAYS_INLINE __forceinline__
#define C10_LAUNCH_BOUNDS_1(threads) __launch_bounds__(threads)
#define C10_LAUNCH_BOUNDS_2(threads, blocks) __launch_bounds__(threads, blocks)
#define C10_WARP_SIZE 32
#define C10_CUDA_KERNEL_LAUNCH_CHECK()
#define CUDA_KERNEL_ASSERT(holds)
#define TORCH_CHECK(...)
#define STD_TORCH_CHECK(...)
#define TORCH_INTERNAL_ASSERT(...)
#define CUDA_1D_KERNEL_LOOP_TYPE(i, n, T) \\
  for (T i = (T)blockIdx.x * blockDim.x + threadIdx.x; i < (n); i += (T)blockDim.x * gridDim.x)
#define CUDA_1D_KERNEL_LOOP(i, n) CUDA_1D_KERNEL_LOOP_TYPE(i, n, int)
#define CUDA_KERNEL_LOOP(i, n) CUDA_1D_KERNEL_LOOP_TYPE(i, n, int)
namespace c10 {
using Half = __half;
using BFloat16 = __nv_bfloat16;
}
namespace at {
using Half = __half;
using BFloat16 = __nv_bfloat16;
template <class T, bool on_gpu = true> struct AccumulateType { using type = float; };
template <> struct AccumulateType<double, true> { using type = double; };
template <class T, bool on_gpu = true> using acc_type = typename AccumulateType<T, on_gpu>::type;
template <class T> struct OpMathType { using type = float; };
template <> struct OpMathType<double> { using type = double; };
template <class T> using opmath_type = typename OpMathType<T>::type;
namespace native {}
namespace cuda { template <class T, class U> __host__ __device__ constexpr T ATenCeilDiv(T a, U b) { return (a + b - 1) / b; } }
template <class T, class U> __host__ __device__ constexpr T ceil_div(T a, U b) { return (a + b - 1) / b; }
}
namespace at {
struct Tensor {                             // of a struct that a host fills: a kernel reads nothing of it
  template <class T = void> T *data_ptr() const { return nullptr; }
  bool defined() const { return false; }
  int64_t size(int64_t) const { return 0; }
  int64_t numel() const { return 0; }
};
template <class T> struct DefaultPtrTraits { using PtrType = T *; };
template <class T> struct RestrictPtrTraits { using PtrType = T *__restrict__; };
template <class T, size_t N, template <class> class P = DefaultPtrTraits, class I = int64_t> struct TensorAccessor {
  typename P<T>::PtrType data_; const I *sizes_; const I *strides_;
  __device__ TensorAccessor(T *data, const I *sizes, const I *strides) : data_(data), sizes_(sizes), strides_(strides) {}
  __device__ auto operator[](I at) const
  { return TensorAccessor<T, N - 1, P, I>(data_ + strides_[0] * at, sizes_ + 1, strides_ + 1); }
  __device__ I size(I at) const { return sizes_[at]; }
  __device__ I stride(I at) const { return strides_[at]; }
  __device__ T *data() const { return data_; }
};
template <class T, template <class> class P, class I> struct TensorAccessor<T, 1, P, I> {
  typename P<T>::PtrType data_; const I *sizes_; const I *strides_;
  __device__ TensorAccessor(T *data, const I *sizes, const I *strides) : data_(data), sizes_(sizes), strides_(strides) {}
  __device__ T &operator[](I at) const { return data_[strides_[0] * at]; }
  __device__ I size(I at) const { return sizes_[at]; }
  __device__ I stride(I at) const { return strides_[at]; }
  __device__ T *data() const { return data_; }
};
template <class T, size_t N, template <class> class P = DefaultPtrTraits, class I = int64_t> struct GenericPackedTensorAccessor {
  typename P<T>::PtrType data_; I sizes_[N]; I strides_[N];
  __device__ decltype(auto) operator[](I at) const { return TensorAccessor<T, N, P, I>(data_, sizes_, strides_)[at]; }
  __device__ I size(I at) const { return sizes_[at]; }
  __device__ I stride(I at) const { return strides_[at]; }
  __device__ T *data() const { return data_; }
};
template <class T, size_t N, template <class> class P = DefaultPtrTraits>
using PackedTensorAccessor32 = GenericPackedTensorAccessor<T, N, P, int32_t>;
template <class T, size_t N, template <class> class P = DefaultPtrTraits>
using PackedTensorAccessor64 = GenericPackedTensorAccessor<T, N, P, int64_t>;
template <class T, size_t N, template <class> class P = DefaultPtrTraits, class I = int64_t>
using PackedTensorAccessor = GenericPackedTensorAccessor<T, N, P, I>;
}
namespace torch { using namespace at; }
namespace at { template <class T> using numeric_limits = std::numeric_limits<T>; }
template <class T> __device__ void gpuAtomicAdd(T *to, T by) { atomicAdd(to, by); }
template <class T> __device__ void gpuAtomicAddNoReturn(T *to, T by) { atomicAdd(to, by); }
template <class T> __device__ T WARP_SHFL(T v, int from, int width = 32, unsigned mask = 0xffffffff)
{ return __shfl_sync(mask, v, from, width); }
template <class T> __device__ T WARP_SHFL_XOR(T v, int by, int width = 32, unsigned mask = 0xffffffff)
{ return __shfl_xor_sync(mask, v, by, width); }
template <class T> __device__ T WARP_SHFL_DOWN(T v, unsigned by, int width = 32, unsigned mask = 0xffffffff)
{ return __shfl_down_sync(mask, v, by, width); }
template <class T> __device__ T WARP_SHFL_UP(T v, unsigned by, int width = 32, unsigned mask = 0xffffffff)
{ return __shfl_up_sync(mask, v, by, width); }
"""
HEADERS = {
    "ridgepoint_torch.h": TORCH,
    "ridgepoint_types.h": "#pragma once\nnamespace std {}\n"
                          "typedef unsigned char uchar; typedef unsigned short ushort; typedef unsigned int uint;\n"
                          "typedef unsigned long ulong;\n"          # as glibc's sys/types.h has them
                          "typedef signed char int8_t; typedef short int16_t; typedef int int32_t;\n"
                          "typedef signed long long int64_t;\n"
                          "typedef unsigned char uint8_t; typedef unsigned short uint16_t; typedef unsigned int uint32_t;\n"
                          "typedef unsigned long long uint64_t;\n"
                          "#define __asm__ asm\n#define __volatile__ volatile\n"          # as GCC spells them
                          "#ifndef WITH_CUDA\n#define WITH_CUDA 1\n#endif\n"        # of extensions that are built for CPUs as well
                          "#define INFINITY __int_as_float(0x7f800000)\n#define NAN __int_as_float(0x7fffffff)\n"
                          "#define M_PI 3.14159265358979323846\n#define M_PI_F 3.14159265f\n"
                          "#define M_SQRT2 1.41421356237309504880\n#define M_LOG2E 1.44269504088896340736\n",     # math.h
    **{name: _STD.format(name) for name in ("algorithm", "array", "limits", "type_traits", "utility", "tuple", "functional",
                                            "cmath", "complex", "cstddef", "numeric", "optional", "variant", "bitset",
                                            "span", "atomic", "initializer_list", "ratio")},
    "cub/cub.cuh": _CUB, EARLIER_CUB: _EARLIER_CUB,
    "cublas_v2.h": _NUMBERS, "cublasLt.h": _NUMBERS,
    "cstdint": _INTEGERS, "stdint.h": _INTEGERS,
    "string": _STRING, "vector": _VECTOR,
    "float.h": FLOATS, "cfloat": FLOATS, "limits.h": INTEGER_LIMITS, "climits": INTEGER_LIMITS,
    # nothing of these is device code but printf and assert, which NVRTC knows by itself
    **dict.fromkeys((
        "stdio.h", "cstdio", "stdlib.h", "cstdlib", "assert.h", "cassert", "string.h", "cstring", "math.h", "iostream",
        "map", "memory", "random", "chrono", "iomanip", "fstream", "sstream", "stdexcept", "time.h", "stdbool.h",
        "stddef.h", "unistd.h", "curand.h", "omp.h", "helper_cuda.h", "helper_functions.h",
        "nvtx3/nvToolsExt.h"), _NOTHING),
}
# of CUDA's own that only a host compiles: left out, as headers are that nothing has
OF_HOST = {"curand.h", "cufft.h", "cusparse.h", "cusolverDn.h", "cuda_gl_interop.h", "cuda_profiler_api.h"}
FOLDERS_OF_TORCH = ("torch/", "ATen/", "c10/", "THC/")
FOLDERS_OF_HOST = ("thrust/", "cub/device/", "pybind11/", *FOLDERS_OF_TORCH)


@cache
def folder() -> tempfile.TemporaryDirectory[str]:
    """Return a folder with these headers, the same one for the life of this process."""
    directory = tempfile.TemporaryDirectory(prefix="ridgepoint-headers-")
    for name, text in HEADERS.items():
        place = Path(directory.name, name)
        place.parent.mkdir(exist_ok=True)
        place.write_text(text)
    return directory
