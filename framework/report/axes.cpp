#include <algorithm>
#include <cmath>
#include <limits>

#include "report/sections.h"

namespace tfm::report {
namespace {

// From step 0 to the last of all runs, with the steps that runs resumed from.
void align_steps(const Runs& runs, LineChart& chart) {
  for (const Run& run : runs)
    chart.x_end = std::max(chart.x_end, static_cast<double>(run.last_step));
  for (std::size_t i = 0; i < runs.size(); ++i)
    for (const std::int64_t step : runs[i].restarts)
      chart.marks.push_back({.x = static_cast<double>(step),
                             .text = (runs.size() > 1 ? label(runs, i) + " " : "") +
                                     "resumed from step " + std::to_string(step),
                             .style = runs.size() > 1 ? style_of(i) : -1,
                             .run = i});
  chart.marks_label = "resumed from a checkpoint";
}

}  // namespace

std::string draw_over_axes(const Runs& runs, LineChart chart) {
  align_steps(runs, chart);
  if (std::ranges::all_of(runs, [](const Run& run) { return run.elapsed.empty(); }))
    return draw(chart);
  std::string html = "<div class=\"x-step\">" + draw(chart) + "</div>";
  double first = std::numeric_limits<double>::infinity();
  for (const Run& run : runs)
    if (!run.dates.empty()) first = std::min(first, run.dates.y.front());
  const std::string day = text_of(std::floor(first / 86400) * 86400, Unit::date);
  struct Axis {
    std::string name, label;
    Unit unit;
    Series Run::*times;
  };
  for (const Axis& axis : {Axis{"time", "time of running", Unit::seconds, &Run::elapsed},
                           Axis{"date", "time (UTC) from " + day, Unit::date, &Run::dates}}) {
    LineChart over = chart;
    over.id += "-" + axis.name;
    over.x_label = axis.label, over.x_unit = axis.unit, over.x_end = 0;
    for (Line& line : over.lines)
      for (double& x : line.series.x) x = (runs[line.run].*axis.times).value_at(x);
    for (Mark& mark : over.marks) mark.x = (runs[mark.run].*axis.times).value_at(mark.x);
    std::erase_if(over.lines, [&](const Line& l) { return (runs[l.run].*axis.times).empty(); });
    html += "<div class=\"x-" + axis.name + "\">" + draw(over) + "</div>";
  }
  return html;
}

}  // namespace tfm::report
