#pragma once
// The bytes of a text file in order, decompressed where the file is gzip or Zstandard. The content
// decides, not the name.
#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

namespace tfm::io {

// Why what starts with `head` is not text, and the command that makes text of the file `path`;
// empty where nothing speaks against it.
std::string not_text(std::string_view head, const std::string& path);

// Memory does not grow with the file. A file that cannot be read, is not text by its first 64 KiB
// (decompressed ones where it is compressed), or whose compressed stream is truncated or damaged
// is Error(input) that names it.
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
  std::string head_;  // what has been looked at and not read yet
};

// Reads the first bytes of a file. Error(input) unless it holds text, compressed or not; a pipe is
// left alone.
void check_text(const std::string& path);

// `name` without a .gz or .zst at its end.
std::string_view without_compression(std::string_view name);

}  // namespace tfm::io
