// Words of CUDA that a host compiler passes over, in place of CUDA's own header, whose guard this one defines.
#pragma once
#define __HOST_DEFINES_H__
#define __no_return__ __attribute__((noreturn))
#define __forceinline__ inline
#define __inline_hint__
#define __align__(n) __attribute__((aligned(n)))
#define __thread__ __thread
#define __import__
#define __export__
#define __cdecl
#define __annotate__(...)
#define __location__(...)
#define CUDARTAPI
#define CUDARTAPI_CDECL
#define CUDAAPI
#define CUDACB
#define __host__
#define __device__
#define __global__
#define __shared__
#define __constant__
#define __managed__
#define __grid_constant__
#define __launch_bounds__(...)
#define __maxnreg__(...)
#define __cluster_dims__(...)
#define __block_size__(...)
#define __device_builtin__
#define __device_builtin_texture_type__
#define __device_builtin_surface_type__
#define __cudart_builtin__
#define __nv_pure__
#define __builtin_align__(n) __align__(n)
#define _CUDA_VSTD std
#define __CUDA_ARCH_HAS_FEATURE__(...) 0
