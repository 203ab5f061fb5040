#pragma once
// Tables of numbers that an op reads, recorded as constants so that they are in its device's
// memory.
#include <cstring>
#include <functional>
#include <string_view>
#include <vector>

#include "graph/recorder.h"

namespace tfm::ops {

// Ops that need the same numbers share one table.
template <class T>
graph::Value table(graph::Recorder& r, const std::string& kind, std::vector<T> values) {
  const std::string_view bytes(reinterpret_cast<const char*>(values.data()),
                               values.size() * sizeof(T));
  const std::string name = kind + "." + std::to_string(values.size()) + "." +
                           std::to_string(std::hash<std::string_view>{}(bytes));
  const Shape shape{std::ssize(values)};
  return r.constant(name, shape, dtype_of<T>, [values = std::move(values)](Tensor t) {
    std::memcpy(t.data, values.data(), values.size() * sizeof(T));
  });
}

// ALiBi's bias by distance (Press et al. 2022), of shape (H, T + S - 1):
//   bias[h][s - t + T - 1] = -slope[h] * |t + S - T - s|
template <class T>
graph::Value alibi_table(graph::Recorder& r, const std::vector<double>& slopes,
                         std::int64_t queries, std::int64_t keys) {
  std::vector<T> bias;
  for (const double slope : slopes)
    for (std::int64_t i = 0; i < queries + keys - 1; ++i)
      bias.push_back(
          static_cast<T>(-slope * static_cast<double>(i < keys - 1 ? keys - 1 - i : i - keys + 1)));
  return table(r, "alibi", std::move(bias));
}

}  // namespace tfm::ops
