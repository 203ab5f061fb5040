#include "report/sections.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <set>

#include "core/strings.h"
#include "telemetry/progress.h"

namespace tfm::report {
namespace {

constexpr std::size_t kTableRows = 60;

std::string value_text(double value) {
  if (!std::isfinite(value)) return "n/a";
  const auto logged = static_cast<float>(value);
  return std::isfinite(logged) ? number_text(logged) : number_text(value);
}

struct Column {
  std::string title;
  const Series* series;
};

// Rows at steps that some column has, evenly spread, with the first and the last.
std::string steps_table(const std::string& caption, const std::vector<Column>& columns) {
  std::vector<double> steps;
  for (const Column& c : columns) {
    std::vector<double> all;
    std::ranges::set_union(steps, c.series->x, std::back_inserter(all));
    steps = std::move(all);
  }
  std::vector<std::string> header{"step"};
  for (const Column& c : columns) header.push_back(c.title);
  Rows rows;
  const std::size_t count = std::min(steps.size(), kTableRows);
  for (std::size_t i = 0; i < count; ++i) {
    const double step = steps[count > 1 ? i * (steps.size() - 1) / (count - 1) : 0];
    std::vector<std::string>& row = rows.emplace_back(1, number_text(step));
    for (const Column& c : columns) {
      const auto at = std::ranges::lower_bound(c.series->x, step);
      row.push_back(
          at != c.series->x.end() && *at == step
              ? value_text(c.series->y[static_cast<std::size_t>(at - c.series->x.begin())])
              : "");
    }
  }
  return table(caption + (count < steps.size() ? ": " + std::to_string(count) + " of " +
                                                     std::to_string(steps.size()) + " steps"
                                               : ""),
               header, rows);
}

// In words, for those who do not see the picture.
std::string described(const Runs& runs, std::size_t i, const Series& s) {
  const std::string name = runs.size() > 1 ? label(runs, i) + ": " : "";
  if (s.finite() == 0) return name + "no values. ";
  double low = INFINITY, high = -INFINITY, first = NAN, last = NAN;
  for (const double v : s.y) {
    if (!std::isfinite(v)) continue;
    if (!std::isfinite(first)) first = v;
    last = v, low = std::min(low, v), high = std::max(high, v);
  }
  return name + "first " + text_of(first, Unit::number) + ", last " + text_of(last, Unit::number) +
         ", lowest " + text_of(low, Unit::number) + ", highest " + text_of(high, Unit::number) +
         ", up to step " + text_of(s.x.back(), Unit::count) + ". ";
}

// A metric of the steps of all runs.
struct MetricFigure {
  std::string title, about, y_label;
  Unit unit = Unit::number;
  bool log_y = false, from_zero = false;
  enum class Kind { line, smoothed, markers } kind = Kind::line;
};

// A line, or where there are many values, pale as it is and strong as an average. True: the latter.
bool add_smoothed(LineChart& chart, const Line& line) {
  const std::size_t n = line.series.finite();
  if (n < 100) {
    chart.lines.push_back(line);
    return false;
  }
  Line pale = line, average = line;
  pale.kind = Line::Kind::raw, pale.label.clear(), pale.tag.clear();
  average.kind = Line::Kind::average;
  average.series = moving_average(line.series, static_cast<double>(n) / 100);
  chart.lines.push_back(std::move(pale));
  chart.lines.push_back(std::move(average));
  return true;
}

constexpr const char* kSmoothed = " Pale: as logged; strong: smoothed.";

std::string metric_figure(const Runs& runs, const MetricFigure& f,
                          const std::function<const Series&(const Run&)>& series_of) {
  LineChart chart{.id = id_of(f.title),
                  .title = f.title,
                  .y_label = f.y_label,
                  .y_unit = f.unit,
                  .log_y = f.log_y,
                  .from_zero = f.from_zero};
  std::vector<Column> columns;
  bool smoothed = false;
  for (std::size_t i = 0; i < runs.size(); ++i) {
    const Series& s = series_of(runs[i]);
    if (s.finite() == 0) continue;
    chart.description += described(runs, i, s);
    const Line line{
        .label = runs.size() > 1 ? label(runs, i) : "",
        .style = style_of(i),
        .series = s,
        .kind = f.kind == MetricFigure::Kind::markers ? Line::Kind::markers : Line::Kind::line,
        .tag = letter(runs, i),
        .run = i};
    if (f.kind == MetricFigure::Kind::smoothed)
      smoothed |= add_smoothed(chart, line);
    else
      chart.lines.push_back(line);
    columns.push_back({runs.size() > 1 ? label(runs, i) : f.title, &s});
  }
  if (columns.empty()) return "";
  return figure(f.title, f.about + (smoothed ? kSmoothed : ""), draw_over_axes(runs, chart),
                steps_table(f.title, columns));
}

bool spans_decades(const Runs& runs, const std::string& metric) {
  double low = INFINITY, high = 0;
  for (const Run& run : runs)
    for (const double v : run.step(metric).y)
      if (std::isfinite(v)) low = std::min(low, v), high = std::max(high, v);
  return low > 0 && high > 30 * low;
}

}  // namespace

std::string id_of(const std::string& title) {
  std::string id = "fig-";
  for (const char c : title) id += std::isalnum(static_cast<unsigned char>(c)) ? c : '-';
  return id;
}

double mean_after_first(const Series& s) {
  double sum = 0;
  std::size_t count = 0;
  for (std::size_t i = s.y.size() > 1 ? 1 : 0; i < s.y.size(); ++i)
    if (std::isfinite(s.y[i])) sum += s.y[i], ++count;
  return count ? sum / static_cast<double>(count) : NAN;
}

std::string letter(const Runs& runs, std::size_t i) {
  if (runs.size() == 1) return "";
  const std::string last(1, static_cast<char>('A' + i % 26));
  return i < 26 ? last : std::string(1, static_cast<char>('A' + i / 26 - 1)) + last;
}

std::string label(const Runs& runs, std::size_t i) {
  return runs.size() == 1 ? runs[0].name : letter(runs, i) + ": " + runs[i].name;
}

std::string table(const std::string& caption, const std::vector<std::string>& header,
                  const Rows& rows) {
  std::string out = "<div class=\"scroll\" role=\"region\" tabindex=\"0\" aria-label=\"" +
                    escaped(caption) + "\"><table><caption>" + escaped(caption) +
                    "</caption><thead><tr>";
  for (const std::string& h : header) out += "<th scope=\"col\">" + escaped(h) + "</th>";
  out += "</tr></thead><tbody>\n";
  for (const auto& row : rows) {
    out += "<tr>";
    for (const std::string& cell : row) out += "<td>" + escaped(cell) + "</td>";
    out += "</tr>\n";
  }
  return out + "</tbody></table></div>\n";
}

std::string figure(const std::string& title, const std::string& about, const std::string& picture,
                   const std::string& table) {
  return "<figure><figcaption><h3>" + escaped(title) + "</h3><p>" + escaped(about) +
         "</p></figcaption>\n" + picture +
         (table.empty() ? ""
                        : "<details><summary>Table: " + escaped(title) + "</summary>\n" + table +
                              "</details>") +
         "</figure>\n";
}

std::string loss(const Runs& runs) {
  LineChart chart{.id = "fig-loss", .title = "Loss", .y_label = "nats per label"};
  std::vector<Column> columns;
  bool smoothed = false;
  for (std::size_t i = 0; i < runs.size(); ++i) {
    const Run& run = runs[i];
    const Series& train = run.step("loss");
    const std::string name = runs.size() > 1 ? label(runs, i) + ", " : "";
    if (train.finite() > 0) {
      chart.description += described(runs, i, train);
      smoothed |= add_smoothed(chart, {.label = name + "training",
                                       .style = style_of(i),
                                       .series = train,
                                       .tag = letter(runs, i),
                                       .run = i});
      columns.push_back({name + "training", &train});
    }
    if (const auto at = run.evaluations.find("loss"); at != run.evaluations.end()) {
      chart.lines.push_back({.label = name + "validation",
                             .style = runs.size() > 1 ? style_of(i) : 1,
                             .series = at->second,
                             .kind = Line::Kind::markers,
                             .run = i});
      columns.push_back({name + "validation", &at->second});
    }
  }
  if (columns.empty()) return "";
  std::string about =
      "Training loss of each logged step, loss on the validation data where it was "
      "evaluated.";
  if (smoothed) about += kSmoothed;
  std::string html =
      figure("Loss", about, draw_over_axes(runs, chart), steps_table("Loss", columns));
  html.replace(html.find("<figure>"), 8, "<figure class=\"wide\">");
  return "<div class=\"figures\">" + html + "</div>\n";
}

std::string evaluations(const Runs& runs) {
  std::vector<std::string> metrics;
  for (const Run& run : runs)
    for (const auto& [name, series] : run.evaluations)
      if (std::ranges::count(metrics, name) == 0) metrics.push_back(name);
  std::erase(metrics, "loss");  // has a picture of its own
  std::string html;
  for (const std::string& metric : metrics) {
    static const Series none;
    html += metric_figure(runs,
                          {.title = "Validation " + metric,
                           .about = "On the validation data.",
                           .y_label = metric,
                           .kind = MetricFigure::Kind::markers},
                          [&](const Run& run) -> const Series& {
                            const auto at = run.evaluations.find(metric);
                            return at == run.evaluations.end() ? none : at->second;
                          });
  }
  return html.empty() ? "" : "<div class=\"figures\">" + html + "</div>\n";
}

std::string loss_terms(const Runs& runs) {
  std::set<std::string> terms;
  for (const Run& run : runs)
    for (const auto& [name, series] : run.steps)
      if (name.starts_with("loss_") && name != "loss_scale") terms.insert(name);
  std::string html;
  for (const std::string& term : terms)
    html += metric_figure(runs,
                          {.title = "Loss of " + term.substr(5),
                           .about = "A term of the training loss, without its weight.",
                           .y_label = "nats per label",
                           .kind = MetricFigure::Kind::smoothed},
                          [&](const Run& run) -> const Series& { return run.step(term); });
  return html;
}

std::string optimization(const Runs& runs) {
  const auto of = [](const char* metric) {
    return [metric](const Run& run) -> const Series& { return run.step(metric); };
  };
  std::string html =
      loss_terms(runs) +
      metric_figure(runs,
                    {.title = "Learning rate",
                     .about = "As the schedule set it.",
                     .y_label = "learning rate",
                     .from_zero = true},
                    of("lr")) +
      metric_figure(
          runs,
          {.title = "Gradient norm",
           .about = "L2 norm over all parameters, before clipping. Gaps: NaN or infinite.",
           .y_label = spans_decades(runs, "grad_norm") ? "norm, logarithmic" : "norm",
           .log_y = spans_decades(runs, "grad_norm"),
           .from_zero = !spans_decades(runs, "grad_norm"),
           .kind = MetricFigure::Kind::smoothed},
          of("grad_norm"));
  const bool scaled = std::ranges::any_of(runs, [](const Run& run) {
    return std::ranges::any_of(run.step("loss_scale").y, [](double v) { return v > 1; });
  });
  if (scaled)
    html += metric_figure(runs,
                          {.title = "Loss scale",
                           .about = "Of fp16 training.",
                           .y_label = "factor, logarithmic",
                           .unit = Unit::count,
                           .log_y = true},
                          of("loss_scale"));
  return html.empty() ? "" : "<div class=\"figures\">" + html + "</div>\n";
}

std::string speed(const Runs& runs) {
  const auto of = [](const char* metric) {
    return [metric](const Run& run) -> const Series& { return run.step(metric); };
  };
  std::string flops;
  for (std::size_t i = 0; i < runs.size(); ++i)
    if (const double seconds = mean_after_first(runs[i].step("step_seconds"));
        runs[i].rank_flops > 0 && seconds > 0)
      flops += (flops.empty() ? " Matrix products of a rank, in GFLOP/s: " : ", ") +
               letter(runs, i) + (runs.size() > 1 ? " " : "") +
               text_of(runs[i].rank_flops / seconds * 1e-9, Unit::number);
  if (!flops.empty()) flops += ".";
  const std::string html =
      metric_figure(runs,
                    {.title = "Throughput",
                     .about = "Tokens per second of all ranks together." + flops,
                     .y_label = "tokens per second",
                     .unit = Unit::count,
                     .from_zero = true,
                     .kind = MetricFigure::Kind::smoothed},
                    of("tokens_per_second")) +
      metric_figure(runs,
                    {.title = "Model FLOPs utilization",
                     .about = "Share of the device's peak that the model's matrix products reach.",
                     .y_label = "MFU",
                     .from_zero = true,
                     .kind = MetricFigure::Kind::smoothed},
                    of("mfu")) +
      metric_figure(runs,
                    {.title = "Time per step",
                     .about = "From one batch to the next, without evaluations and checkpoints.",
                     .y_label = "time",
                     .unit = Unit::seconds,
                     .from_zero = true,
                     .kind = MetricFigure::Kind::smoothed},
                    of("step_seconds"));
  return html.empty() ? "" : "<div class=\"figures\">" + html + "</div>\n";
}

std::string scaling(const Runs& runs) {
  LineChart chart{.id = "fig-scaling",
                  .title = "Throughput against ranks",
                  .x_label = "ranks",
                  .y_label = "tokens per second",
                  .y_unit = Unit::count,
                  .from_zero = true};
  Rows rows;
  int style = 0;
  for (std::size_t i = 0; i < runs.size(); ++i) {
    std::map<std::string, std::vector<ScalingPoint>> modes;
    for (const ScalingPoint& p : runs[i].scaling) modes[p.mode].push_back(p);
    for (const auto& [mode, points] : modes) {
      const std::string name = (runs.size() > 1 ? label(runs, i) + ", " : "") +
                               (mode.empty() ? "measured" : mode + " scaling");
      Series measured, ideal, predicted;
      for (const ScalingPoint& p : points) {
        measured.add(p.ranks, p.tokens_per_second);
        ideal.add(p.ranks, points[0].tokens_per_second / points[0].ranks * p.ranks);
        if (p.predicted) predicted.add(p.ranks, *p.predicted);
        rows.push_back({name, value_text(p.ranks), value_text(p.tokens_per_second),
                        p.efficiency ? value_text(*p.efficiency) : "",
                        p.predicted ? value_text(*p.predicted) : "",
                        p.oversubscribed ? "oversubscribed: more threads than cores" : ""});
      }
      chart.description += name + ": from " + text_of(measured.y.front(), Unit::count) + " at " +
                           value_text(measured.x.front()) + " ranks to " +
                           text_of(measured.y.back(), Unit::count) + " at " +
                           value_text(measured.x.back()) + ". ";
      chart.lines.push_back({.label = name + ", ideal",
                             .style = style % kStyles,
                             .series = ideal,
                             .kind = Line::Kind::faint});
      if (!predicted.empty())
        chart.lines.push_back(
            {.label = name + ", predicted", .style = style % kStyles, .series = predicted});
      chart.lines.push_back({.label = name,
                             .style = style % kStyles,
                             .series = measured,
                             .kind = Line::Kind::markers});
      ++style;
    }
  }
  if (rows.empty()) return "";
  return "<div class=\"figures\">" +
         figure("Throughput against ranks",
                "Results of tfm-bench scaling found beside the metrics. Ideal: proportional to the "
                "ranks, from the fewest on.",
                draw(chart),
                table("Throughput against ranks",
                      {"scaling", "ranks", "tokens/s", "efficiency", "predicted tokens/s", "note"},
                      rows)) +
         "</div>\n";
}

}  // namespace tfm::report
