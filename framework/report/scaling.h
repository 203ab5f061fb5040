#pragma once
// Reads results of tfm-bench scaling.
#include "report/run.h"

namespace tfm::report {

// Adds the points of all *.json and *.csv files of the directory whose rows have `ranks` and
// `tokens_per_second`; other files are ignored, damaged ones and rows skipped with a note.
void read_scaling(const std::string& directory, Run& run);

}  // namespace tfm::report
