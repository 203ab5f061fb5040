#pragma once
// The sections of a report, as HTML. Each is empty if no run has what it shows.
#include <string>
#include <vector>

#include "report/chart.h"

namespace tfm::report {

using Runs = std::vector<Run>;
using Rows = std::vector<std::vector<std::string>>;

// "A", "B", ...; empty if there is one run.
std::string letter(const Runs& runs, std::size_t i);
std::string label(const Runs& runs, std::size_t i);  // "A: name"
inline int style_of(std::size_t i) { return static_cast<int>(i % kStyles); }
std::string id_of(const std::string& title);  // of a picture
double mean_after_first(const Series& s);     // of finite values; NaN: none

std::string table(const std::string& caption, const std::vector<std::string>& header,
                  const Rows& rows);
// A picture with a heading, a line about it, and a table, if any, that can be opened below it.
std::string figure(const std::string& title, const std::string& about, const std::string& picture,
                   const std::string& table);

// The picture over steps, and where the runs have times over those; the page shows one of them.
std::string draw_over_axes(const Runs& runs, LineChart chart);

std::string differences(const Runs& runs);  // between the configurations of several runs
std::string summary(const Runs& runs);
std::string loss(const Runs& runs);
std::string evaluations(const Runs& runs);
std::string optimization(const Runs& runs);  // learning rate, gradient norm, loss scale
std::string speed(const Runs& runs);         // throughput, MFU, time of a step
std::string phases(const Runs& runs);
std::string memory(const Runs& runs);
std::string collectives(const Runs& runs);
std::string experts(const Runs& runs);  // their load
std::string scaling(const Runs& runs);
std::string configuration(const Runs& runs);

}  // namespace tfm::report
