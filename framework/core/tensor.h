#pragma once
// A typed, row-major, contiguous view of memory that it does not own.
#include <span>

#include "core/dtype.h"
#include "core/shape.h"

namespace tfm {

struct Tensor {
  void* data = nullptr;
  DType dtype = DType::f32;
  Shape shape;

  explicit operator bool() const { return data != nullptr; }
  std::int64_t elements() const { return shape.elements(); }
  std::int64_t bytes() const { return elements() * size_of(dtype); }

  template <class T>
  T* ptr() const {
    TFM_CHECK(!data || dtype == dtype_of<T>, "tensor holds another type");
    return static_cast<T*>(data);
  }
  template <class T>
  std::span<T> span() const {
    return {ptr<T>(), static_cast<std::size_t>(elements())};
  }
};

}  // namespace tfm
