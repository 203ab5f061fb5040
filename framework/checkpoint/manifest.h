#pragma once
// The arithmetic of slices, and the manifest's text: shared by the checkpoint's reader and writer.
#include <string>
#include <string_view>

#include "checkpoint/checkpoint.h"

namespace tfm::checkpoint {

inline constexpr int format_version = 1;
inline constexpr const char* manifest_name = "manifest.json";

std::string step_name(std::int64_t step);  // "step-00000500"
// The step of such a name; empty for any other string.
std::optional<std::int64_t> step_of(std::string_view name);

// Rows of `row` elements each, `stride` apart in the whole tensor, the first at `offset`: a slice
// along an axis.
struct StridedRows {
  std::int64_t rows = 0, row = 0, stride = 0, offset = 0;
  std::int64_t elements() const { return rows * row; }
};
// Empty where the slice does not lie in the tensor.
std::optional<StridedRows> rows_of(const Shape& full, const Slice& slice);

std::string to_text(const Manifest& manifest);  // with its checksum
Manifest from_text(const std::string& path,
                   std::string_view text);  // throws Error(input) naming the path and field
std::string chunk_list(
    const ShardFile& file,
    const std::vector<StoredChunk>& chunks);  // one shard's part of a manifest, as JSON
void add_shard(Manifest& manifest, const std::string& chunk_list);

}  // namespace tfm::checkpoint
