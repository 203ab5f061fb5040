#pragma once
// Slice arithmetic and the manifest's text format, shared by the checkpoint reader and writer.
#include <string>
#include <string_view>

#include "checkpoint/checkpoint.h"

namespace tfm::checkpoint {

inline constexpr int format_version = 1;
inline constexpr const char* manifest_name = "manifest.json";

std::string step_name(std::int64_t step);  // "step-00000500"
// The step of a name as step_name() gives it; nullopt for any other string.
std::optional<std::int64_t> step_of(std::string_view name);

// A slice along an axis as `rows` runs of `row` elements; run i begins at offset + i * stride of
// the whole tensor.
struct StridedRows {
  std::int64_t rows = 0, row = 0, stride = 0, offset = 0;
  std::int64_t elements() const { return rows * row; }
};
// Empty if the slice does not lie in the tensor.
std::optional<StridedRows> rows_of(const Shape& full, const Slice& slice);

std::string to_text(const Manifest& manifest);  // including its checksum
// Error(input) names the path and the field.
Manifest from_text(const std::string& path, std::string_view text);
// One shard's part of a manifest, as JSON.
std::string chunk_list(const ShardFile& file, const std::vector<StoredChunk>& chunks);
// Adds the files and chunks of a chunk_list() to `manifest`.
void add_shard(Manifest& manifest, const std::string& chunk_list);

}  // namespace tfm::checkpoint
