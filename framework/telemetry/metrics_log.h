#pragma once
// metrics.jsonl: one JSON object per line, in the order of the steps. A line is written by one
// write(2), so a killed run tears at most its last line, which is dropped at resume.
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace tfm::telemetry {

// Builds one line: {"event":"step","step":1,...}. A double is printed with the fewest digits that
// read back to the same double; NaN and infinities, which JSON lacks, become null.
class MetricsLine {
 public:
  explicit MetricsLine(std::string_view event) { add("event", event); }
  MetricsLine& add(std::string_view key, double value);
  MetricsLine& add(std::string_view key, std::int64_t value);
  MetricsLine& add(std::string_view key, int value) {
    return add(key, static_cast<std::int64_t>(value));
  }
  MetricsLine& add(std::string_view key, std::string_view value);
  MetricsLine& add(std::string_view key, const char* value) {
    return add(key, std::string_view(value));
  }
  // An object or array, verbatim.
  MetricsLine& add_json(std::string_view key, std::string_view json);
  MetricsLine& add_null(std::string_view key) { return add_json(key, "null"); }
  std::string text() const { return "{" + body_ + "}\n"; }

 private:
  std::string body_;
};

// Whether the file begins as a run's metrics do, or has a line of them in its first MiB: lines may
// be damaged. Error if it cannot be read.
bool is_metrics_file(const std::string& path);

class MetricsLog {
 public:
  // `resumed`: the step from which the run resumes. Without it, or with 0, the file is started
  // anew, and one with lines is renamed to FILE.old or, where that is taken, FILE.old.2 and so on.
  // Otherwise records up to that step are kept, once each, as are `start` events; later steps, torn
  // lines and `end` events are removed. `due`: the evaluation of that step will be repeated, so its
  // record is removed. Creates missing folders. Error(retryable) if that fails, or if another
  // process has the file open for this.
  explicit MetricsLog(std::string path, std::optional<std::int64_t> resumed = std::nullopt,
                      bool due = false);
  ~MetricsLog();
  MetricsLog(const MetricsLog&) = delete;
  MetricsLog& operator=(const MetricsLog&) = delete;

  // Appends a whole line or nothing, to a new file where somebody has removed this one. Returns "",
  // or why it failed; training continues either way.
  std::string write(const MetricsLine& line);

  const std::string& old() const { return old_; }  // the renamed file; empty: none

 private:
  void begin(std::optional<std::int64_t> resumed, bool due);
  void open();

  std::string path_, old_;
  int fd_ = -1;
};

}  // namespace tfm::telemetry
