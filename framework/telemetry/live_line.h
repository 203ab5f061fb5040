#pragma once
// A line at the bottom of a terminal that is redrawn, below lines that stay.
#include <cstdio>
#include <string>

#include "core/task.h"

namespace tfm::telemetry {

// Makes this process show its live line and its tasks on standard error, if that is a terminal that
// can move its cursor (TERM is set and not dumb). Uses no colours.
void show_progress();

// Draws the line, at most ten times a second; does nothing before show_progress().
void set_live_line(const std::string& text);
void clear_live_line();
// Prints a line that stays, with the live line below it, at once.
void print_line(std::FILE* to, const std::string& text);

// "verifying step-00000500 45.2% | 1.2 GiB of 2.7 GiB | 410.3 MiB/s | eta 4s"
std::string task_text(const TaskState& task);

}  // namespace tfm::telemetry
