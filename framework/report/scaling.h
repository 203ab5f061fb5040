#pragma once
// Results of tfm-bench scaling in a directory.
#include "report/run.h"

namespace tfm::report {

// Of all *.json and *.csv files of the directory whose rows have `ranks` and `tokens_per_second`;
// other files are left alone. A row that is damaged is left out with a note.
std::vector<ScalingPoint> read_scaling(const std::string& directory,
                                       std::vector<std::string>& notes);

}  // namespace tfm::report
