#pragma once
// The lines of a text file, one after the other; gzip and Zstandard are decompressed.
#include <string>
#include <string_view>

#include "io/text_stream.h"

namespace tfm::data {

class Lines {
 public:
  // This and next(): Error(input) for a file that is not text, and for a line of more than 256 MiB.
  explicit Lines(const std::string& path) : path_(path), file_(path) {}
  bool next();  // false at the end of the file
  // Without its end; valid until the next call of next().
  std::string_view line() const { return line_; }
  std::string where() const { return path_ + ":" + std::to_string(number_); }
  std::int64_t count_all();  // after this, line() is the last line

 private:
  bool more();

  std::string path_;
  io::TextStream file_;
  std::string held_;  // bytes read; those before at_ are consumed
  std::size_t at_ = 0, last_read_ = 0;
  std::string_view line_;
  std::int64_t number_ = 0;
};

}  // namespace tfm::data
