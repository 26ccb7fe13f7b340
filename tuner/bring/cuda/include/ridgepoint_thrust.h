// Thrust's names in a host: pointers and containers as they are used around kernels; algorithms are told and passed over.
#pragma once
#include "ridgepoint_record.h"

namespace thrust {
struct Unknown {                             // what an algorithm returns
  template <class T> operator T() const { return T(); }
};
template <class T> struct device_ptr {
  T *at = nullptr;
  device_ptr() = default;
  template <class U> explicit device_ptr(U *to) : at((T *)to) {}
  T *get() const { return at; }
  device_ptr operator+(long long by) const { return device_ptr(at + by); }
  device_ptr operator-(long long by) const { return device_ptr(at - by); }
  long long operator-(const device_ptr &other) const { return at - other.at; }
};
template <class T> device_ptr<T> device_pointer_cast(T *to) { return device_ptr<T>(to); }
template <class T> T *raw_pointer_cast(T *at) { return at; }
template <class T> T *raw_pointer_cast(const device_ptr<T> &at) { return at.get(); }
template <class T> struct device_vector {
  size_t count = 0;
  T *at = nullptr;
  device_vector(size_t n = 0) { resize(n); }
  device_vector(size_t n, const T &) { resize(n); }
  template <class I> device_vector(I, I) { ridgepoint::pass_over("thrust::device_vector"); }
  void resize(size_t n) { count = n, at = n ? (T *)ridgepoint::allocate(n * sizeof(T)) : nullptr; }
  void resize(size_t n, const T &) { resize(n); }
  size_t size() const { return count; }
  device_ptr<T> data() { return device_ptr<T>(at); }
  device_ptr<T> begin() { return data(); }
  device_ptr<T> end() { return device_ptr<T>(at + count); }
};
template <class T> struct host_vector : std::vector<T> { using std::vector<T>::vector; };
template <class T> struct counting_iterator {
  T at{};
  explicit counting_iterator(T from = T()) : at(from) {}
  counting_iterator operator+(long long by) const { return counting_iterator(T(at + by)); }
};
template <class T> counting_iterator<T> make_counting_iterator(T from) { return counting_iterator<T>(from); }
struct Policy { template <class... A> Policy on(A &&...) const { return {}; } template <class... A> Policy operator()(A &&...) const { return {}; } };
inline const Policy device, host, seq;
namespace cuda { inline const Policy par, par_nosync; }
namespace cuda_cub { inline const Policy par; }
namespace system { namespace cuda { inline const Policy par; } }
#define RIDGEPOINT_PASSED(name) template <class... A> Unknown name(A &&...) { ridgepoint::pass_over("thrust::" #name); return {}; }
RIDGEPOINT_PASSED(sort) RIDGEPOINT_PASSED(stable_sort) RIDGEPOINT_PASSED(sort_by_key) RIDGEPOINT_PASSED(stable_sort_by_key)
RIDGEPOINT_PASSED(exclusive_scan) RIDGEPOINT_PASSED(inclusive_scan) RIDGEPOINT_PASSED(exclusive_scan_by_key) RIDGEPOINT_PASSED(inclusive_scan_by_key)
RIDGEPOINT_PASSED(reduce) RIDGEPOINT_PASSED(reduce_by_key) RIDGEPOINT_PASSED(transform) RIDGEPOINT_PASSED(transform_reduce) RIDGEPOINT_PASSED(unique)
RIDGEPOINT_PASSED(unique_by_key) RIDGEPOINT_PASSED(unique_copy) RIDGEPOINT_PASSED(copy) RIDGEPOINT_PASSED(copy_if) RIDGEPOINT_PASSED(copy_n) RIDGEPOINT_PASSED(fill)
RIDGEPOINT_PASSED(fill_n) RIDGEPOINT_PASSED(sequence) RIDGEPOINT_PASSED(gather) RIDGEPOINT_PASSED(scatter) RIDGEPOINT_PASSED(for_each) RIDGEPOINT_PASSED(for_each_n)
RIDGEPOINT_PASSED(count) RIDGEPOINT_PASSED(count_if) RIDGEPOINT_PASSED(remove_if) RIDGEPOINT_PASSED(lower_bound) RIDGEPOINT_PASSED(upper_bound)
RIDGEPOINT_PASSED(min_element) RIDGEPOINT_PASSED(max_element) RIDGEPOINT_PASSED(inner_product) RIDGEPOINT_PASSED(partition) RIDGEPOINT_PASSED(make_zip_iterator)
RIDGEPOINT_PASSED(make_tuple) RIDGEPOINT_PASSED(make_transform_iterator) RIDGEPOINT_PASSED(make_permutation_iterator) RIDGEPOINT_PASSED(distance)
#undef RIDGEPOINT_PASSED
template <class T = void> struct plus {};
template <class T = void> struct multiplies {};
template <class T = void> struct minus {};
template <class T = void> struct maximum {};
template <class T = void> struct minimum {};
template <class T = void> struct less {};
template <class T = void> struct greater {};
template <class T = void> struct equal_to {};
template <class T = void> struct identity {};
}  // namespace thrust
