#pragma once
// A tensor's extents, outermost first; at most four.
#include <array>
#include <cstdint>
#include <initializer_list>
#include <string>

#include "core/error.h"

namespace tfm {

class Shape {
 public:
  Shape() = default;
  Shape(std::initializer_list<std::int64_t> extents) {
    TFM_CHECK(extents.size() <= 4, "too many dimensions");
    for (auto e : extents) extent_[rank_++] = e;
  }
  int rank() const { return rank_; }
  std::int64_t operator[](int i) const { return extent_[i]; }
  std::int64_t& operator[](int i) { return extent_[i]; }
  std::int64_t back() const { return rank_ ? extent_[rank_ - 1] : 1; }
  std::int64_t elements() const {
    std::int64_t n = 1;
    for (int i = 0; i < rank_; ++i) n *= extent_[i];
    return n;
  }
  // Product of all extents but the last.
  std::int64_t rows() const { return back() ? elements() / back() : 0; }
  bool operator==(const Shape& o) const = default;
  std::string str() const {
    std::string s = "(";
    for (int i = 0; i < rank_; ++i) s += (i ? ", " : "") + std::to_string(extent_[i]);
    return s + ")";
  }

 private:
  std::array<std::int64_t, 4> extent_{};
  int rank_ = 0;
};

}  // namespace tfm
