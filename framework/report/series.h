#pragma once
// Long series made short enough to draw, and the values that axes are labelled with.
#include "report/run.h"

namespace tfm::report {

// Of the values in each of `columns` equal parts of x, the smallest and the largest, in the order
// in which they come: what a line drawn through all values would cover. A gap (NaN) between values
// that stay remains one.
Series min_max(const Series& series, std::size_t columns);

// Average of the values on both sides, whose weights fall by e every `steps` values: it does not
// lag behind. Gaps are left out.
Series moving_average(const Series& series, double steps);

enum class Unit { number, count, seconds, bytes };
std::string text_of(double value, Unit unit);

// From 2 to 6 round values within [low, high].
std::vector<double> ticks(double low, double high, Unit unit);
// Powers of ten, or 1, 2 and 5 times those where there are few.
std::vector<double> log_ticks(double low, double high);

}  // namespace tfm::report
