#pragma once
// How the results of tfm-bench scaling are written down. A point is one number of ranks on one
// axis; all points have the same keys, and null where there is no value.
#include "launch/bench/bench.h"

namespace tfm::launch {

void print_scaling_header();
void print_scaling_point(const nlohmann::ordered_json& point);
void write_scaling_csv(const std::string& path, const nlohmann::ordered_json& points);
// Tokens per second against ranks: a line for each axis, beside what the planner predicts for it.
void write_scaling_svg(const std::string& path, const nlohmann::ordered_json& results);

}  // namespace tfm::launch
