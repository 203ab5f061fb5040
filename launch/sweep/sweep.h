#pragma once
// tfm-train --sweep: one run for each combination of values, one after the other.
#include "launch/support/arguments.h"

namespace tfm::launch {

// Whether a word gives a key several values: section.key=value,value,...
bool is_swept(const std::string& word);

// Starts tfm-train, by --launcher if there is one, for each combination of --sweep's values, in a
// folder of its own that is named by them; then writes a report of all. What an earlier start has
// finished is left out. Error(failed) at the end if a run failed. Returns the exit code.
int run_sweep(const Arguments& args);

}  // namespace tfm::launch
