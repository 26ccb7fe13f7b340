// What a host function launches, told to Python in place of a GPU: kernel, template values, grid, block, shared memory, arguments.
#pragma once
#include "crt/host_config.h"
#include "crt/host_defines.h"
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <array>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <initializer_list>
#include <optional>
#include <stdexcept>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include <cuda_runtime.h>
#include <cuda_fp16.h>
#include <cuda_bf16.h>

namespace ridgepoint {

inline PyObject *recorder = nullptr;  // has launch(…) and allocate(bytes)
struct Configuration { dim3 grid{1}, block{1}; size_t shared = 0; };
inline Configuration pending;
struct Told : std::runtime_error { using std::runtime_error::runtime_error; };  // Python's own error is set

inline void at(dim3 grid, dim3 block, size_t shared = 0, cudaStream_t = nullptr) { pending = {grid, block, shared}; }

template <class T> const char *name_of() { return __PRETTY_FUNCTION__; }

template <class T, class = void> struct Number : std::false_type {};
template <> struct Number<__half> : std::true_type {};
template <> struct Number<__nv_bfloat16> : std::true_type {};

// A value that a kernel is given: (kind, type, value); what is neither address nor number by its bytes.
template <class T> PyObject *tell(const T &value) {
  const char *type = name_of<T>();
  if constexpr (std::is_same_v<T, bool>) return Py_BuildValue("(ssN)", "bool", type, PyBool_FromLong(value));
  else if constexpr (std::is_pointer_v<T>)
    return Py_BuildValue("(ssK)", "pointer", type, (unsigned long long)(const void *)value);
  else if constexpr (std::is_enum_v<T>) return Py_BuildValue("(ssL)", "int", type, (long long)value);
  else if constexpr (std::is_integral_v<T> && std::is_signed_v<T>) return Py_BuildValue("(ssL)", "int", type, (long long)value);
  else if constexpr (std::is_integral_v<T>) return Py_BuildValue("(ssK)", "int", type, (unsigned long long)value);
  else if constexpr (std::is_floating_point_v<T> || Number<T>::value)
    return Py_BuildValue("(ssd)", "float", type, (double)(float)value);
  else return Py_BuildValue("(ssy#)", "struct", type, reinterpret_cast<const char *>(&value), (Py_ssize_t)sizeof(T));
}
template <> inline PyObject *tell(const double &value) { return Py_BuildValue("(ssd)", "float", name_of<double>(), value); }

// Tell where a field of an argument lies in it; `at` gives its address, and takes nothing that has no such field.
template <class T, class F> void field(const T &of, const char *argument, const char *name, F &&at) {
  if constexpr (std::is_class_v<T> && std::is_invocable_v<F, const T &>) {
    PyObject *done = PyObject_CallMethod(recorder, "field", "ssn", argument, name,
                                         (Py_ssize_t)((const char *)at(of) - (const char *)&of));
    if (!done) throw Told("field");
    Py_DECREF(done);
  }
}
#define RIDGEPOINT_AT(argument, name) \
  ::ridgepoint::field(argument, #argument, #name, [](const auto &it) -> decltype((const void *)&it.name) { return &it.name; });

template <class... A>
void note(const char *kernel, const char *pretty, std::initializer_list<const char *> names, const A &...values) {
  PyObject *given = PyList_New(0);
  auto name = names.begin();
  ((void)([&] {
     PyObject *one = Py_BuildValue("(sN)", name == names.end() ? "" : *name++, tell(values));
     PyList_Append(given, one);
     Py_XDECREF(one);
   }()), ...);
  const auto &p = pending;
  PyObject *done = PyObject_CallMethod(recorder, "launch", "ss(III)(III)nN", kernel, pretty, p.grid.x, p.grid.y, p.grid.z,
                                       p.block.x, p.block.y, p.block.z, (Py_ssize_t)p.shared, given);
  pending = {};
  if (!done) throw Told("launch");
  Py_DECREF(done);
}

// Tell what the host puts into memory that it asked for itself: the same byte everywhere, or few bytes of its own.
inline void hold(const void *at, const void *content, size_t bytes) {
  PyObject *done = PyObject_CallMethod(recorder, "hold", "Ky#", (unsigned long long)at, (const char *)content, (Py_ssize_t)bytes);
  if (!done) throw Told("hold");
  Py_DECREF(done);
}
enum { most_held = 65536 };

// Tell that a library was called: what it launches is its own, and what it computes is not known.
inline void pass_over(const char *name) {
  PyObject *done = PyObject_CallMethod(recorder, "pass_over", "s", name);
  if (!done) throw Told("pass_over");
  Py_DECREF(done);
}

inline void *allocate(size_t bytes) {
  PyObject *address = PyObject_CallMethod(recorder, "allocate", "n", (Py_ssize_t)bytes);
  if (!address) throw Told("allocate");
  void *found = PyLong_AsVoidPtr(address);
  Py_DECREF(address);
  return found;
}

}  // namespace ridgepoint

// ---- what CUDA's own headers give to nvcc alone: min and max, and kernels by their types ----

#define RIDGEPOINT_LEAST(A, B, R) \
  inline constexpr R min(A a, B b) { return (R)a < (R)b ? (R)a : (R)b; } \
  inline constexpr R max(A a, B b) { return (R)a < (R)b ? (R)b : (R)a; }
RIDGEPOINT_LEAST(int, int, int)
RIDGEPOINT_LEAST(unsigned, unsigned, unsigned)
RIDGEPOINT_LEAST(long, long, long)
RIDGEPOINT_LEAST(unsigned long, unsigned long, unsigned long)
RIDGEPOINT_LEAST(long long, long long, long long)
RIDGEPOINT_LEAST(unsigned long long, unsigned long long, unsigned long long)
RIDGEPOINT_LEAST(float, float, float)
RIDGEPOINT_LEAST(double, double, double)
RIDGEPOINT_LEAST(int, unsigned, unsigned)
RIDGEPOINT_LEAST(unsigned, int, unsigned)
RIDGEPOINT_LEAST(int, long, long)
RIDGEPOINT_LEAST(long, int, long)
RIDGEPOINT_LEAST(int, unsigned long, unsigned long)
RIDGEPOINT_LEAST(unsigned long, int, unsigned long)
RIDGEPOINT_LEAST(long, unsigned long, unsigned long)
RIDGEPOINT_LEAST(unsigned long, long, unsigned long)
RIDGEPOINT_LEAST(float, double, double)
RIDGEPOINT_LEAST(double, float, double)
RIDGEPOINT_LEAST(int, long long, long long)
RIDGEPOINT_LEAST(long long, int, long long)
RIDGEPOINT_LEAST(unsigned, unsigned long, unsigned long)
RIDGEPOINT_LEAST(unsigned long, unsigned, unsigned long)
RIDGEPOINT_LEAST(unsigned, long, long)
RIDGEPOINT_LEAST(long, unsigned, long)
#undef RIDGEPOINT_LEAST

template <class... A> cudaError_t cudaFuncSetAttribute(void (*)(A...), cudaFuncAttribute, int) { return cudaSuccess; }
template <class... A> cudaError_t cudaFuncSetCacheConfig(void (*)(A...), cudaFuncCache) { return cudaSuccess; }
template <class... A> cudaError_t cudaFuncGetAttributes(cudaFuncAttributes *told, void (*kernel)(A...)) {
  return cudaFuncGetAttributes(told, reinterpret_cast<const void *>(kernel));
}
template <class... A>
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, void (*kernel)(A...), int threads, size_t shared) {
  return cudaOccupancyMaxActiveBlocksPerMultiprocessor(blocks, reinterpret_cast<const void *>(kernel), threads, shared);
}
template <class... A>
cudaError_t cudaOccupancyMaxPotentialBlockSize(int *grid, int *block, void (*)(A...), size_t = 0, int most = 0) {
  *block = most > 0 && most < 256 ? most : 256, *grid = 132 * (2048 / *block);
  return cudaSuccess;
}
template <class F, class... A>
cudaError_t cudaOccupancyMaxPotentialBlockSizeVariableSMem(int *grid, int *block, void (*kernel)(A...), F, int most = 0) {
  return cudaOccupancyMaxPotentialBlockSize(grid, block, kernel, 0, most);
}
template <class... A>
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int *blocks, void (*kernel)(A...), int threads, size_t shared, unsigned) {
  return cudaOccupancyMaxActiveBlocksPerMultiprocessor(blocks, kernel, threads, shared);
}
template <class... A> cudaError_t cudaOccupancyMaxActiveClusters(int *clusters, void (*)(A...), const cudaLaunchConfig_t *) {
  *clusters = 132;
  return cudaSuccess;
}
namespace ridgepoint {
template <class... A, size_t... I> void launch_by(void (*kernel)(A...), void **given, std::index_sequence<I...>) {
  kernel(*static_cast<std::remove_reference_t<A> *>(given[I])...);
}
}  // namespace ridgepoint
template <class... A>
cudaError_t cudaLaunchKernel(void (*kernel)(A...), dim3 grid, dim3 block, void **given, size_t shared = 0, cudaStream_t = nullptr) {
  ridgepoint::at(grid, block, shared);
  ridgepoint::launch_by(kernel, given, std::index_sequence_for<A...>{});
  return cudaSuccess;
}
template <class... A>
cudaError_t cudaLaunchCooperativeKernel(void (*kernel)(A...), dim3 grid, dim3 block, void **given, size_t shared = 0, cudaStream_t = nullptr) {
  return cudaLaunchKernel(kernel, grid, block, given, shared);
}
namespace ridgepoint {
template <class... A, class... B> cudaError_t launch_with(const cudaLaunchConfig_t *how, void (*kernel)(A...), B &&...given) {
  at(how->gridDim, how->blockDim, how->dynamicSmemBytes);
  kernel(std::forward<B>(given)...);
  return cudaSuccess;
}
}  // namespace ridgepoint
#define cudaLaunchKernelEx ::ridgepoint::launch_with

namespace ridgepoint {

// ---- values of Python as a function's parameters ----

template <class T> struct Plain { using type = std::remove_cv_t<std::remove_reference_t<T>>; };

// A struct of the file is given as {"field": value}: `ridgepoint_set` of what is compiled knows the names that the call gives.
template <class T, class = void> inline constexpr bool has_fields = false;        // nor of a class that is only declared
template <class T> inline constexpr bool has_fields<T, std::enable_if_t<std::is_class_v<T> && (sizeof(T) > 0)>> =
    std::is_default_constructible_v<T> && std::is_move_constructible_v<T> && std::is_move_assignable_v<T>;
template <class T> PyObject *part_for(PyObject *one);
template <class T, class = void> struct From;
// A class of the file is also given as a list of what its constructor takes: each is turned into what is asked for it.
template <class T> struct Any {
  PyObject *one;
  template <class U, class = std::enable_if_t<!std::is_same_v<U, T>>> operator U() const { return From<U>::get(part_for<U>(one)); }
};
template <class T, size_t> using AnyOf = Any<T>;
template <class T, size_t... I> bool made_of(T *&made, PyObject *given, std::index_sequence<I...>) {
  if constexpr (std::is_constructible_v<T, AnyOf<T, I>...>) {
    if (PySequence_Size(given) != (Py_ssize_t)sizeof...(I)) return false;
    made = new T(AnyOf<T, I>{PyList_GET_ITEM(given, I)}...);            // kept: a kernel may be given what it holds
    return true;
  }
  return false;
}
template <class T, class = void> inline constexpr bool has_size = false;         // a class that is only declared has none
template <class T> inline constexpr bool has_size<T, std::enable_if_t<std::is_class_v<T> && (sizeof(T) > 0)>> = true;
template <class T> T *made_by_constructor(PyObject *given) {
  T *made = nullptr;
  if constexpr (has_size<T>)
    if constexpr (!std::is_abstract_v<T>)
      if (PyList_Check(given))
        (void)(made_of(made, given, std::make_index_sequence<1>{}) || made_of(made, given, std::make_index_sequence<2>{}) ||
               made_of(made, given, std::make_index_sequence<3>{}) || made_of(made, given, std::make_index_sequence<4>{}) ||
               made_of(made, given, std::make_index_sequence<5>{}));
  return made;
}
template <class T, class> struct From {
  static T get(PyObject *one) {
    if constexpr (has_size<T>)
      if constexpr (std::is_copy_constructible_v<T>)
        if (T *made = made_by_constructor<T>(one)) return *made;
    if constexpr (has_fields<T>)
      if (PyDict_Check(one)) {
        T made{};
        ridgepoint_set(made, one);
        return made;
      }
    std::string type = name_of<T>();
    type = type.substr(type.find("T = ") + 4);
    type.resize(type.size() - 1);
    throw std::invalid_argument("it takes a " + type + (has_fields<T> ? ", which is given by its fields, {\"field\": value}, or as a list of what a constructor takes"
                                                         : ", which is given as a list of what a constructor takes, if at all"));
  }
};
// A tensor within a struct comes as ("tensor", its address, that of its implementation).
template <class T> PyObject *part_for(PyObject *one) {
  bool is_tensor = PyTuple_Check(one) && PyTuple_GET_SIZE(one) == 3 && PyUnicode_Check(PyTuple_GET_ITEM(one, 0));
  return is_tensor ? PyTuple_GET_ITEM(one, std::is_pointer_v<T> ? 1 : 2) : one;
}
template <class T> void fill_field(T &field, PyObject *given, const char *name) {
  PyObject *one = PyDict_GetItemString(given, name);
  if (!one) return;
  if constexpr (std::is_array_v<T>) {
    for (Py_ssize_t at = 0; at < PySequence_Size(one) && at < (Py_ssize_t)std::extent_v<T>; at++) {
      PyObject *each = PySequence_GetItem(one, at);
      field[at] = From<std::remove_extent_t<T>>::get(part_for<std::remove_extent_t<T>>(each));
      Py_DECREF(each);
    }
  } else if constexpr (std::is_move_assignable_v<T>) field = From<T>::get(part_for<T>(one));
}
template <class T, class F> void set_field(T &made, F &&set) { if constexpr (std::is_invocable_v<F, T &>) set(made); }
#define RIDGEPOINT_FIELD(name) \
  ::ridgepoint::set_field(made, [&](auto &it) -> decltype((void)it.name) { ::ridgepoint::fill_field(it.name, given, #name); });
template <> struct From<bool> { static bool get(PyObject *one) { return PyObject_IsTrue(one) == 1; } };
template <class T> struct From<T, std::enable_if_t<(std::is_integral_v<T> && !std::is_same_v<T, bool>) || std::is_enum_v<T>>> {
  static T get(PyObject *one) {
    if (PyFloat_Check(one)) return (T)(long long)PyFloat_AsDouble(one);
    long long number = PyLong_AsLongLong(one);
    if (PyErr_Occurred()) throw Told("a whole number");
    return (T)number;
  }
};
template <class T> struct From<T, std::enable_if_t<std::is_floating_point_v<T> || Number<T>::value>> {
  static T get(PyObject *one) {
    double number = PyFloat_AsDouble(one);
    if (PyErr_Occurred()) throw Told("a number");
    return T(float(number) == number || !std::is_same_v<T, double> ? (T)(float)number : (T)number);
  }
};
template <> struct From<double> {
  static double get(PyObject *one) {
    double number = PyFloat_AsDouble(one);
    if (PyErr_Occurred()) throw Told("a number");
    return number;
  }
};
template <> struct From<std::string> {
  static std::string get(PyObject *one) {
    const char *text = one == Py_None ? "" : PyUnicode_AsUTF8(one);
    if (!text) throw Told("a text");
    return text;
  }
};
template <> struct From<const char *> { static const char *get(PyObject *one) { return PyUnicode_AsUTF8(one); } };
template <class T> struct From<T *> {
  static T *get(PyObject *one) {
    if (one == Py_None) return nullptr;
    if constexpr (has_fields<std::remove_cv_t<T>>)
      if (PyDict_Check(one)) return new std::remove_cv_t<T>(From<std::remove_cv_t<T>>::get(one));
    if constexpr (std::is_class_v<T>)
      if (PyList_Check(one))
        if (auto *made = made_by_constructor<std::remove_cv_t<T>>(one)) return made;
    void *address = PyLong_AsVoidPtr(one);
    if (PyErr_Occurred()) throw Told("a tensor");
    return (T *)address;
  }
};
template <> struct From<dim3> {
  static dim3 get(PyObject *one) {
    unsigned extents[3] = {1, 1, 1};
    if (PyLong_Check(one)) return dim3((unsigned)PyLong_AsUnsignedLong(one));
    for (Py_ssize_t at = 0; at < PySequence_Size(one) && at < 3; at++) {
      PyObject *each = PySequence_GetItem(one, at);
      extents[at] = (unsigned)PyLong_AsUnsignedLong(each);
      Py_DECREF(each);
    }
    if (PyErr_Occurred()) throw Told("three whole numbers");
    return dim3(extents[0], extents[1], extents[2]);
  }
};
template <class T> struct From<std::optional<T>> {
  static std::optional<T> get(PyObject *one) { return one == Py_None ? std::optional<T>() : std::optional<T>(From<T>::get(one)); }
};
template <class T> struct From<std::vector<T>> {
  static std::vector<T> get(PyObject *one) {
    std::vector<T> found;
    Py_ssize_t count = PySequence_Size(one);
    if (count < 0) throw Told("a list");
    for (Py_ssize_t at = 0; at < count; at++) {
      PyObject *each = PySequence_GetItem(one, at);
      found.push_back(From<T>::get(each));
      Py_DECREF(each);
    }
    return found;
  }
};

// What is kept while a call is made, and what the function is given of it.
template <class T> struct Held { using type = typename Plain<T>::type; };

// Addresses of the tensors that a result holds; numbers and all else are not told.
template <class R, class = void> struct Result { static void add(PyObject *, const R &) {} };
template <class T> struct Result<std::vector<T>> {
  static void add(PyObject *found, const std::vector<T> &all) { for (const auto &each : all) Result<T>::add(found, each); }
};
template <class T> struct Result<std::optional<T>> {
  static void add(PyObject *found, const std::optional<T> &one) { if (one) Result<T>::add(found, *one); }
};
template <class... T> struct Result<std::tuple<T...>> {
  static void add(PyObject *found, const std::tuple<T...> &all) {
    std::apply([&](const auto &...each) { (Result<typename Plain<decltype(each)>::type>::add(found, each), ...); }, all);
  }
};
template <class A, class B> struct Result<std::pair<A, B>> {
  static void add(PyObject *found, const std::pair<A, B> &both) { Result<A>::add(found, both.first); Result<B>::add(found, both.second); }
};
template <class T, size_t N> struct Result<std::array<T, N>> {
  static void add(PyObject *found, const std::array<T, N> &all) { for (const auto &each : all) Result<T>::add(found, each); }
};

struct Function {
  std::string name;
  std::vector<std::string> types;
  std::function<PyObject *(PyObject *)> call;
};
inline std::vector<Function> &functions() { static std::vector<Function> all; return all; }

template <class R, class... A, size_t... I> PyObject *invoke(R (*function)(A...), PyObject *given, std::index_sequence<I...>) {
  std::tuple<typename Held<A>::type...> held{From<typename Held<A>::type>::get(PyTuple_GET_ITEM(given, I))...};
  PyObject *found = PyList_New(0);
  if constexpr (std::is_void_v<R>) function(static_cast<A>(std::get<I>(held))...);
  else Result<typename Plain<R>::type>::add(found, function(static_cast<A>(std::get<I>(held))...));
  return found;
}

template <class R, class... A> int add(const char *name, R (*function)(A...)) {
  functions().push_back({name, {name_of<A>()...}, [function](PyObject *given) -> PyObject * {
    if (PyTuple_GET_SIZE(given) != (Py_ssize_t)sizeof...(A))
      throw std::invalid_argument("it takes " + std::to_string(sizeof...(A)) + " arguments, " +
                                  std::to_string(PyTuple_GET_SIZE(given)) + " were given");
    return invoke(function, given, std::index_sequence_for<A...>{});
  }});
  return 0;
}

}  // namespace ridgepoint
