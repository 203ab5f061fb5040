#pragma once
// The report: one self-contained HTML page.
#include <string>
#include <vector>

#include "report/run.h"

namespace tfm::report {

// The report of one run, or of several runs compared.
std::string page(const std::vector<Run>& runs);

}  // namespace tfm::report
