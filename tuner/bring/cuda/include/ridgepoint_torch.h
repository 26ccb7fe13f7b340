// PyTorch's tensors in what a host function takes, asks and returns; streams and guards of a GPU that is not there.
#pragma once
#define RIDGEPOINT_TORCH 1
#include <torch/types.h>
#include <ATen/AccumulateType.h>
#include <ATen/Dispatch.h>
#include <ATen/Dispatch_v2.h>
#include <ATen/OpMathType.h>
#include <ATen/ceil_div.h>
#include <ATen/core/TensorAccessor.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <mutex>

#include "ridgepoint_record.h"

namespace ridgepoint {

template <> struct Number<c10::Half> : std::true_type {};
template <> struct Number<c10::BFloat16> : std::true_type {};

// Python gives a tensor by the address of its implementation: ("tensor", address); None for one that is not there.
template <> struct From<at::Tensor> {
  static at::Tensor get(PyObject *one) {
    if (one == Py_None) return {};
    auto *impl = static_cast<c10::TensorImpl *>(PyLong_AsVoidPtr(one));
    if (PyErr_Occurred()) throw Told("a tensor");
    return at::Tensor::wrap_tensor_impl(c10::intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl>::unsafe_reclaim_from_nonowning(impl));
  }
};
template <> struct From<at::Scalar> {
  static at::Scalar get(PyObject *one) { return PyFloat_Check(one) ? at::Scalar(PyFloat_AsDouble(one)) : at::Scalar((int64_t)PyLong_AsLongLong(one)); }
};
template <> struct From<at::ScalarType> {
  static at::ScalarType get(PyObject *one) { return static_cast<at::ScalarType>(PyLong_AsLong(one)); }
};
template <> struct From<at::Device> { static at::Device get(PyObject *) { return at::Device(at::kCUDA, 0); } };
template <class T> struct Held<c10::ArrayRef<T>> { using type = std::vector<T>; };
template <class T> struct Held<const c10::ArrayRef<T> &> { using type = std::vector<T>; };
template <> struct Held<std::string_view> { using type = std::string; };
template <> struct Result<at::Tensor> {
  static void add(PyObject *found, const at::Tensor &one) {
    if (!one.defined() || !one.has_storage()) return;
    PyObject *address = PyLong_FromVoidPtr(one.data_ptr());
    PyList_Append(found, address);
    Py_DECREF(address);
  }
};

// One GPU, on which nothing is queued.
template <c10::DeviceType kind> struct NoGuard final : c10::impl::DeviceGuardImplInterface {
  c10::DeviceType type() const override { return kind; }
  c10::Device exchangeDevice(c10::Device) const override { return c10::Device(kind, 0); }
  c10::Device getDevice() const override { return c10::Device(kind, 0); }
  void setDevice(c10::Device) const override {}
  void uncheckedSetDevice(c10::Device) const noexcept override {}
  c10::Stream getStream(c10::Device) const noexcept { return c10::Stream(c10::Stream::DEFAULT, c10::Device(kind, 0)); }
  c10::Stream exchangeStream(c10::Stream) const noexcept { return c10::Stream(c10::Stream::DEFAULT, c10::Device(kind, 0)); }
  c10::DeviceIndex deviceCount() const noexcept override { return 1; }
};
inline NoGuard<c10::DeviceType::CUDA> no_guard;
inline c10::impl::DeviceGuardImplRegistrar registered_guard(c10::DeviceType::CUDA, &no_guard);

}  // namespace ridgepoint

namespace c10::cuda {
struct CUDAStream {
  operator cudaStream_t() const { return nullptr; }
  operator c10::Stream() const { return unwrap(); }
  cudaStream_t stream() const { return nullptr; }
  c10::Stream unwrap() const { return c10::Stream(c10::Stream::DEFAULT, c10::Device(c10::kCUDA, 0)); }
  c10::DeviceIndex device_index() const { return 0; }
  c10::Device device() const { return c10::Device(c10::kCUDA, 0); }
  c10::StreamId id() const { return 0; }
  void synchronize() const {}
  bool query() const { return true; }
};
inline CUDAStream getCurrentCUDAStream(c10::DeviceIndex = -1) { return {}; }
inline CUDAStream getDefaultCUDAStream(c10::DeviceIndex = -1) { return {}; }
inline CUDAStream getStreamFromPool(bool = false, c10::DeviceIndex = -1) { return {}; }
inline void setCurrentCUDAStream(CUDAStream) {}
struct CUDAGuard {
  template <class... A> explicit CUDAGuard(const A &...) {}
  template <class T> void set_device(const T &) {}
  template <class T> void set_index(const T &) {}
};
struct OptionalCUDAGuard {
  template <class... A> explicit OptionalCUDAGuard(const A &...) {}
  template <class T> void set_device(const T &) {}
  template <class T> void set_index(const T &) {}
};
struct CUDAStreamGuard { template <class... A> explicit CUDAStreamGuard(const A &...) {} };
inline c10::DeviceIndex current_device() { return 0; }
inline cudaError_t GetDevice(c10::DeviceIndex *device) { *device = 0; return cudaSuccess; }
inline cudaError_t SetDevice(c10::DeviceIndex, bool = false) { return cudaSuccess; }
inline cudaError_t MaybeSetDevice(c10::DeviceIndex) { return cudaSuccess; }
inline c10::DeviceIndex ExchangeDevice(c10::DeviceIndex) { return 0; }
inline c10::DeviceIndex MaybeExchangeDevice(c10::DeviceIndex) { return 0; }
inline c10::DeviceIndex device_count() { return 1; }
inline void set_device(c10::DeviceIndex) {}
inline void device_synchronize() {}
inline int warp_size() { return 32; }
namespace CUDACachingAllocator { inline void emptyCache() {} inline void *raw_alloc(size_t bytes) { return ridgepoint::allocate(bytes); } inline void raw_delete(void *) {} }
}  // namespace c10::cuda

namespace at::cuda {
using namespace c10::cuda;
inline cudaDeviceProp *getCurrentDeviceProperties() {
  static cudaDeviceProp told;
  if (!told.warpSize) (void)cudaGetDeviceProperties(&told, 0);
  return &told;
}
inline cudaDeviceProp *getDeviceProperties(c10::DeviceIndex) { return getCurrentDeviceProperties(); }
inline bool is_available() { return true; }
inline void *getCurrentCUDABlasHandle() { return nullptr; }
inline void *getCurrentCUDABlasLtHandle() { return nullptr; }
inline void *getCurrentCUDASparseHandle() { return nullptr; }
inline void *getCurrentCUDASolverDnHandle() { return nullptr; }
inline int warp_size() { return 32; }
inline dim3 getApplyBlock(int most = 512) { return dim3(most); }
template <int step = 1> bool getApplyGrid(uint64_t n, dim3 &grid, c10::DeviceIndex, int most = 512) {
  grid = dim3(unsigned((n + uint64_t(most) * step - 1) / (uint64_t(most) * step)));
  return true;
}
template <class T, class U> constexpr T ATenCeilDiv(T a, U b) { return (a + b - 1) / b; }
namespace detail {
template <class T, class I> struct TensorInfo {
  T *data; I sizes[25]; I strides[25]; int dims;
  TensorInfo() : data(nullptr), dims(0) {}
};
template <class T, class I> TensorInfo<T, I> getTensorInfo(const at::Tensor &of) {
  TensorInfo<T, I> told;
  told.data = (T *)of.data_ptr(), told.dims = of.dim();
  for (int at = 0; at < told.dims; at++) told.sizes[at] = of.size(at), told.strides[at] = of.stride(at);
  return told;
}
enum { CUDA_NUM_THREADS = 1024 };
inline int GET_BLOCKS(int64_t n, int64_t most = CUDA_NUM_THREADS) { return int((n - 1) / most + 1); }
inline int getDefaultCUDAGenerator(int = -1) { return 0; }
inline bool canUse32BitIndexMath(const at::Tensor &of, int64_t most = 2147483647) { return of.numel() < most; }
}  // namespace detail
}  // namespace at::cuda
namespace at {
template <class T> struct RestrictPtrTraits { using PtrType = T *; };
namespace native {}
// Random numbers of a GPU: a seed and a place in its sequence.
struct PhiloxCudaState {
  union { uint64_t val; int64_t *ptr; } seed_{}, offset_{};
  uint32_t offset_intragraph_ = 0;
  bool captured_ = false;
};
struct CUDAGeneratorImpl {
  std::mutex mutex_;
  PhiloxCudaState philox_cuda_state(uint64_t) { return {}; }
  std::pair<uint64_t, uint64_t> philox_engine_inputs(uint64_t) { return {0, 0}; }
  uint64_t current_seed() { return 0; }
};
template <class T, class... A> T *ridgepoint_generator(A &&...) { static T one; return &one; }
}  // namespace at
struct THCState;
inline cudaStream_t THCState_getCurrentStream(THCState *) { return nullptr; }
#define get_generator_or_default ridgepoint_generator
#define check_generator ridgepoint_generator

#define AT_CUDA_CHECK(...) ((void)(__VA_ARGS__))
#define C10_CUDA_CHECK(...) ((void)(__VA_ARGS__))
#define C10_CUDA_ERROR_HANDLED(...) (__VA_ARGS__)
#define C10_CUDA_IGNORE_ERROR(...) ((void)(__VA_ARGS__))
#define C10_CUDA_KERNEL_LAUNCH_CHECK() ((void)0)
#define TORCH_CUDABLAS_CHECK(...) ((void)(__VA_ARGS__))
#define TORCH_CUDASPARSE_CHECK(...) ((void)(__VA_ARGS__))
#define TORCH_CUSOLVER_CHECK(...) ((void)(__VA_ARGS__))
#define AT_CUDA_DRIVER_CHECK(...) ((void)(__VA_ARGS__))
#define C10_CUDA_CHECK_WARN(...) ((void)(__VA_ARGS__))
#define CUDA_KERNEL_ASSERT_MSG(...) ((void)0)
#define STD_CUDA_CHECK(...) ((void)(__VA_ARGS__))
#define STD_CUDA_KERNEL_LAUNCH_CHECK() ((void)0)
#define THCudaCheck(...) ((void)(__VA_ARGS__))
#define THCCeilDiv(a, b) (((a) + (b) - 1) / (b))
#define TORCH_DSA_KERNEL_LAUNCH(...) static_assert(sizeof(int) == 0, "not read")
#undef AT_CHECK
#define AT_CHECK TORCH_CHECK
#undef AT_ASSERT
#define AT_ASSERT(...) TORCH_CHECK(__VA_ARGS__)
#undef AT_ASSERTM
#define AT_ASSERTM(holds, ...) TORCH_CHECK(holds, ##__VA_ARGS__)
#define TORCH_EXTENSION_NAME ridgepoint_extension
namespace pybind11 {}
namespace py = pybind11;
