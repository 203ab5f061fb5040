#pragma once
// Output of the results of tfm-bench scaling. A point is one number of ranks on one axis; all
// points have the same keys, with null for missing values.
#include "launch/bench/bench.h"

namespace tfm::launch {

void print_scaling_header();
void print_scaling_point(const nlohmann::ordered_json& point);
void write_scaling_csv(const std::string& path, const nlohmann::ordered_json& points);
// Plots tokens per second against ranks: a line for each axis, next to the planner's prediction.
void write_scaling_svg(const std::string& path, const nlohmann::ordered_json& results);

}  // namespace tfm::launch
