#pragma once
// Numbers as `tokenizers` reads them: serde_json without its feature float_roundtrip divides or
// multiplies the digits, rounded to a double, by a power of ten, and the result is often the
// neighbor of the nearest double. In a unigram model the last bit of a sum decides between ways
// to split a word whose scores are equal but for rounding.
#include <string_view>

namespace tfm::tokenizer {

double serde_json_float(std::string_view json_number);  // infinite where no double is as large

}  // namespace tfm::tokenizer
