#pragma once
// Parses numbers as `tokenizers` does. serde_json without its feature float_roundtrip divides or
// multiplies the digits, rounded to a double, by a power of ten, and the result is often the
// neighbor of the nearest double. In a unigram model the last bit of a sum decides between splits
// of a word whose scores are equal but for rounding.
#include <string_view>

namespace tfm::tokenizer {

double serde_json_float(std::string_view json_number);  // infinite if too large for a double

}  // namespace tfm::tokenizer
