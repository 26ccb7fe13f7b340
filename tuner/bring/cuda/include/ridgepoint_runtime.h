// The last lines of what is compiled: CUDA's runtime, answered for one GPU that is not there, and the door for Python.
#pragma once
#include "ridgepoint_record.h"

#include <csetjmp>
#include <csignal>

namespace ridgepoint {
inline sigjmp_buf before_call;
inline std::string why_left;
inline void leave_call(int) { siglongjmp(before_call, 1); }         // what the call held is lost: the process ends soon
enum Target { sms = 132, shared_optin = 232448, major = 9, minor = 0 };
inline int attribute(int which) {
  switch (which) {
    case cudaDevAttrMultiProcessorCount: return sms;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin: return shared_optin;
    case cudaDevAttrMaxSharedMemoryPerBlock: return 49152;
    case cudaDevAttrMaxSharedMemoryPerMultiprocessor: return shared_optin + 1024;
    case cudaDevAttrMaxThreadsPerBlock: case cudaDevAttrMaxBlockDimX: case cudaDevAttrMaxBlockDimY: return 1024;
    case cudaDevAttrMaxBlockDimZ: return 64;
    case cudaDevAttrMaxGridDimX: return 2147483647;
    case cudaDevAttrMaxGridDimY: case cudaDevAttrMaxGridDimZ: return 65535;
    case cudaDevAttrWarpSize: return 32;
    case cudaDevAttrMaxThreadsPerMultiProcessor: return 2048;
    case cudaDevAttrMaxRegistersPerBlock: case cudaDevAttrMaxRegistersPerMultiprocessor: return 65536;
    case cudaDevAttrComputeCapabilityMajor: return major;
    case cudaDevAttrComputeCapabilityMinor: return minor;
    case cudaDevAttrCooperativeLaunch: case cudaDevAttrConcurrentKernels: return 1;
    case cudaDevAttrL2CacheSize: return 50 << 20;
    default: return 0;
  }
}
}  // namespace ridgepoint

extern "C" {
void __assert_fail(const char *what, const char *, unsigned, const char *) noexcept {
  ridgepoint::why_left = std::string("the host asserts ") + what;
  siglongjmp(ridgepoint::before_call, 1);
}
void exit(int) noexcept {
  ridgepoint::why_left = "the host ends the process";
  siglongjmp(ridgepoint::before_call, 1);
}
cudaError_t cudaLaunchKernel(const void *, dim3, dim3, void **, size_t, cudaStream_t) {
  throw std::runtime_error("a kernel is launched by an address that does not tell which it is");
}
cudaError_t cudaMalloc(void **at, size_t bytes) { *at = ridgepoint::allocate(bytes); return cudaSuccess; }
cudaError_t cudaMallocAsync(void **at, size_t bytes, cudaStream_t) { *at = ridgepoint::allocate(bytes); return cudaSuccess; }
cudaError_t cudaMallocManaged(void **at, size_t bytes, unsigned) { *at = calloc(bytes, 1); return cudaSuccess; }
cudaError_t cudaMallocHost(void **at, size_t bytes) { *at = calloc(bytes, 1); return cudaSuccess; }
cudaError_t cudaHostAlloc(void **at, size_t bytes, unsigned) { *at = calloc(bytes, 1); return cudaSuccess; }
cudaError_t cudaFree(void *) { return cudaSuccess; }
cudaError_t cudaFreeAsync(void *, cudaStream_t) { return cudaSuccess; }
cudaError_t cudaFreeHost(void *) { return cudaSuccess; }
cudaError_t cudaMemcpy(void *to, const void *from, size_t bytes, cudaMemcpyKind kind) {
  if (kind == cudaMemcpyHostToDevice && bytes <= ridgepoint::most_held) ridgepoint::hold(to, from, bytes);
  if (kind == cudaMemcpyDeviceToHost) memset(to, 0, bytes), ridgepoint::pass_over("cudaMemcpy from the GPU (zeros here)");
  return cudaSuccess;
}
cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, cudaMemcpyKind kind, cudaStream_t) {
  return cudaMemcpy(to, from, bytes, kind);
}
cudaError_t cudaMemcpyToSymbol(const void *, const void *, size_t, size_t, cudaMemcpyKind) { return cudaSuccess; }
cudaError_t cudaMemcpyToSymbolAsync(const void *, const void *, size_t, size_t, cudaMemcpyKind, cudaStream_t) { return cudaSuccess; }
cudaError_t cudaMemcpyFromSymbol(void *, const void *, size_t, size_t, cudaMemcpyKind) { return cudaSuccess; }
cudaError_t cudaMemset(void *at, int byte, size_t) {
  char content = (char)byte;
  ridgepoint::hold(at, &content, 1);
  return cudaSuccess;
}
cudaError_t cudaMemsetAsync(void *at, int byte, size_t bytes, cudaStream_t) { return cudaMemset(at, byte, bytes); }
cudaError_t cudaGetLastError(void) { return cudaSuccess; }
cudaError_t cudaPeekAtLastError(void) { return cudaSuccess; }
const char *cudaGetErrorString(cudaError_t) { return "no error"; }
const char *cudaGetErrorName(cudaError_t) { return "cudaSuccess"; }
cudaError_t cudaDeviceSynchronize(void) { return cudaSuccess; }
cudaError_t cudaDeviceReset(void) { return cudaSuccess; }
cudaError_t cudaSetDevice(int) { return cudaSuccess; }
cudaError_t cudaGetDevice(int *device) { *device = 0; return cudaSuccess; }
cudaError_t cudaGetDeviceCount(int *count) { *count = 1; return cudaSuccess; }
cudaError_t cudaStreamSynchronize(cudaStream_t) { return cudaSuccess; }
cudaError_t cudaStreamCreate(cudaStream_t *stream) { *stream = nullptr; return cudaSuccess; }
cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned) { *stream = nullptr; return cudaSuccess; }
cudaError_t cudaStreamDestroy(cudaStream_t) { return cudaSuccess; }
cudaError_t cudaStreamWaitEvent(cudaStream_t, cudaEvent_t, unsigned) { return cudaSuccess; }
cudaError_t cudaEventCreate(cudaEvent_t *event) { *event = nullptr; return cudaSuccess; }
cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned) { *event = nullptr; return cudaSuccess; }
cudaError_t cudaEventRecord(cudaEvent_t, cudaStream_t) { return cudaSuccess; }
cudaError_t cudaEventSynchronize(cudaEvent_t) { return cudaSuccess; }
cudaError_t cudaEventDestroy(cudaEvent_t) { return cudaSuccess; }
cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t, cudaEvent_t) { *ms = 1; return cudaSuccess; }
cudaError_t cudaDeviceGetAttribute(int *value, cudaDeviceAttr which, int) { *value = ridgepoint::attribute(which); return cudaSuccess; }
cudaError_t cudaFuncSetAttribute(const void *, cudaFuncAttribute, int) { return cudaSuccess; }
cudaError_t cudaFuncSetCacheConfig(const void *, cudaFuncCache) { return cudaSuccess; }
cudaError_t cudaFuncGetAttributes(cudaFuncAttributes *told, const void *) {
  memset(told, 0, sizeof *told);
  told->maxThreadsPerBlock = 1024, told->numRegs = 32, told->maxDynamicSharedSizeBytes = 49152;
  return cudaSuccess;
}
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, const void *, int threads, size_t shared) {
  int by_threads = 2048 / (threads > 0 ? threads : 1), by_shared = shared ? (int)((ridgepoint::shared_optin + 1024) / (shared + 1024)) : 32;
  *blocks = by_threads < by_shared ? by_threads : by_shared;
  return cudaSuccess;
}
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int *blocks, const void *f, int threads, size_t shared, unsigned) {
  return cudaOccupancyMaxActiveBlocksPerMultiprocessor(blocks, f, threads, shared);
}
cudaError_t cudaDriverGetVersion(int *version) { *version = 13000; return cudaSuccess; }
cudaError_t cudaRuntimeGetVersion(int *version) { *version = 13000; return cudaSuccess; }
cudaError_t cudaMemGetInfo(size_t *free, size_t *total) { *free = *total = (size_t)80 << 30; return cudaSuccess; }
cudaError_t cudaGetDeviceProperties(cudaDeviceProp *told, int) {
  memset(told, 0, sizeof *told);
  strcpy(told->name, "NVIDIA H100 80GB HBM3");
  told->multiProcessorCount = ridgepoint::sms, told->major = ridgepoint::major, told->minor = ridgepoint::minor;
  told->warpSize = 32, told->maxThreadsPerBlock = 1024, told->maxThreadsPerMultiProcessor = 2048;
  told->sharedMemPerBlock = 49152, told->sharedMemPerBlockOptin = ridgepoint::shared_optin;
  told->sharedMemPerMultiprocessor = ridgepoint::shared_optin + 1024, told->regsPerBlock = 65536, told->totalGlobalMem = (size_t)80 << 30;
  told->l2CacheSize = 50 << 20;
  for (int at = 0; at < 3; at++) told->maxThreadsDim[at] = at < 2 ? 1024 : 64, told->maxGridSize[at] = at ? 65535 : 2147483647;
  return cudaSuccess;
}

__attribute__((visibility("default"))) void ridgepoint_begin(PyObject *recorder) { Py_XINCREF(recorder); ridgepoint::recorder = recorder; }

#ifdef RIDGEPOINT_TORCH
// Let the memory of a tensor (its implementation) lie at an address.
__attribute__((visibility("default"))) void ridgepoint_place(unsigned long long tensor, unsigned long long address) {
  auto *impl = reinterpret_cast<c10::TensorImpl *>(tensor);
  impl->unsafe_storage().unsafeGetStorageImpl()->set_data_ptr_noswap(
      at::DataPtr(reinterpret_cast<void *>(address), impl->unsafe_storage().device()));
}
#endif

// [(name, [types of its parameters])]
__attribute__((visibility("default"))) PyObject *ridgepoint_functions() {
  PyObject *found = PyList_New(0);
  for (const auto &each : ridgepoint::functions()) {
    PyObject *types = PyList_New(0);
    for (const auto &type : each.types) PyList_Append(types, PyUnicode_FromString(type.c_str()));
    PyList_Append(found, Py_BuildValue("(sN)", each.name.c_str(), types));
  }
  return found;
}

// Call the function at a place with a tuple; returns the addresses of the tensors that it returns.
__attribute__((visibility("default"))) PyObject *ridgepoint_call(int at, PyObject *given) {
  struct sigaction leaves = {}, segv, bus, abrt;
  leaves.sa_handler = ridgepoint::leave_call, leaves.sa_flags = SA_NODEFER;
  sigaction(SIGSEGV, &leaves, &segv), sigaction(SIGBUS, &leaves, &bus), sigaction(SIGABRT, &leaves, &abrt);
  struct Restore {
    struct sigaction *segv, *bus, *abrt;
    ~Restore() { sigaction(SIGSEGV, segv, nullptr), sigaction(SIGBUS, bus, nullptr), sigaction(SIGABRT, abrt, nullptr); }
  } restore{&segv, &bus, &abrt};
  ridgepoint::why_left = "the host reads or writes memory of a tensor, which has none here, or aborts";
  if (sigsetjmp(ridgepoint::before_call, 1)) {
    PyErr_SetString(PyExc_RuntimeError, ridgepoint::why_left.c_str());
    return nullptr;
  }
  try {
    ridgepoint::pending = {};
    return ridgepoint::functions().at(at).call(given);
  } catch (const ridgepoint::Told &) {
#ifdef RIDGEPOINT_TORCH
  } catch (const c10::Error &error) {
    PyErr_SetString(PyExc_RuntimeError, error.what_without_backtrace());
#endif
  } catch (const std::exception &error) {
    if (!PyErr_Occurred()) PyErr_SetString(PyExc_RuntimeError, error.what());
  } catch (...) {
    if (!PyErr_Occurred()) PyErr_SetString(PyExc_RuntimeError, "the host function throws something that is no std::exception");
  }
  if (!PyErr_Occurred()) PyErr_SetString(PyExc_RuntimeError, "the call failed");
  return nullptr;
}
}
