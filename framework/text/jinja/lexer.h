#pragma once
// Tokens of a template, with whitespace as transformers sets it: trim_blocks and lstrip_blocks.
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tfm::text::jinja {

struct Token {
  enum class Kind : std::uint8_t {
    text,
    begin_print,
    end_print,
    begin_block,
    end_block,
    name,
    string,
    integer,
    real,
    sign,
    end,
  };
  Kind kind;
  std::string text;  // of strings: their contents
  std::size_t at;    // offset in the source
};

// A template's source with \n for every end of a line, and without the last one.
std::string normal_source(std::string_view source);

// Throws Broken.
struct Broken {
  std::string what;
  std::size_t at;
};
std::vector<Token> tokens_of(const std::string& normal_source);

}  // namespace tfm::text::jinja
