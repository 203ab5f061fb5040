#pragma once
// The report: one HTML page that needs nothing beside it.
#include <string>
#include <vector>

#include "report/run.h"

namespace tfm::report {

// Of one run, or of several compared.
std::string page(const std::vector<Run>& runs);

}  // namespace tfm::report
