#pragma once
// Files as tfm reads and writes them: mapped or read whole; written, synced and renamed into place.
// A file that cannot be read is Error(input); a failed write is Error(retryable) with the system's
// reason.
#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/strings.h"

namespace tfm::io {

class MappedFile {
 public:
  explicit MappedFile(const std::string& path);  // maps a regular file read-only
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;
  std::span<const std::byte> bytes() const { return {data_, size_}; }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
  const std::byte* data_ = nullptr;
  std::size_t size_ = 0;
};

// The contents of a file. Error(input) also if it is larger than max_bytes.
std::string read_whole_file(const std::string& path, std::size_t max_bytes);

// XXH3, 128 bits, as 32 hexadecimal digits in XXH128_canonical order (what `xxhsum -H2` prints).
class Checksum {
 public:
  Checksum();
  void add(std::span<const std::byte> bytes);
  std::string hex() const;
  std::uint64_t first_word() const;  // the first 16 digits of hex()
  static std::string of(std::span<const std::byte> bytes);

 private:
  std::shared_ptr<void> state_;
};

void sync_directory(const std::string& path);      // makes renames and creations in it durable
void create_directories(const std::string& path);  // creates what is missing, durably
void rename_file(const std::string& from, const std::string& to);
void remove_file(const std::string& path);       // if there is one, durably
bool is_named(int fd, const std::string& path);  // whether `path` names the open file

// The path that writing to `path` replaces: the target of a symbolic link. Error(usage) if
// something other than a regular file is there, such as a directory or /dev/null.
std::string file_to_replace(const std::string& path);

// A file that appears under its name complete or not at all, and whose start may be rewritten once
// its end is known: a temporary file next to it, fsync, rename, fsync of the folder. The temporary
// file is PATH.tmp; a later writer overwrites one left by a killed writer. If another process is
// writing the file, this one says so and waits until that has ended.
class AtomicFile {
 public:
  // Error(usage) if the path cannot be created in any run: no folder, no permission.
  explicit AtomicFile(const std::string& path);
  ~AtomicFile();  // removes the temporary file unless publish() succeeded
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  void write(const void* data, std::size_t bytes);  // appends, buffered
  void overwrite(std::int64_t offset, const void* data, std::size_t bytes);
  // Brings all that was written to disk, so that publish() has only a name to change: of several
  // files all are synced before the first is published.
  void sync();
  void publish();
  const std::string& path() const { return path_; }

 private:
  void flush();

  std::string path_, temporary_;
  std::vector<char> buffer_;
  int fd_ = -1;
};
std::string temporary_of(const std::string& path);
// Replace a file atomically: afterwards it has either all of the new content or the old one.
void replace_file(const std::string& path, std::string_view text);
void copy_file(const std::string& from, const std::string& to);

std::string parent_directory(const std::string& path);  // "." if the path has no folder

}  // namespace tfm::io
