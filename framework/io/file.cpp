#include "io/file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <new>

#include "core/error.h"

namespace tfm::io {
namespace {

[[noreturn]] void write_error(const std::string& path, const std::string& what) {
  const std::string why = errno_text();
  throw Error(ExitCode::retryable, path + ": " + what + ": " + why);
}

std::string hex_of(XXH128_hash_t hash) {
  XXH128_canonical_t bytes;
  XXH128_canonicalFromHash(&bytes, hash);
  static constexpr char digits[] = "0123456789abcdef";
  std::string text;
  for (unsigned char b : bytes.digest) text += {digits[b >> 4], digits[b & 15]};
  return text;
}

}  // namespace

MappedFile::MappedFile(const std::string& path) : path_(path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) throw Error(ExitCode::input, path + ": cannot be opened: " + errno_text());
  struct stat info {};
  std::string problem;
  if (::fstat(fd, &info) != 0) {
    problem = "cannot be examined: " + errno_text();
  } else if (!S_ISREG(info.st_mode)) {
    problem = "is not a regular file";
  } else if (info.st_size > 0) {
    size_ = static_cast<std::size_t>(info.st_size);
    void* at = ::mmap(nullptr, size_, PROT_READ, MAP_PRIVATE, fd, 0);
    if (at == MAP_FAILED)
      problem = "cannot be mapped: " + errno_text();
    else
      data_ = static_cast<const std::byte*>(at);
  }
  ::close(fd);
  if (!problem.empty()) throw Error(ExitCode::input, path + ": " + problem);
}

MappedFile::~MappedFile() {
  if (data_) ::munmap(const_cast<std::byte*>(data_), size_);
}

Checksum::Checksum()
    : state_(XXH3_createState(), [](void* s) { XXH3_freeState(static_cast<XXH3_state_t*>(s)); }) {
  if (!state_) throw std::bad_alloc();
  XXH3_128bits_reset(static_cast<XXH3_state_t*>(state_.get()));
}

void Checksum::add(std::span<const std::byte> bytes) {
  XXH3_128bits_update(static_cast<XXH3_state_t*>(state_.get()), bytes.data(), bytes.size());
}

std::string Checksum::hex() const {
  return hex_of(XXH3_128bits_digest(static_cast<XXH3_state_t*>(state_.get())));
}

std::string Checksum::of(std::span<const std::byte> bytes) {
  return hex_of(XXH3_128bits(bytes.data(), bytes.size()));
}

OutputFile::OutputFile(const std::string& path)
    : path_(path), fd_(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644)) {
  if (fd_ < 0) write_error(path_, "cannot be created");
}

OutputFile::~OutputFile() {
  if (fd_ >= 0) ::close(fd_);
}

void OutputFile::write(std::span<const std::byte> bytes) {
  sum_.add(bytes);
  while (!bytes.empty()) {
    const ssize_t n =
        ::write(fd_, bytes.data(), std::min<std::size_t>(bytes.size(), std::size_t{1} << 30));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) write_error(path_, "cannot be written after " + std::to_string(size_) + " bytes");
    size_ += static_cast<std::uint64_t>(n);
    bytes = bytes.subspan(static_cast<std::size_t>(n));
  }
}

void OutputFile::sync_and_close() {
  if (::fsync(fd_) != 0) write_error(path_, "cannot be synced to disk");
  const int fd = fd_;
  fd_ = -1;
  if (::close(fd) != 0) write_error(path_, "cannot be closed");
}

void sync_directory(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) write_error(path, "cannot be opened to be synced");
  const bool failed =
      ::fsync(fd) != 0 && errno != EINVAL;  // EINVAL: this file system syncs no folders
  const int saved = errno;
  ::close(fd);
  errno = saved;
  if (failed) write_error(path, "cannot be synced to disk");
}

void rename_file(const std::string& from, const std::string& to) {
  if (::rename(from.c_str(), to.c_str()) != 0) write_error(from, "cannot be renamed to " + to);
}

std::string parent_directory(const std::string& path) {
  const auto slash = path.find_last_of('/');
  return slash == std::string::npos ? "." : slash == 0 ? "/" : path.substr(0, slash);
}

void replace_file(const std::string& path, std::string_view text) {
  const std::string partial = path + ".tmp";
  try {
    OutputFile file(partial);
    file.write(text);
    file.sync_and_close();
    rename_file(partial, path);
  } catch (...) {
    ::unlink(partial.c_str());
    throw;
  }
  sync_directory(parent_directory(path));
}

}  // namespace tfm::io
