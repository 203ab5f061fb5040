#pragma once
// Element types and the one dispatch from a run-time type to a C++ type.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "core/error.h"

namespace tfm {

enum class DType : std::uint8_t { f32, f64, i32, i64 };

constexpr std::size_t size_of(DType t) { return t == DType::f64 || t == DType::i64 ? 8 : 4; }
constexpr std::string_view name_of(DType t) {
  switch (t) {
    case DType::f32: return "F32";
    case DType::f64: return "F64";
    case DType::i32: return "I32";
    case DType::i64: return "I64";
  }
  return "?";
}

template <class T> inline constexpr DType dtype_of = DType::f32;
template <> inline constexpr DType dtype_of<double> = DType::f64;
template <> inline constexpr DType dtype_of<std::int32_t> = DType::i32;
template <> inline constexpr DType dtype_of<std::int64_t> = DType::i64;

// with_float(t, []<class T>() { ... }): T is float or double.
template <class F> decltype(auto) with_float(DType t, F&& f) {
  if (t == DType::f64) return f.template operator()<double>();
  TFM_CHECK(t == DType::f32, "a floating point tensor is expected");
  return f.template operator()<float>();
}

}  // namespace tfm
