#include "io/files.h"

#include <fcntl.h>
#include <glob.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>

#include "core/error.h"
#include "io/file.h"

namespace tfm::io {

static constexpr std::size_t buffer_bytes = 1 << 20;

std::string read_whole_file(const std::string& path, std::size_t max_bytes) {
  const MappedFile file(path);
  if (file.bytes().size() > max_bytes)
    throw Error(ExitCode::input, path + ": expected at most " + std::to_string(max_bytes) +
                                     " bytes, got " + std::to_string(file.bytes().size()));
  return {reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size()};
}

std::vector<std::string> files_of(const std::string& pattern) {
  std::error_code ignored;
  if (pattern.find_first_of("*?[") == pattern.npos || std::filesystem::exists(pattern, ignored))
    return {pattern};
  glob_t found{};
  const int result = ::glob(pattern.c_str(), GLOB_ERR, nullptr, &found);
  std::vector<std::string> files(found.gl_pathv,
                                 found.gl_pathv + (result == 0 ? found.gl_pathc : 0));
  ::globfree(&found);
  std::erase_if(
      files, [&](const std::string& f) {  // a pattern may match both halves of a Megatron pair
        return f.ends_with(".idx") && std::find(files.begin(), files.end(),
                                                f.substr(0, f.size() - 4) + ".bin") != files.end();
      });
  if (files.empty()) throw Error(ExitCode::input, pattern + ": no file matches this pattern");
  return files;
}

AtomicFile::AtomicFile(std::string path)
    : path_(std::move(path)), temporary_(path_ + ".tmp." + std::to_string(::getpid())) {
  fd_ = ::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (fd_ < 0)
    throw Error(ExitCode::usage, path_ + ": cannot be created: " + errno_text() +
                                     "; name a file in an existing folder that you may write to");
  buffer_.reserve(buffer_bytes);
}

AtomicFile::~AtomicFile() {
  if (fd_ < 0) return;
  ::close(fd_);
  ::unlink(temporary_.c_str());
}

void AtomicFile::fail(const char* what) const {
  throw Error(ExitCode::retryable, path_ + ": " + what + " failed: " + errno_text());
}

void AtomicFile::write(const void* data, std::size_t bytes) {
  const char* from = static_cast<const char*>(data);
  while (bytes > 0) {
    const std::size_t part = std::min(bytes, buffer_bytes - buffer_.size());
    buffer_.insert(buffer_.end(), from, from + part);
    from += part;
    bytes -= part;
    if (buffer_.size() == buffer_bytes) flush();
  }
}

void AtomicFile::flush() {
  std::size_t done = 0;
  while (done < buffer_.size()) {
    const ssize_t n = ::write(fd_, buffer_.data() + done, buffer_.size() - done);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) fail("writing");
    done += static_cast<std::size_t>(n);
  }
  buffer_.clear();
}

void AtomicFile::overwrite(std::int64_t offset, const void* data, std::size_t bytes) {
  flush();
  if (::pwrite(fd_, data, bytes, offset) != static_cast<ssize_t>(bytes)) fail("writing");
}

void AtomicFile::publish() {
  flush();
  if (::fsync(fd_) != 0) fail("fsync");
  rename_file(temporary_, path_);
  ::close(fd_);
  fd_ = -1;
  sync_directory(parent_directory(path_));
}

}  // namespace tfm::io
