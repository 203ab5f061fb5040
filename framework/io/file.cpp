#include "io/file.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <mutex>
#include <new>
#include <utility>

#include "core/error.h"

namespace tfm::io {
namespace {

[[noreturn]] void write_error(const std::string& path, const std::string& what) {
  const std::string why = errno_text();
  throw Error(ExitCode::retryable, path + ": " + what + ": " + why);
}

// That a file or folder cannot be created with `error`. Some another try would meet again.
[[noreturn]] void create_error(const std::string& path, int error, const std::string& expected) {
  constexpr int kLasting[] = {ENOTDIR,      EACCES, EPERM,  EROFS, ELOOP,
                              ENAMETOOLONG, EEXIST, ENOENT, EINVAL};
  const bool lasting = std::ranges::find(kLasting, error) != std::end(kLasting);
  throw Error(lasting ? ExitCode::usage : ExitCode::retryable,
              path + ": cannot be created: " + std::generic_category().message(error) +
                  (lasting ? "; choose " + expected : ""));
}
constexpr const char* kFile = "a file in an existing directory that you may write to";

void write_fully(int fd, const std::string& path, std::span<const char> bytes) {
  while (!bytes.empty()) {
    const ssize_t n =
        ::write(fd, bytes.data(), std::min<std::size_t>(bytes.size(), std::size_t{1} << 30));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0)
      write_error(path,
                  "cannot be written after " + std::to_string(::lseek(fd, 0, SEEK_CUR)) + " bytes");
    bytes = bytes.subspan(static_cast<std::size_t>(n));
  }
}

// Opens a file for this process alone: waits for one that has it open in this way.
int open_alone(const std::string& path) {
  bool waited = false;
  for (int tries = 1;; ++tries) {
    const int fd =
        ::open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0666);
    if (fd < 0) create_error(path, errno, kFile);
    struct stat info {};
    const bool regular = ::fstat(fd, &info) == 0 && S_ISREG(info.st_mode);
    bool locked = regular && ::flock(fd, LOCK_EX | LOCK_NB) == 0;
    if (regular && !locked && errno == EWOULDBLOCK) {
      if (!std::exchange(waited, true))
        std::fprintf(stderr, "%s: another process writes this file; waiting for its end\n",
                     path.c_str());
      do locked = ::flock(fd, LOCK_EX) == 0;
      while (!locked && errno == EINTR);
    }
    // Without a lock the file system has none. With one, the writer before may have renamed it.
    constexpr int most = 100;  // on a file system whose numbers of files change
    if (regular && (!locked || is_named(fd, path) || tries == most)) return fd;
    ::close(fd);
    if (!regular) throw Error(ExitCode::usage, path + ": is not a regular file; remove it");
  }
}

// A page of a mapped file that is not there any more, as the file was cut or its disk fails, is a
// signal, whose handler can say which file it was, and end the process.
struct Mapped {
  std::atomic<const std::byte*> begin = nullptr;
  std::size_t size = 0;
  char path[256] = {};
};
Mapped mapped[4096];  // more files than these are not named

void end_for_lost_page(int, siginfo_t* info, void*) {
  const auto say = [](const char* text) {
    if (::write(STDERR_FILENO, text, std::strlen(text)) < 0) return;
  };
  const auto* const at = static_cast<const std::byte*>(info->si_addr);
  const char* path = nullptr;
  for (const Mapped& m : mapped)
    if (const std::byte* begin = m.begin; begin && at >= begin && at < begin + m.size)
      path = m.path;
  if (path) say(path);
  say(path ? ": cannot be read: it was cut while it was in use, or its disk failed\n"
           : "memory that is shared or of a file is lost: /dev/shm or a disk is full, or failed\n");
  ::_exit(static_cast<int>(ExitCode::retryable));
}

void remember(const std::byte* begin, std::size_t size, const std::string& path) {
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  static const bool handled [[maybe_unused]] = [] {
    struct sigaction action {};
    action.sa_sigaction = end_for_lost_page;
    action.sa_flags = SA_SIGINFO;
    return ::sigaction(SIGBUS, &action, nullptr) == 0;
  }();
  for (Mapped& m : mapped)
    if (!m.begin) {
      m.size = size;
      m.path[path.copy(m.path, sizeof m.path - 1)] = 0;
      m.begin = begin;
      return;
    }
}
void forget(const std::byte* begin) {
  for (Mapped& m : mapped) {
    const std::byte* mine = begin;
    m.begin.compare_exchange_strong(mine, nullptr);
  }
}

constexpr std::size_t buffer_bytes = 1 << 20;

std::string hex_of(XXH128_hash_t hash) {
  XXH128_canonical_t bytes;
  XXH128_canonicalFromHash(&bytes, hash);
  std::string text;
  for (unsigned char b : bytes.digest) text += hex_digits(b);
  return text;
}

}  // namespace

MappedFile::MappedFile(const std::string& path) : path_(path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0)
    throw Error(ExitCode::input,
                path + ": cannot be opened: " + errno_text() + "; expected a readable file");
  struct stat info {};
  std::string problem;
  if (::fstat(fd, &info) != 0) {
    problem = "cannot be read: " + errno_text();
  } else if (!S_ISREG(info.st_mode)) {
    problem = "is not a regular file; expected a readable file";
  } else if (info.st_size > 0) {
    size_ = static_cast<std::size_t>(info.st_size);
    void* at = ::mmap(nullptr, size_, PROT_READ, MAP_PRIVATE, fd, 0);
    if (at == MAP_FAILED)
      problem = "cannot be mapped: " + errno_text();
    else
      remember(data_ = static_cast<const std::byte*>(at), size_, path);
  }
  ::close(fd);
  if (!problem.empty()) throw Error(ExitCode::input, path + ": " + problem);
}

MappedFile::~MappedFile() {
  if (!data_) return;
  forget(data_);
  ::munmap(const_cast<std::byte*>(data_), size_);
}

std::string read_whole_file(const std::string& path, std::size_t max_bytes) {
  const MappedFile file(path);
  if (file.bytes().size() > max_bytes)
    throw Error(ExitCode::input, path + ": the file is too large: expected at most " +
                                     std::to_string(max_bytes) + " bytes, got " +
                                     std::to_string(file.bytes().size()));
  return {reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size()};
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

std::uint64_t Checksum::first_word() const {
  return XXH3_128bits_digest(static_cast<XXH3_state_t*>(state_.get())).high64;
}

std::string Checksum::of(std::span<const std::byte> bytes) {
  return hex_of(XXH3_128bits(bytes.data(), bytes.size()));
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

bool is_named(int fd, const std::string& path) {
  struct stat here {
  }, there{};
  if (::fstat(fd, &here) != 0 || ::stat(path.c_str(), &there) != 0) return false;
  return here.st_ino == there.st_ino && here.st_dev == there.st_dev;
}

void rename_file(const std::string& from, const std::string& to) {
  if (::rename(from.c_str(), to.c_str()) != 0) write_error(from, "cannot be renamed to " + to);
}

void remove_file(const std::string& path) {
  if (::unlink(path.c_str()) == 0) return sync_directory(parent_directory(path));
  if (errno != ENOENT) write_error(path, "cannot be removed");
}

std::string parent_directory(const std::string& path) {
  const auto slash = path.find_last_of('/');
  return slash == std::string::npos ? "." : slash == 0 ? "/" : path.substr(0, slash);
}

std::string file_to_replace(const std::string& path) {
  namespace fs = std::filesystem;
  if (path.empty())
    throw Error(ExitCode::usage,
                std::string("the name of a file to write is empty; choose ") + kFile);
  std::error_code ignored;
  const fs::file_status there = fs::status(path, ignored);
  if (fs::is_directory(there))
    throw Error(ExitCode::usage, path + ": is a directory; choose " + kFile);
  if (fs::exists(there) && !fs::is_regular_file(there))
    throw Error(ExitCode::usage, path + ": is not a regular file; choose " + kFile);
  const bool link = fs::is_symlink(fs::symlink_status(path, ignored));
  return link && fs::exists(there) ? fs::canonical(path).string() : path;
}

void create_directories(const std::string& path) {
  if (path.empty())
    throw Error(ExitCode::usage, "the name of a directory to create is empty; expected one");
  std::vector<std::string> missing;
  std::error_code error;
  for (std::string p = path; !std::filesystem::exists(p, error) && !error; p = parent_directory(p))
    missing.push_back(p);
  std::filesystem::create_directories(path, error);
  if (error) create_error(path, error.value(), "a directory that you may write to");
  for (const std::string& p : missing) sync_directory(parent_directory(p));
}

std::string temporary_of(const std::string& path) { return path + ".tmp"; }

AtomicFile::AtomicFile(const std::string& path)
    : path_(file_to_replace(path)), temporary_(temporary_of(path_)) {
  buffer_.reserve(buffer_bytes);
  fd_ = open_alone(temporary_);
  if (::ftruncate(fd_, 0) != 0) {
    const int error = errno;
    ::close(fd_);
    create_error(temporary_, error, kFile);
  }
}

AtomicFile::~AtomicFile() {
  if (fd_ < 0) return;
  ::unlink(temporary_.c_str());
  ::close(fd_);
}

void AtomicFile::write(const void* data, std::size_t bytes) {
  const std::span from(static_cast<const char*>(data), bytes);
  if (buffer_.size() + bytes > buffer_bytes) flush();
  if (bytes >= buffer_bytes)
    write_fully(fd_, path_, from);
  else
    buffer_.insert(buffer_.end(), from.begin(), from.end());
}

void AtomicFile::flush() {
  write_fully(fd_, path_, buffer_);
  buffer_.clear();
}

void AtomicFile::overwrite(std::int64_t offset, const void* data, std::size_t bytes) {
  flush();
  if (::pwrite(fd_, data, bytes, offset) != static_cast<ssize_t>(bytes))
    write_error(path_, "cannot be written at byte " + std::to_string(offset));
}

void AtomicFile::sync() {
  flush();
  if (::fsync(fd_) != 0) write_error(path_, "cannot be synced to disk");
}

void AtomicFile::publish() {
  sync();
  rename_file(temporary_, path_);
  ::close(fd_);
  fd_ = -1;
  sync_directory(parent_directory(path_));
}

void copy_file(const std::string& from, const std::string& to) {
  const MappedFile source(from);
  AtomicFile file(to);
  file.write(source.bytes().data(), source.bytes().size());
  file.publish();
}

void replace_file(const std::string& path, std::string_view text) {
  AtomicFile file(path);
  file.write(text.data(), text.size());
  file.publish();
}

}  // namespace tfm::io
