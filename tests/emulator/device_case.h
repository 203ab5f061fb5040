#pragma once
// Helpers of the tests that run CUDA kernels on the emulator.
#include <gtest/gtest.h>

#include "core/dtype.h"
#include "device/cuda/stream.h"
#include "emulator.h"
#include "support/kernel_case.h"

namespace tfm::test {

// Global memory of a kernel: read-only where it holds values, otherwise all bits set, which is not
// a number. The host sees what the kernels before have done.
template <class T>
class Buffer {
 public:
  Buffer(const char* name, std::int64_t n)
      : n_(n), p_(static_cast<T*>(emulator::allocate(n * sizeof(T), name))) {}
  Buffer(const char* name, const Values& v) : Buffer(name, std::ssize(v)) {
    assign(v);
    emulator::set_read_only(p_);
  }
  ~Buffer() { EXPECT_TRUE(emulator::release(p_)) << "written outside of a buffer"; }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;

  void assign(const Values& v) {
    emulator::wait();
    for (std::int64_t i = 0; i < n_; ++i) p_[i] = static_cast<T>(static_cast<Accum<T>>(v[i]));
  }
  operator T*() {
    emulator::wait();
    return p_;
  }
  Values values() const {
    emulator::wait();
    Values v(n_);
    for (std::int64_t i = 0; i < n_; ++i) v[i] = static_cast<double>(static_cast<Accum<T>>(p_[i]));
    return v;
  }
  std::vector<T> raw() const {
    emulator::wait();
    return std::vector<T>(p_, p_ + n_);
  }

 private:
  std::int64_t n_;
  T* p_;
};

inline cuda::Stream& device_stream() {
  // Never destroyed: at exit the libraries whose handles it holds have ended before it would be.
  static auto& stream = *new cuda::Stream(0);
  return stream;
}

// Options as they were before, and the kind of the failure that `f` ends with (empty: none).
template <class F>
std::string kind_of_failure(const emulator::Options& options, F&& f, std::string* text = nullptr) {
  const emulator::Options before = std::exchange(emulator::options, options);
  std::string kind;
  try {
    f();
  } catch (const emulator::Failure& e) {
    kind = e.kind;
    if (text) *text = e.what();
  }
  emulator::options = before;
  return kind;
}

}  // namespace tfm::test
