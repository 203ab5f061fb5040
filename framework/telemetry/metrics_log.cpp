#include "telemetry/metrics_log.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <charconv>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "core/error.h"
#include "io/file.h"
#include "telemetry/append.h"

namespace tfm::telemetry {
namespace {

namespace fs = std::filesystem;

std::string json_text(std::string_view text) {
  return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

template <class T>
std::string shortest(T value) {
  char text[64];
  const auto end = std::to_chars(text, text + sizeof text, value).ptr;
  return {text, end};
}

// A line's object, which has the name of an event; null for any other line.
nlohmann::json event_in(std::string_view line) {
  nlohmann::json json = nlohmann::json::parse(line, nullptr, false);
  if (!json.is_object() || !json.contains("event") || !json["event"].is_string()) json = nullptr;
  return json;
}

// Whether a line of the resumed run's earlier part is kept; `seen` has the kept ones before it.
bool stays(std::string_view line, std::int64_t resumed, bool due, std::set<std::string>& seen) {
  const nlohmann::json json = event_in(line);
  if (json.is_null()) return false;
  const auto event = json["event"].get<std::string>();
  if (event == "start") return true;
  if (event == "end" || !json.contains("step") || !json["step"].is_number_integer()) return false;
  const auto step = json["step"].get<std::int64_t>();
  if (due && event == "eval" && step == resumed) return false;
  return step <= resumed && seen.insert(event + " " + std::to_string(step) +
                                        json.value("split", nlohmann::json()).dump())
                                .second;
}

std::string kept_lines(std::string_view all, std::int64_t resumed, bool due) {
  std::string kept;
  std::set<std::string> seen;
  for (std::size_t at = 0, end; (end = all.find('\n', at)) != std::string_view::npos; at = end + 1)
    if (const auto line = all.substr(at, end - at); stays(line, resumed, due, seen))
      kept.append(line).push_back('\n');
  return kept;
}

}  // namespace

bool is_metrics_file(const std::string& path) {
  const io::MappedFile file(path);
  std::string_view text(reinterpret_cast<const char*>(file.bytes().data()),
                        std::min<std::size_t>(file.bytes().size(), std::size_t{1} << 20));
  if (text.starts_with(R"({"event":"start")")) return true;
  for (std::size_t end; (end = text.find('\n')) != text.npos; text.remove_prefix(end + 1)) {
    const nlohmann::json json = event_in(text.substr(0, end));
    if (json.is_null()) continue;
    const auto event = json["event"].get<std::string>();
    for (const char* known : {"start", "step", "eval", "checkpoint", "end"})
      if (event == known) return true;
  }
  return false;
}

MetricsLine& MetricsLine::add_json(std::string_view key, std::string_view json) {
  if (!body_.empty()) body_ += ',';
  body_.append(json_text(key)).append(":").append(json);
  return *this;
}
MetricsLine& MetricsLine::add(std::string_view key, double value) {
  return std::isfinite(value) ? add_json(key, shortest(value)) : add_null(key);
}
MetricsLine& MetricsLine::add(std::string_view key, std::int64_t value) {
  return add_json(key, shortest(value));
}
MetricsLine& MetricsLine::add(std::string_view key, std::string_view value) {
  return add_json(key, json_text(value));
}

MetricsLog::MetricsLog(std::string path, std::optional<std::int64_t> resumed, bool due)
    : path_(std::move(path)) {
  try {
    fs::create_directories(io::parent_directory(path_));
  } catch (const fs::filesystem_error& e) {
    throw Error(ExitCode::retryable,
                path_ + ": cannot create its directory: " + e.code().message());
  }
  open();
  try {
    begin(resumed, due);
  } catch (...) {
    if (fd_ >= 0) ::close(fd_);
    throw;
  }
}

void MetricsLog::begin(std::optional<std::int64_t> resumed, bool due) {
  std::error_code ignored;
  if (!fs::is_regular_file(path_, ignored) || fs::file_size(path_, ignored) == 0) return;
  if (!is_metrics_file(path_))
    throw Error(ExitCode::usage, path_ + ": is there, and no run's metrics; it is left as it is");
  if (resumed.value_or(0) > 0) {
    const io::MappedFile whole(path_);
    const std::string kept = kept_lines(
        {reinterpret_cast<const char*>(whole.bytes().data()), whole.bytes().size()}, *resumed, due);
    if (kept.size() == whole.bytes().size()) return;
    io::replace_file(path_, kept);
  } else {
    const std::string file = io::file_to_replace(path_);
    std::string old = file + ".old";
    for (int n = 2; fs::exists(fs::symlink_status(old, ignored)); ++n)
      old = file + ".old." + std::to_string(n);
    fs::rename(file, old, ignored);
    if (ignored)
      throw Error(ExitCode::retryable, path_ + ": cannot be renamed: " + ignored.message());
    old_ = old;
  }
  ::close(std::exchange(fd_, -1));
  open();
}

// Not blocking: a pipe that nobody reads is an error.
void MetricsLog::open() {
  fd_ = ::open(path_.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NONBLOCK, 0644);
  if (fd_ < 0) throw Error(ExitCode::retryable, path_ + ": cannot open: " + errno_text());
  struct stat found {};
  if (::fstat(fd_, &found) != 0 || !S_ISREG(found.st_mode) ||
      ::flock(fd_, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK)
    return;
  ::close(std::exchange(fd_, -1));
  throw Error(ExitCode::retryable,
              path_ + ": another run is writing it; stop it or set another metrics.jsonl");
}

MetricsLog::~MetricsLog() { ::close(fd_); }

std::string MetricsLog::write(const MetricsLine& line) {
  struct stat found {};
  if (::fstat(fd_, &found) == 0 && found.st_nlink == 0) {
    ::close(std::exchange(fd_, -1));
    try {
      open();
    } catch (const Error& e) {
      return e.what();
    }
  }
  return append(fd_, path_, line.text());
}

}  // namespace tfm::telemetry
