#include "report/series.h"

#include <algorithm>
#include <cmath>
#include <ctime>

#include "core/strings.h"
#include "telemetry/progress.h"

namespace tfm::report {
namespace {

// "100.0k" as "100k", "4.0 MiB" as "4 MiB".
std::string without_zero(std::string text) {
  if (const auto at = text.find(".0");
      at != std::string::npos && (at + 2 == text.size() || !std::isdigit(text[at + 2])))
    text.erase(at, 2);
  return text;
}

std::string seconds_text(double s) {
  const double size = std::abs(s);
  if (size >= 120) return telemetry::duration_text(s);
  if (size >= 1 || s == 0) return printed("%.4g s", s);
  return size >= 1e-3 ? printed("%.4g ms", s * 1e3) : printed("%.4g us", s * 1e6);
}

// A date where a day begins, else the time of day.
std::string date_text(double unix_time) {
  const auto t = static_cast<std::time_t>(std::llround(unix_time));
  std::tm utc{};
  gmtime_r(&t, &utc);
  char text[32];
  const char* const form = t % 86400 == 0 ? "%Y-%m-%d" : t % 60 == 0 ? "%H:%M" : "%H:%M:%S";
  std::strftime(text, sizeof text, form, &utc);
  return text;
}

// Seconds between ticks of a clock or a calendar.
double time_step(double rough) {
  constexpr double minute = 60, hour = 3600, day = 86400;
  for (const double step :
       {1.0,        2.0,         5.0,         10.0,     30.0,     minute,   2 * minute,
        5 * minute, 10 * minute, 30 * minute, hour,     2 * hour, 6 * hour, 12 * hour,
        day,        2 * day,     5 * day,     10 * day, 30 * day, 100 * day})
    if (step >= rough * 0.999) return step;
  return 365 * day * std::ceil(rough / (365 * day));
}

}  // namespace

Series min_max(const Series& series, std::size_t columns) {
  const std::size_t n = series.x.size();
  if (n <= 2 * columns) return series;
  const double first = series.x.front(), width = series.x.back() - first;
  Series kept;
  for (std::size_t begin = 0; begin < n;) {
    const auto column = [&](std::size_t i) {
      const double part = width > 0 ? (series.x[i] - first) / width : 0;
      return std::min(columns - 1, static_cast<std::size_t>(part * static_cast<double>(columns)));
    };
    std::size_t end = begin, low = n, high = n, gap = n;
    for (; end < n && column(end) == column(begin); ++end) {
      const double y = series.y[end];
      if (!std::isfinite(y)) {
        gap = end;
        continue;
      }
      if (low == n || y < series.y[low]) low = end;
      if (high == n || y > series.y[high]) high = end;
    }
    std::vector<std::size_t> chosen;
    for (const std::size_t i : {low, high, gap})
      if (i < n) chosen.push_back(i);
    std::ranges::sort(chosen);
    chosen.erase(std::unique(chosen.begin(), chosen.end()), chosen.end());
    for (const std::size_t i : chosen) kept.add(series.x[i], series.y[i]);
    begin = end;
  }
  return kept;
}

Series moving_average(const Series& series, double steps) {
  const double keep = std::exp(-1 / steps);
  Series smooth;
  for (std::size_t i = 0; i < series.x.size(); ++i)
    if (std::isfinite(series.y[i])) smooth.add(series.x[i], series.y[i]);
  const std::size_t n = smooth.y.size();
  const std::vector<double> values = smooth.y;
  std::vector<double> sums(n), weights(n);
  for (const bool forward : {true, false}) {
    double sum = 0, weight = 0;
    for (std::size_t k = 0; k < n; ++k) {
      const std::size_t i = forward ? k : n - 1 - k;
      sum = keep * sum, weight = keep * weight;
      // A value's own weight is counted on the way forward only.
      sums[i] += sum, weights[i] += weight;
      sum += values[i], weight += 1;
      if (forward) sums[i] += values[i], weights[i] += 1;
    }
  }
  for (std::size_t i = 0; i < n; ++i) smooth.y[i] = sums[i] / weights[i];
  return smooth;
}

std::string text_of(double value, Unit unit) {
  if (!std::isfinite(value)) return "n/a";
  switch (unit) {
    case Unit::count:
      return without_zero(value < 0      ? printed("%.0f", value)
                          : value < 1000 ? printed("%.4g", value)
                                         : telemetry::count_text(value));
    case Unit::seconds:
      return seconds_text(value);
    case Unit::bytes:
      return without_zero(telemetry::bytes_text(value));
    case Unit::date:
      return date_text(value);
    case Unit::number:
      break;
  }
  return printed("%.4g", value);
}

std::vector<double> ticks(double low, double high, Unit unit) {
  double scale = 1;
  if (unit == Unit::bytes)
    while (high / scale >= 1024) scale *= 1024;
  const double span = (high - low) / scale, rough = span / 5,
               power = std::pow(10, std::floor(std::log10(rough)));
  double step = power * 10;
  for (const double factor : {5.0, 2.0, 1.0})
    if (factor * power >= rough * 0.999) step = factor * power;
  step *= scale;
  if (unit == Unit::date || (unit == Unit::seconds && span >= 120)) step = time_step(rough);
  std::vector<double> values;
  for (double k = std::ceil(low / step - 1e-9); k * step <= high + 1e-9 * step; ++k)
    values.push_back(k == 0 ? 0 : k * step);  // not -0
  return values;
}

std::vector<double> log_ticks(double low, double high) {
  const int first = static_cast<int>(std::floor(std::log10(low))),
            last = static_cast<int>(std::ceil(std::log10(high))),
            stride = std::max(1, (last - first) / 6);
  const bool few = high < 1000 * low;
  std::vector<double> values;
  for (int e = first; e <= last; e += stride)
    for (const double factor : {1.0, 2.0, 5.0}) {
      if (factor > 1 && !few) continue;
      const double value = factor * std::pow(10, e);
      if (value >= low * 0.999 && value <= high * 1.001) values.push_back(value);
    }
  return values;
}

}  // namespace tfm::report
