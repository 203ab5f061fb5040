#pragma once
// The bytes of a text file in order, decompressed where the file is gzip or Zstandard. The content
// decides, not the name.
#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

namespace tfm::io {

// Why data that starts with `head` is not text, and the command that makes text of the file `path`;
// "" if it may be text.
std::string not_text(std::string_view head, const std::string& path);

// Memory use does not grow with the file. Error(input), naming the file, if it cannot be read, is
// not text by its first 64 KiB (decompressed if it is compressed), or its compressed stream is
// truncated or damaged.
class TextStream {
 public:
  explicit TextStream(const std::string& path);
  ~TextStream();
  // Fills `out` with the next bytes; fewer than asked for only at the end of the text.
  std::size_t read(char* out, std::size_t bytes);

 private:
  class Bytes;
  class Plain;
  class Gzip;
  class Zstandard;

  std::unique_ptr<Bytes> bytes_;
  std::string head_;  // examined but not yet read
};

// Reads the first bytes of a file. Error(input) unless it is text, compressed or not; a pipe is not
// read.
void check_text(const std::string& path);

// `name` without a trailing .gz or .zst, of any case.
std::string_view without_compression(std::string_view name);

// Whether the first line of a text that begins with `head` is a JSON object, as far as it reaches.
bool begins_with_object_line(std::string_view head);

}  // namespace tfm::io
