#include "telemetry/live_line.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <mutex>

#include "core/strings.h"
#include "telemetry/progress.h"

namespace tfm::telemetry {
namespace {

using Clock = std::chrono::steady_clock;

constexpr auto kPause = std::chrono::milliseconds(100);  // between two drawings
constexpr double kShortTask = 0.3;                       // seconds; shorter ones are not shown

struct Terminal {  // of this process
  std::mutex mutex;
  bool on = false;
  std::string text;  // of the live line; empty: there is none
  Clock::time_point drawn;
};
Terminal& terminal() {
  static Terminal t;
  return t;
}

// As long as the terminal is wide, so that it does not wrap.
std::string fitted(const std::string& text) {
  winsize size{};
  const bool known = ::ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 1;
  return text.substr(0, known ? size.ws_col - 1u : 79u);
}

// The cursor stays at the start of the line: what others print begins there.
void draw(const std::string& text) {
  std::fprintf(stderr, "\r\x1b[K%s\r", fitted(text).c_str());
  std::fflush(stderr);
}

}  // namespace

void show_progress() {
  const char* const kind = std::getenv("TERM");
  if (!::isatty(STDERR_FILENO) || !kind || !*kind || std::string(kind) == "dumb") return;
  terminal().on = true;
  watch_tasks([](const TaskState& task) {
    if (task.over)
      clear_live_line();
    else if (task.seconds >= kShortTask)
      set_live_line(task_text(task));
  });
}

void set_live_line(const std::string& text) {
  Terminal& t = terminal();
  if (!t.on) return;
  const std::lock_guard lock(t.mutex);
  const auto now = Clock::now();
  if (!t.text.empty() && now - t.drawn < kPause) return;
  t.text = text;
  t.drawn = now;
  draw(text);
}

void clear_live_line() {
  Terminal& t = terminal();
  const std::lock_guard lock(t.mutex);
  if (!t.text.empty()) draw("");
  t.text.clear();
}

void print_line(std::FILE* to, const std::string& text) {
  Terminal& t = terminal();
  const std::lock_guard lock(t.mutex);
  if (!t.text.empty()) draw("");
  std::fprintf(to, "%s\n", text.c_str());
  std::fflush(to);
  if (!t.text.empty()) draw(t.text);
}

std::string task_text(const TaskState& task) {
  const auto amount = [&](double value) {
    return task.bytes ? bytes_text(value) : count_text(value);
  };
  const auto done = static_cast<double>(task.done), total = static_cast<double>(task.total);
  const double rate = task.seconds > 0 ? done / task.seconds : 0;
  std::string text = task.what;
  if (task.total > 0) text += printed(" %.1f%%", 100 * done / total);
  text += " | " + amount(done) + (task.total > 0 ? " of " + amount(total) : "");
  if (rate > 0) text += " | " + amount(rate) + "/s";
  if (rate > 0 && total >= done) text += " | eta " + duration_text((total - done) / rate);
  return text;
}

}  // namespace tfm::telemetry
