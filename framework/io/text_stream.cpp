#include "io/text_stream.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>
#include <zstd.h>

#include <algorithm>
#include <cerrno>
#include <new>
#include <optional>
#include <vector>

#include "core/error.h"
#include "core/strings.h"
#include "core/task.h"

namespace tfm::io {
namespace {

using namespace std::string_view_literals;

constexpr std::size_t head_bytes = std::size_t{64} << 10, block_bytes = std::size_t{256} << 10;

// The magic bytes of a format, its name, and the command that converts it to text: $F is the file,
// $O the file without its extension.
struct Signature {
  std::string_view bytes, format, command;
  std::size_t at = 0;
};
constexpr Signature signatures[] = {
    {"PAR1"sv, "a Parquet file",
     "python3 -c 'import pandas, sys; pandas.read_parquet(sys.argv[1]).to_json(sys.argv[2], "
     "orient=\"records\", lines=True, force_ascii=False)' $F $O.jsonl"},
    {"ARROW1"sv, "an Arrow IPC (Feather) file",
     "python3 -c 'import pandas, sys; pandas.read_feather(sys.argv[1]).to_json(sys.argv[2], "
     "orient=\"records\", lines=True, force_ascii=False)' $F $O.jsonl"},
    {"\xFF\xFF\xFF\xFF"sv, "an Arrow IPC stream",
     "python3 -c 'import pyarrow.ipc, sys; pyarrow.ipc.open_stream(sys.argv[1]).read_pandas()"
     ".to_json(sys.argv[2], orient=\"records\", lines=True, force_ascii=False)' $F $O.jsonl"},
    {"\x93NUMPY"sv, "a NumPy array",
     "python3 -c 'import numpy, sys; numpy.savetxt(sys.argv[2], numpy.load(sys.argv[1]), "
     "fmt=\"%s\")' $F $O.txt"},
    {"\x89HDF\r\n\x1A\n"sv, "an HDF5 file",
     "python3 -c 'import pandas, sys; pandas.read_hdf(sys.argv[1]).to_json(sys.argv[2], "
     "orient=\"records\", lines=True, force_ascii=False)' $F $O.jsonl"},
    {"PK\x03\x04"sv, "a zip archive", "unzip -p $F > $O.txt"},
    {"\xFD"
     "7zXZ\0"sv,
     "xz-compressed", "xz -dc $F > $O"},
    {"BZh"sv, "bzip2-compressed", "bzip2 -dc $F > $O"},
    {"7z\xBC\xAF\x27\x1C"sv, "a 7z archive", "7z x -so $F > $O.txt"},
    {"\x04\x22\x4D\x18"sv, "LZ4-compressed", "lz4 -dc $F > $O"},
    {"\x1F\x9D"sv, "compressed with compress", "zcat $F > $O"},
    {"\x1F\x8B"sv, "gzip-compressed twice", "gzip -dc $F > $O.gz"},
    {"\x28\xB5\x2F\xFD"sv, "Zstandard-compressed twice", "zstd -dc $F > $O.zst"},
    {"ustar"sv, "a tar archive", "tar -xOf $F > $O.txt", 257},
    {"%PDF-"sv, "a PDF document", "pdftotext $F $O.txt"},
    {"SQLite format 3\0"sv, "an SQLite database", "sqlite3 $F .dump > $O.txt"},
    {"\x7F"
     "ELF"sv,
     "an ELF program", ""},
    {"\xFF\xFE\0\0"sv, "UTF-32 text", "iconv -f UTF-32 -t UTF-8 $F > $O.utf8.txt"},
    {"\0\0\xFE\xFF"sv, "UTF-32 text", "iconv -f UTF-32 -t UTF-8 $F > $O.utf8.txt"},
    {"\xFF\xFE"sv, "UTF-16 text", "iconv -f UTF-16 -t UTF-8 $F > $O.utf8.txt"},
    {"\xFE\xFF"sv, "UTF-16 text", "iconv -f UTF-16 -t UTF-8 $F > $O.utf8.txt"},
};
// The first four bytes of llm.c's token files (data/token_format.h) and of Megatron's index.
constexpr std::string_view token_files[] = {"\x88\xD8\x34\x01"sv, "\xA1\xD9\x34\x01"sv,
                                            "MMIDIDX\0"sv};
constexpr std::string_view use_of_tokens =
    "; token files are read by sources with type: tokens and, where no text is beside them, with "
    "type: mlm and type: span_corruption";

bool is_bzip2(std::string_view head) {  // more than "BZh", which a text may begin with
  return head.size() >= 10 && head[3] >= '1' && head[3] <= '9' &&
         (head.substr(4, 6) == "\x31\x41\x59\x26\x53\x59"sv ||
          head.substr(4, 6) == "\x17\x72\x45\x38\x50\x90"sv);
}

std::string command_for(std::string_view command, const std::string& path) {
  const std::size_t name = path.find_last_of('/') + 1, dot = path.rfind('.');
  const std::string out = path.substr(0, dot != path.npos && dot > name ? dot : path.size());
  std::string text;
  for (std::size_t at = 0; at < command.size(); ++at) {
    if (command.substr(at, 2) == "$F") {
      text += shell_quoted(path);
    } else if (command.substr(at, 2) == "$O") {
      const std::size_t end = std::min(command.find(' ', at), command.size());
      text += shell_quoted((out == path && end == at + 2 ? out + ".out" : out) +
                           std::string(command.substr(at + 2, end - at - 2)));
      at = end - 2;
    } else {
      text += command[at];
      continue;
    }
    ++at;
  }
  return text;
}

// The first line that is not blank, without the white space around it.
std::string_view first_line(std::string_view head) {
  constexpr std::string_view byte_order_mark = "\xEF\xBB\xBF", blank = " \t\r\n";
  if (head.starts_with(byte_order_mark)) head.remove_prefix(byte_order_mark.size());
  head.remove_prefix(std::min(head.find_first_not_of(blank), head.size()));
  head = head.substr(0, head.find('\n'));
  return head.substr(0, head.find_last_not_of(blank) + 1);
}

[[noreturn]] void input_error(const std::string& path, const std::string& what) {
  throw Error(ExitCode::input, path + ": " + what);
}

}  // namespace

std::string_view without_compression(std::string_view name) {
  for (const std::string_view end : {".gz", ".zst"})
    if (ends_with_any_case(name, end)) return name.substr(0, name.size() - end.size());
  return name;
}

bool begins_with_object_line(std::string_view head) {
  const std::string_view line = first_line(head);
  return line.starts_with('{') && (line.ends_with('}') || line.end() == head.end());
}

std::string not_text(std::string_view head, const std::string& path) {
  for (const std::string_view magic : token_files)
    if (head.starts_with(magic))
      return "is a token file; expected UTF-8 text" + std::string(use_of_tokens);
  for (const Signature& s : signatures) {
    if (head.substr(std::min(s.at, head.size()), s.bytes.size()) != s.bytes) continue;
    if (s.bytes == "BZh" && !is_bzip2(head)) continue;
    const std::string found = "is " + std::string(s.format) + "; expected UTF-8 text";
    return s.command.empty() ? found : found + "; convert it: " + command_for(s.command, path);
  }
  if (const auto nul = head.find('\0'); nul != head.npos) {
    const bool tokens = path.ends_with(".bin");
    return "is binary (byte " + std::to_string(nul) + " is NUL); expected UTF-8 text" +
           std::string(tokens ? use_of_tokens : "");
  }
  if (!ends_with_any_case(without_compression(path), ".json")) return "";
  const std::string_view line = first_line(head);
  const bool array = line.starts_with('[');
  if (array || (line.starts_with('{') && !begins_with_object_line(head))) {
    const std::string command = array ? "jq -c '.[]'" : "jq -c .";
    const bool compressed = without_compression(path).size() < path.size();
    return std::string(array ? "is a JSON array" : "is a JSON object of several lines") +
           "; expected text or JSON lines, an object a line; convert it: " +
           (compressed ? (ends_with_any_case(path, ".gz") ? "gzip -dc " : "zstd -dc ") +
                             shell_quoted(path) + " | " + command
                       : command + " " + shell_quoted(path)) +
           " > " + shell_quoted(std::string(without_compression(path)) + "l");
  }
  return "";
}

// The next bytes of a file, raw or decompressed; 0 only at the end.
class TextStream::Bytes {
 public:
  virtual ~Bytes() = default;
  virtual std::size_t read(char* out, std::size_t bytes) = 0;
};

class TextStream::Plain final : public Bytes {
 public:
  explicit Plain(const std::string& path)
      : path_(path), fd_(::open(path.c_str(), O_RDONLY | O_CLOEXEC)) {
    if (fd_ < 0) input_error(path, "cannot be read: " + errno_text());
    struct stat info {};
    if (::fstat(fd_, &info) == 0 && S_ISDIR(info.st_mode)) {
      ::close(fd_);
      input_error(path, "is a directory; expected a file");
    }
    task_.emplace("reading " + path, S_ISREG(info.st_mode) ? info.st_size : 0, Task::Unit::bytes);
  }
  ~Plain() override { ::close(fd_); }
  Plain(const Plain&) = delete;
  Plain& operator=(const Plain&) = delete;
  // Puts bytes back; they are read again before the rest.
  void unread(std::string bytes) { again_ = std::move(bytes); }
  std::size_t read(char* out, std::size_t bytes) override {
    if (!again_.empty()) {
      const std::size_t n = again_.copy(out, bytes);
      again_.erase(0, n);
      return n;
    }
    ssize_t n;
    while ((n = ::read(fd_, out, bytes)) < 0 && errno == EINTR) {
    }
    if (n < 0) throw Error(ExitCode::retryable, path_ + ": cannot be read: " + errno_text());
    task_->add(n);
    return static_cast<std::size_t>(n);
  }
  const std::string& path() const { return path_; }

 private:
  std::string path_, again_;
  int fd_;
  std::optional<Task> task_;
};

class TextStream::Gzip final : public Bytes {  // one or more members
 public:
  explicit Gzip(std::unique_ptr<Plain> file) : file_(std::move(file)), buffer_(block_bytes) {
    if (::inflateInit2(&state_, 16 + MAX_WBITS) != Z_OK) throw std::bad_alloc();
  }
  ~Gzip() override { ::inflateEnd(&state_); }
  Gzip(const Gzip&) = delete;
  Gzip& operator=(const Gzip&) = delete;
  std::size_t read(char* out, std::size_t bytes) override {
    const auto most = static_cast<uInt>(std::min(bytes, block_bytes));
    state_.next_out = reinterpret_cast<Bytef*>(out);
    state_.avail_out = most;
    while (state_.avail_out == most) {
      if (state_.avail_in == 0 && !refill()) {
        if (inside_) input_error(file_->path(), "the gzip data is truncated");
        return 0;
      }
      if (!inside_ && !begin_member()) continue;
      const int result = ::inflate(&state_, Z_NO_FLUSH);
      if (result == Z_MEM_ERROR) throw std::bad_alloc();
      if (result == Z_STREAM_END)
        inside_ = false;
      else if (result != Z_OK && result != Z_BUF_ERROR)
        input_error(file_->path(), std::string("the gzip data is damaged: ") +
                                       (state_.msg ? state_.msg : "unexpected preset dictionary"));
    }
    return most - state_.avail_out;
  }

 private:
  bool refill() {
    state_.avail_in = static_cast<uInt>(file_->read(buffer_.data(), buffer_.size()));
    state_.next_in = reinterpret_cast<Bytef*>(buffer_.data());
    return state_.avail_in > 0;
  }
  bool begin_member() {  // false: zero bytes after a member, which tar and tapes pad with
    if (started_ && *state_.next_in == 0) {
      ++state_.next_in, --state_.avail_in;
      return false;
    }
    ::inflateReset(&state_);
    return started_ = inside_ = true;
  }

  std::unique_ptr<Plain> file_;
  std::vector<char> buffer_;
  z_stream state_{};
  bool started_ = false, inside_ = false;
};

class TextStream::Zstandard final : public Bytes {  // one or more frames
 public:
  explicit Zstandard(std::unique_ptr<Plain> file)
      : file_(std::move(file)), buffer_(block_bytes), state_(::ZSTD_createDStream()) {
    if (!state_) throw std::bad_alloc();
    // Frames of `zstd --long=31` as well, whose window takes up to 2 GiB.
    ::ZSTD_DCtx_setParameter(state_, ZSTD_d_windowLogMax, 31);
  }
  ~Zstandard() override { ::ZSTD_freeDStream(state_); }
  Zstandard(const Zstandard&) = delete;
  Zstandard& operator=(const Zstandard&) = delete;
  std::size_t read(char* out, std::size_t bytes) override {
    ZSTD_outBuffer to{out, std::min(bytes, block_bytes), 0};
    while (to.pos == 0) {
      if (from_.pos == from_.size && !flush_) {
        from_ = {buffer_.data(), file_->read(buffer_.data(), buffer_.size()), 0};
        if (from_.size == 0) {
          if (wanted_ != 0) input_error(file_->path(), "the Zstandard data is truncated");
          return 0;
        }
      }
      wanted_ = ::ZSTD_decompressStream(state_, &to, &from_);
      if (::ZSTD_isError(wanted_))
        input_error(file_->path(),
                    std::string("the Zstandard data is damaged: ") + ::ZSTD_getErrorName(wanted_));
      flush_ = to.pos == to.size && wanted_ != 0;  // the decoder may hold more output
    }
    return to.pos;
  }

 private:
  std::unique_ptr<Plain> file_;
  std::vector<char> buffer_;
  ZSTD_DStream* state_;
  ZSTD_inBuffer from_{nullptr, 0, 0};
  std::size_t wanted_ = 0;  // 0: at the end of a frame
  bool flush_ = false;
};

TextStream::TextStream(const std::string& path) {
  auto file = std::make_unique<Plain>(path);
  const auto look = [&](Bytes& bytes) {
    std::string head(head_bytes, '\0');
    std::size_t size = 0;
    for (std::size_t n; size < head.size(); size += n)
      if ((n = bytes.read(head.data() + size, head.size() - size)) == 0) break;
    head.resize(size);
    return head;
  };
  const auto check = [&](std::string_view head) {
    if (const std::string problem = not_text(head, path); !problem.empty())
      input_error(path, problem);
  };
  std::string raw = look(*file);
  const bool gzip = raw.starts_with("\x1F\x8B"),
             zstandard = raw.starts_with("\x28\xB5\x2F\xFD") ||
                         (raw.size() >= 4 && (static_cast<unsigned char>(raw[0]) & 0xF0) == 0x50 &&
                          raw.substr(1, 3) == "\x2A\x4D\x18");  // a frame to skip
  if (!gzip && !zstandard) {
    check(raw);
    head_ = std::move(raw);
    bytes_ = std::move(file);
    return;
  }
  file->unread(std::move(raw));
  if (gzip)
    bytes_ = std::make_unique<Gzip>(std::move(file));
  else
    bytes_ = std::make_unique<Zstandard>(std::move(file));
  head_ = look(*bytes_);
  check(head_);
}

TextStream::~TextStream() = default;

std::size_t TextStream::read(char* out, std::size_t bytes) {
  std::size_t done = head_.copy(out, bytes);
  head_.erase(0, done);
  for (std::size_t n; done < bytes; done += n)
    if ((n = bytes_->read(out + done, bytes - done)) == 0) break;
  return done;
}

void check_text(const std::string& path) {
  const auto fail = [&](const std::string& what) {
    throw Error(ExitCode::input, path + ": " + what);
  };
  struct stat info {};
  if (::stat(path.c_str(), &info) != 0)
    fail("cannot be opened: " + errno_text() + "; expected a readable file");
  if (S_ISDIR(info.st_mode)) fail("is a directory; expected a file or a glob pattern");
  if (S_ISFIFO(info.st_mode)) return;
  if (info.st_size == 0) fail("is empty; expected text");
  const TextStream looked_at(path);
}

}  // namespace tfm::io
