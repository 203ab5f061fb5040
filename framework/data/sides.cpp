#include "data/sides.h"

#include <algorithm>
#include <optional>
#include <vector>

#include "core/error.h"

namespace tfm::data {

void fill_sides(const BatchFields& fields, std::int64_t row, std::int64_t count,
                std::span<const std::int32_t> source, std::span<const std::int32_t> target,
                const SentenceIds& special) {
  const auto put = [&](Field field, std::optional<std::int32_t> before,
                       std::span<const std::int32_t> ids, std::optional<std::int32_t> after) {
    const auto found = fields.find(field);
    if (found == fields.end()) return;
    const auto width = found->second.size() / static_cast<std::size_t>(count);
    TFM_CHECK(ids.size() + 1 <= width, "a sequence exceeds its batch");
    auto to = found->second.subspan(static_cast<std::size_t>(row) * width, width).begin();
    const auto stop = to + static_cast<std::ptrdiff_t>(width);
    if (before) *to++ = *before;
    to = std::copy(ids.begin(), ids.end(), to);
    if (after) *to++ = *after;
    std::fill(to, stop, info_of(field).padding);
  };
  const std::vector<std::int32_t> seen(source.size(), 0), wanted(target.size(), 0);
  put(Field::source_ids, {}, source, special.source_end);
  put(Field::source_mask, 0, seen, {});
  put(Field::ids, special.begin, target, {});
  put(Field::mask, 0, wanted, {});
  put(Field::labels, {}, target, special.end);
}

}  // namespace tfm::data
