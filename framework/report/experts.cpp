#include <algorithm>
#include <cmath>

#include "core/strings.h"
#include "report/sections.h"

namespace tfm::report {
namespace {

constexpr std::size_t kMostRows = 512;  // of the map over time

constexpr const char* kColors =
    "White: an even load. Orange: more, at full strength four times as much. Blue: less, at full "
    "strength a quarter or nothing.";

// Loads are multiples of an even one.
double color_of(double load) { return load > 0 ? std::log2(load) / 2 : -1; }

std::string loads_table(const std::string& title, const ExpertLoads& loads) {
  Rows rows;
  for (const auto& [layer, of] : loads.layers) {
    const auto [least, most] = std::ranges::minmax(of);
    rows.push_back(
        {layer, std::to_string(of.size()), printed("%.2f", most), printed("%.2f", least)});
  }
  return table(title, {"layer", "experts", "busiest", "idlest"}, rows);
}

std::string last_step(const Runs& runs, std::size_t i) {
  const ExpertLoads& last = runs[i].expert_loads.back();
  const std::string title = "Load of experts at step " + number_text(last.step) +
                            (runs.size() > 1 ? ", " + label(runs, i) : "");
  HeatMap map{.id = id_of(title), .title = title, .description = "A row for each layer."};
  for (const auto& [layer, of] : last.layers) {
    map.labels.push_back(layer);
    std::ranges::transform(of, std::back_inserter(map.rows.emplace_back()), color_of);
  }
  return figure(title, std::string("A row for each layer, a column for each expert. ") + kColors,
                draw(map), loads_table(title, last));
}

std::string over_time(const Runs& runs, std::size_t i) {
  const auto& steps = runs[i].expert_loads;
  std::size_t count = 0;
  for (const auto& [layer, of] : steps.back().layers) count += of.size();
  if (steps.size() < 2 || count > kMostRows) return "";
  const std::string title =
      "Load of experts by step" + (runs.size() > 1 ? ", " + label(runs, i) : std::string());
  HeatMap map{.id = id_of(title), .title = title, .description = "A row for each expert."};
  for (std::size_t l = 0; l < steps.back().layers.size(); ++l) {
    const auto& [layer, of] = steps.back().layers[l];
    for (std::size_t e = 0; e < of.size(); ++e) {
      map.labels.push_back(e == 0 ? layer : "");
      std::vector<double>& row = map.rows.emplace_back();
      for (const ExpertLoads& s : steps)
        row.push_back(l < s.layers.size() && e < s.layers[l].second.size()
                          ? color_of(s.layers[l].second[e])
                          : 0);
    }
  }
  return figure(title,
                "A row for each expert of each layer, a column for each of " +
                    std::to_string(steps.size()) + " logged steps from " +
                    number_text(steps.front().step) + " to " + number_text(steps.back().step) +
                    ". " + kColors,
                draw(map), loads_table(title, steps.back()));
}

}  // namespace

std::string experts(const Runs& runs) {
  std::string html;
  for (std::size_t i = 0; i < runs.size(); ++i)
    if (!runs[i].expert_loads.empty()) html += last_step(runs, i) + over_time(runs, i);
  return html;
}

}  // namespace tfm::report
