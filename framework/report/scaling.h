#pragma once
// Reads results of tfm-bench scaling.
#include "report/run.h"

namespace tfm::report {

// The points of all *.json and *.csv files of the directory whose rows have `ranks` and
// `tokens_per_second`; other files are ignored. Damaged rows are skipped with a note.
std::vector<ScalingPoint> read_scaling(const std::string& directory,
                                       std::vector<std::string>& notes);

}  // namespace tfm::report
