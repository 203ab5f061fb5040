#pragma once
// What data/ needs of files beyond core/posix_file.h.
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace tfm::io {

// The whole file. Throws Error(input) where it cannot be read or is larger than max_bytes.
std::string read_whole_file(const std::string& path, std::size_t max_bytes);

// The file itself, or those that match a pattern of glob(7) in the order of their names. Throws
// Error(input) where none does.
std::vector<std::string> files_of(const std::string& pattern);

// A file that appears under its name complete or not at all, and whose start may be rewritten once
// its end is known: a temporary file next to it, fsync, then rename. Throws Error(usage) where it
// cannot be created, Error(retryable) where writing fails.
class AtomicFile {
 public:
  explicit AtomicFile(std::string path);
  ~AtomicFile();  // removes the temporary file unless publish() succeeded
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  void write(const void* data, std::size_t bytes);  // appends, buffered
  void overwrite(std::int64_t offset, const void* data, std::size_t bytes);
  void publish();
  const std::string& path() const { return path_; }

 private:
  void flush();
  [[noreturn]] void fail(const char* what) const;

  std::string path_, temporary_;
  std::vector<char> buffer_;
  int fd_ = -1;
};

}  // namespace tfm::io
