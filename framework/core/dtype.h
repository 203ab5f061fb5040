#pragma once
// Element types, and the dispatch from a run-time type to a C++ type.
#include <cstdint>
#include <string_view>
#include <type_traits>

#include "core/error.h"
#include "core/half.h"

namespace tfm {

enum class DType : std::uint8_t { f32, f64, i32, i64, bf16, f16 };

constexpr bool is_half(DType t) { return t == DType::bf16 || t == DType::f16; }
constexpr std::int64_t size_of(DType t) {
  return is_half(t) ? 2 : t == DType::f64 || t == DType::i64 ? 8 : 4;
}
constexpr std::string_view name_of(DType t) {
  switch (t) {
    case DType::f32:
      return "F32";
    case DType::f64:
      return "F64";
    case DType::i32:
      return "I32";
    case DType::i64:
      return "I64";
    case DType::bf16:
      return "BF16";
    case DType::f16:
      return "F16";
  }
  return "?";
}

template <class T>
inline constexpr DType dtype_of = DType::f32;
template <>
inline constexpr DType dtype_of<double> = DType::f64;
template <>
inline constexpr DType dtype_of<std::int32_t> = DType::i32;
template <>
inline constexpr DType dtype_of<std::int64_t> = DType::i64;

template <>
inline constexpr DType dtype_of<bf16> = DType::bf16;
template <>
inline constexpr DType dtype_of<f16> = DType::f16;

// Type in which elements of type T are computed. Statistics, sums over tokens and gradients of
// parameters are also stored in it.
template <class T>
using Accum = std::conditional_t<sizeof(T) == 2, float, T>;
constexpr DType accum_type(DType t) { return is_half(t) ? DType::f32 : t; }

// with_accum(t, []<class T>() { ... }) calls the lambda with T = float or double.
template <class F>
decltype(auto) with_accum(DType t, F&& f) {
  if (t == DType::f64) return f.template operator()<double>();
  TFM_CHECK(t == DType::f32, "a tensor of float or double is expected");
  return f.template operator()<float>();
}
// with_float(t, []<class T>() { ... }) calls the lambda with T = float, double, bf16 or f16.
template <class F>
decltype(auto) with_float(DType t, F&& f) {
  if (t == DType::bf16) return f.template operator()<bf16>();
  if (t == DType::f16) return f.template operator()<f16>();
  return with_accum(t, f);
}

}  // namespace tfm
