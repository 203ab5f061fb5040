#pragma once
// Filters that make numbers and texts of one value, and what filters share.
#include <string_view>

#include "text/jinja/operations.h"

namespace tfm::text::jinja {

using V = const Value&;
using A = const Arguments&;
using S = const Spend&;

inline bool flag(A a, std::size_t index, std::string_view name) {
  return truth(a.value(index, name, false));
}

Value absolute(V v, A a, S spend);
Value escaped(V v, A a, S spend);  // for HTML
Value indented(V v, A a, S spend);
Value rounded(V v, A a, S spend);
Value title(V v, A a, S spend);
Value to_integer(V v, A a, S spend);
Value to_json(V v, A a, S spend);
Value to_real(V v, A a, S spend);

}  // namespace tfm::text::jinja
