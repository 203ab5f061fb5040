#pragma once
// The report: one self-contained HTML page.
#include <string>
#include <vector>

#include "report/run.h"

namespace tfm::report {

// The report of one run, or of several runs compared. `inside`: the section of that name, or empty;
// the page may have it alone.
std::string page(const std::vector<Run>& runs, const std::string& inside = {});

}  // namespace tfm::report
