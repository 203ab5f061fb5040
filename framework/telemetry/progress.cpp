#include "telemetry/progress.h"

#include <algorithm>
#include <cmath>

#include "core/strings.h"

namespace tfm::telemetry {
namespace {

std::string step_text(double seconds) {
  if (seconds >= 10) return printed("%.1f s", seconds);
  const double ms = seconds * 1e3;
  return ms >= 100  ? printed("%.0f ms", ms)
         : ms >= 10 ? printed("%.1f ms", ms)
                    : printed("%.2f ms", ms);
}

}  // namespace

std::string count_text(double value) {
  const char* const units[] = {"", "k", "M", "G", "T"};
  int unit = 0;
  for (; value >= 999.95 && unit < 4; ++unit) value /= 1000;
  return printed(unit ? "%.1f%s" : "%.0f%s", value, units[unit]);
}

std::string bytes_text(double bytes) {
  const char* const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  int unit = 0;
  for (; bytes >= 1024 && unit < 4; ++unit) bytes /= 1024;
  return printed(unit ? "%.1f %s" : "%.0f %s", bytes, units[unit]);
}

std::string duration_text(double seconds) {
  if (!(seconds >= 0 && seconds < 1e10)) return "n/a";
  const auto s = static_cast<long long>(std::llround(seconds));
  if (s < 60) return printed("%llds", s);
  if (s < 3600) return printed("%lldm%02llds", s / 60, s % 60);
  if (s < 86400) return printed("%lldh%02lldm", s / 3600, s / 60 % 60);
  return printed("%lldd%02lldh", s / 86400, s / 3600 % 24);
}

std::string step_line(const ProgressSample& s) {
  const double percent =
      s.steps > 0 ? 100.0 * static_cast<double>(s.step) / static_cast<double>(s.steps) : 0;
  return printed("step %lld/%lld %.1f%%", static_cast<long long>(s.step),
                 static_cast<long long>(s.steps), percent) +
         printed(" | loss %.4f | gnorm %.2f | lr %.2e | ", s.loss, s.grad_norm, s.lr) +
         count_text(s.tokens_per_second) + " tok/s | " +
         (s.mfu ? printed("%.1f%%", *s.mfu * 100) : "n/a") + " MFU | mem " +
         bytes_text(static_cast<double>(s.memory_bytes)) + " | " + step_text(s.step_seconds) +
         " | eta " + duration_text(s.seconds_left);
}

std::string step_bar(const ProgressSample& s) {
  constexpr std::int64_t width = 20;
  const auto full = static_cast<std::size_t>(
      s.steps > 0 ? std::clamp<std::int64_t>(width * s.step / s.steps, 0, width) : 0);
  return "[" + std::string(full, '#') + std::string(width - full, '-') + "] " +
         printed("%lld/%lld | loss %.4f | ", static_cast<long long>(s.step),
                 static_cast<long long>(s.steps), s.loss) +
         count_text(s.tokens_per_second) + " tok/s | eta " + duration_text(s.seconds_left);
}

}  // namespace tfm::telemetry
