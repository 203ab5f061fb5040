#pragma once
// The two sides of a sequence of an encoder-decoder.
#include <cstdint>
#include <span>

#include "core/batch.h"
#include "data/special_ids.h"

namespace tfm::data {

// Fills sequence `row` of `count`. Source: ids, end. Target: input begin, ids; labels ids, end. The
// rest is padding. Fields that are absent are left out.
void fill_sides(const BatchFields& fields, std::int64_t row, std::int64_t count,
                std::span<const std::int32_t> source, std::span<const std::int32_t> target,
                const SentenceIds& special);

}  // namespace tfm::data
