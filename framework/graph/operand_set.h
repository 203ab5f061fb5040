#pragma once
// Names of an op's tensors. An op declares one enum of its inputs and one of its outputs, in the
// order in which they are recorded, and refers to its tensors by these names only.
//
//   enum In { x, weight, bias };
//   enum Out { y };
#include <concepts>
#include <cstddef>
#include <type_traits>

namespace tfm::graph {

template <class T>
concept TensorName = std::is_enum_v<T>;

// A set of an op's inputs, or of its outputs: OperandSet{x, weight}.
class OperandSet {
 public:
  constexpr OperandSet() = default;
  template <TensorName First, std::same_as<First>... Rest>
  constexpr OperandSet(First first, Rest... rest) : bits_(((1u << first) | ... | (1u << rest))) {}

  constexpr bool contains(std::size_t place) const { return (bits_ >> place & 1u) != 0; }
  constexpr void insert(std::size_t place) { bits_ |= 1u << place; }

 private:
  unsigned bits_ = 0;
};

}  // namespace tfm::graph
