#pragma once
// Shortens long series for drawing, and chooses the values that label axes.
#include "report/run.h"

namespace tfm::report {

// For each of `columns` equal parts of x, the smallest and the largest value in order of x: what a
// line drawn through all values would cover. A gap (NaN) between remaining values stays a gap.
Series min_max(const Series& series, std::size_t columns);

// A centered moving average, which does not lag: the weights of the values on both sides fall by a
// factor of e every `steps` values. Gaps are skipped.
Series moving_average(const Series& series, double steps);

enum class Unit { number, count, seconds, bytes, date };  // date: Unix time, in UTC
std::string text_of(double value, Unit unit);

// 2 to 6 round values within [low, high].
std::vector<double> ticks(double low, double high, Unit unit);
// Powers of ten, or 1, 2 and 5 times those if they would be few.
std::vector<double> log_ticks(double low, double high);

}  // namespace tfm::report
