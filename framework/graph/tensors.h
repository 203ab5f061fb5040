#pragma once
// Names of an op's tensors: an op lists its inputs and its outputs in an enum each, in the order in
// which they are recorded, and all that it says of them is said by these names.
//
//   enum In { x, weight, bias };
//   enum Out { y };
#include <concepts>
#include <cstddef>
#include <type_traits>

namespace tfm::graph {

template <class T>
concept TensorName = std::is_enum_v<T>;

// Some of an op's inputs, or some of its outputs: Tensors{x, weight}.
class Tensors {
 public:
  constexpr Tensors() = default;
  template <TensorName First, std::same_as<First>... Rest>
  constexpr Tensors(First first, Rest... rest) : bits_(((1u << first) | ... | (1u << rest))) {}

  constexpr bool contains(std::size_t place) const { return (bits_ >> place & 1u) != 0; }
  constexpr void insert(std::size_t place) { bits_ |= 1u << place; }

 private:
  unsigned bits_ = 0;
};

}  // namespace tfm::graph
