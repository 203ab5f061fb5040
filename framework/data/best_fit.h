#pragma once
// Packing of items into sequences by best fit decreasing: the longest first, each where the least
// room remains that is enough.
#include <cstddef>
#include <cstdint>
#include <vector>

namespace tfm::data {

// The items of each sequence of `length` places, by index; sequences come in the order of the first
// items in them. No size exceeds `length`.
std::vector<std::vector<std::size_t>> best_fit(const std::vector<std::int64_t>& sizes,
                                               std::int64_t length);

}  // namespace tfm::data
