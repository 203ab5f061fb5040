#pragma once
// The int32 tensors of a batch by name, row-major, B sequences:
//   ids (B, T); labels (B, T), < 0: not counted; mask (B, T), < 0: padding; token_types (B, T);
//   sentence_labels (B); source_ids (B, S); source_mask (B, S).
#include <cstdint>
#include <map>
#include <span>
#include <string>

namespace tfm {

using Fields = std::map<std::string, std::span<std::int32_t>>;

}  // namespace tfm
