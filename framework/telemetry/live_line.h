#pragma once
// One line at the bottom of a terminal that is written over and over, below lines that stay.
#include <cstdio>
#include <string>

#include "core/task.h"

namespace tfm::telemetry {

// From now on this process shows its live line and its tasks on standard error, where that is a
// terminal that can move its cursor (TERM is set, and not dumb). Has no colours.
void show_progress();

// Draws the line, at most ten times a second; nothing without show_progress().
void set_live_line(const std::string& text);
void clear_live_line();
// A line that stays, with the live line below it. At once.
void print_line(std::FILE* to, const std::string& text);

// "verifying step-00000500 45.2% | 1.2 GiB of 2.7 GiB | 410.3 MiB/s | eta 4s"
std::string task_text(const TaskState& task);

}  // namespace tfm::telemetry
