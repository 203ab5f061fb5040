// What a report says of a run's plan and of its configuration.
#include <algorithm>
#include <cmath>
#include <functional>
#include <set>

#include "config/settings.h"
#include "core/strings.h"
#include "report/sections.h"
#include "telemetry/progress.h"

namespace tfm::report {
namespace {

// Of the order given; others follow by name.
std::vector<std::string> ordered(const std::set<std::string>& names,
                                 std::initializer_list<const char*> order) {
  std::vector<std::string> all;
  for (const char* name : order)
    if (names.contains(name)) all.emplace_back(name);
  for (const std::string& name : names)
    if (std::ranges::count(all, name) == 0) all.push_back(name);
  return all;
}

std::string words_table(std::string html) {
  const std::string plain = "<table>";
  html.replace(html.find(plain), plain.size(), "<table class=\"words\">");
  return html;
}

// A bar for each run, a category for each part of it.
std::string parts_figure(const Runs& runs, const std::string& title, const std::string& about,
                         Unit unit, const std::vector<std::string>& categories,
                         const std::function<double(const Run&, const std::string&)>& value) {
  BarChart chart{.id = id_of(title), .title = title};
  std::vector<std::string> header{"part"};
  Rows rows;
  for (const std::string& c : categories) rows.push_back({c});
  rows.push_back({"sum"});
  for (std::size_t i = 0; i < runs.size(); ++i) {
    Bar bar{.label = label(runs, i)};
    double sum = 0;
    for (std::size_t c = 0; c < categories.size(); ++c) {
      const double v = value(runs[i], categories[c]);
      bar.segments.push_back({style_of(c), std::max(v, 0.0)});
      rows[c].push_back(text_of(v, unit));
      sum += v;
    }
    bar.text = text_of(sum, unit);
    header.push_back(label(runs, i));
    rows.back().push_back(bar.text);
    chart.description += label(runs, i) + ": " + bar.text + " in all";
    for (std::size_t c = 0; c < categories.size(); ++c)
      chart.description += ", " + categories[c] + " " + rows[c].back();
    chart.description += ". ";
    if (sum > 0) chart.bars.push_back(bar);
  }
  for (std::size_t c = 0; c < categories.size(); ++c)
    if (std::ranges::any_of(chart.bars, [&](const Bar& b) { return b.segments[c].value > 0; }))
      chart.categories.push_back(
          {style_of(c), categories[c] + (runs.size() == 1 ? " " + rows[c].back() : "")});
  return figure(title, about, draw(chart), table(title, header, rows));
}

std::string layout_text(const Run& run) {
  std::string text;
  for (const auto& [axis, size] : run.layout)
    text += (text.empty() ? "" : " x ") + axis + " " + std::to_string(size);
  return text;
}

std::string state_of(const Run& run) {
  if (run.end == "steps") return "finished";
  if (run.end == "no_improvement") return "finished: early stop, no improvement";
  if (run.end == "request") return "stopped on request";
  return run.end.empty() ? "running, or ended without a word" : "ended: " + run.end;
}

std::string best_of(const Run& run) {
  const auto at = run.evaluations.find("loss");
  if (at == run.evaluations.end() || at->second.finite() == 0) return "";
  const Series& s = at->second;
  std::size_t best = s.y.size();
  for (std::size_t i = 0; i < s.y.size(); ++i)
    if (std::isfinite(s.y[i]) && (best == s.y.size() || s.y[i] < s.y[best])) best = i;
  return text_of(s.y[best], Unit::number) + " at step " + number_text(s.x[best]);
}

// Of all steps: each that was logged stands for those after the one logged before.
struct Total {
  double sum = 0;
  bool exact = true;
};
Total total_of(const Run& run, const Series& s) {
  Total total;
  auto before = static_cast<double>(run.begin);
  for (std::size_t i = 0; i < s.x.size(); before = s.x[i++]) {
    const double steps = s.x[i] - before;
    if (std::isfinite(s.y[i])) total.sum += s.y[i] * steps;
    total.exact &= steps == 1;
  }
  return total;
}

std::string setting_of(const Run& run, const std::string& key) {
  for (const config::Setting& s : config::settings_of(run.config))
    if (s.key == key) return s.value;
  return "";
}

}  // namespace

std::string summary(const Runs& runs) {
  std::vector<std::string> header{""};
  for (std::size_t i = 0; i < runs.size(); ++i) header.push_back(label(runs, i));
  Rows rows;
  const auto add = [&](const std::string& what, const std::function<std::string(const Run&)>& of) {
    std::vector<std::string> row{what};
    bool any = false;
    for (const Run& run : runs) any |= !row.emplace_back(of(run)).empty();
    if (any) rows.push_back(std::move(row));
  };
  add("state", [](const Run& r) { return state_of(r); });
  add("steps", [](const Run& r) {
    const std::string of = setting_of(r, "train.steps");
    return std::to_string(r.last_step) + (of.empty() ? "" : " of " + of);
  });
  add("last training loss", [](const Run& r) { return text_of(r.last("loss"), Unit::number); });
  add("best validation loss", best_of);
  add("parameters", [](const Run& r) {
    return r.parameters > 0 ? text_of(static_cast<double>(r.parameters), Unit::count) : "";
  });
  add("ranks", [](const Run& r) {
    return r.world > 0 ? std::to_string(r.world) + " (" + layout_text(r) + ")" : "";
  });
  add("tokens trained on", [](const Run& r) {
    const Total tokens = total_of(r, r.step("tokens"));
    return tokens.sum > 0 ? (tokens.exact ? "" : "about ") + text_of(tokens.sum, Unit::count) : "";
  });
  add("time in steps", [](const Run& r) {
    const Total time = total_of(r, r.step("step_seconds"));
    return time.sum > 0 ? (time.exact ? "" : "about ") + telemetry::duration_text(time.sum) : "";
  });
  for (const char* what : {"evaluation", "checkpoints"})
    add(std::string("time in ") + what, [what](const Run& r) {
      const auto at = r.seconds_outside.find(what);
      return at == r.seconds_outside.end() ? "" : telemetry::duration_text(at->second);
    });
  add("resumed", [](const Run& r) {
    return r.restarts.empty()
               ? ""
               : "from step " +
                     join(std::vector<std::int64_t>(r.restarts.begin(), r.restarts.end()));
  });
  add("steps skipped (NaN or Inf)",
      [](const Run& r) { return r.nonfinite > 0 ? std::to_string(r.nonfinite) + " logged" : ""; });
  add("memory planned per rank", [](const Run& r) {
    return r.planned_bytes > 0 ? text_of(static_cast<double>(r.planned_bytes), Unit::bytes) : "";
  });
  add("precision", [](const Run& r) { return setting_of(r, "precision"); });
  add("device", [](const Run& r) { return setting_of(r, "device"); });
  add("tfm", [](const Run& r) { return r.version; });
  add("directory", [](const Run& r) { return r.path; });
  return words_table(table("Summary", header, rows));
}

std::string phases(const Runs& runs) {
  std::set<std::string> names;
  for (const Run& run : runs)
    for (const auto& [name, series] : run.phases) names.insert(name);
  if (names.empty()) return "";
  const auto mean = [](const Run& run, const std::string& name) {
    const auto at = run.phases.find(name);
    return at == run.phases.end() ? 0.0 : mean_after_first(at->second);
  };
  return "<div class=\"figures\">" +
         parts_figure(runs, "Time of a step by phase",
                      "Mean of the logged steps on rank 0, without the first. Forward and backward "
                      "contain the collectives of the tensor axis, and waiting for other ranks.",
                      Unit::seconds,
                      ordered(names, {"data", "forward", "recompute", "backward", "reduce",
                                      "optimizer", "step", "other"}),
                      mean) +
         "</div>\n";
}

std::string memory(const Runs& runs) {
  std::set<std::string> names;
  LineChart chart{.id = "fig-activations",
                  .title = "Activations over a step",
                  .x_label = "% of the instructions of a step",
                  .y_label = "bytes in use",
                  .x_unit = Unit::number,
                  .y_unit = Unit::bytes,
                  .from_zero = true,
                  .x_end = 100};
  Rows rows;
  for (std::size_t i = 0; i < runs.size(); ++i) {
    for (const auto& [name, bytes] : runs[i].memory) names.insert(name);
    const std::vector<std::int64_t>& bytes = runs[i].activations;
    if (bytes.empty()) continue;
    const auto share = [&](std::size_t part) {
      return 100 * (static_cast<double>(part) + 0.5) / static_cast<double>(bytes.size());
    };
    Series s;
    for (std::size_t k = 0; k < bytes.size(); ++k) s.add(share(k), static_cast<double>(bytes[k]));
    const auto most = std::ranges::max_element(bytes);
    const std::size_t at = static_cast<std::size_t>(most - bytes.begin());
    rows.push_back(
        {label(runs, i), std::to_string(runs[i].instructions),
         text_of(static_cast<double>(*most), Unit::bytes), text_of(share(at), Unit::number) + " %",
         text_of(share(static_cast<std::size_t>(runs[i].backward)), Unit::number) + " %"});
    chart.description += label(runs, i) + ": at most " + rows.back()[2] + ", at " + rows.back()[3] +
                         " of the step. ";
    chart.lines.push_back({.label = runs.size() > 1 ? label(runs, i) : "",
                           .style = style_of(i),
                           .series = s,
                           .kind = runs.size() == 1 ? Line::Kind::filled : Line::Kind::line,
                           .tag = letter(runs, i)});
    if (runs.size() == 1)
      chart.marks.push_back(
          {.x = share(static_cast<std::size_t>(runs[i].backward)), .text = "backward begins"});
    chart.marks_label = "backward pass begins";
  }
  std::string html;
  if (!names.empty())
    html += parts_figure(runs, "Memory by category", "What rank 0 took at the start.", Unit::bytes,
                         ordered(names, {"parameters", "gradients", "optimizer", "master_weights",
                                         "average", "activations", "batch", "constants"}),
                         [](const Run& run, const std::string& name) {
                           const auto at = run.memory.find(name);
                           return at == run.memory.end() ? 0.0 : static_cast<double>(at->second);
                         });
  if (!rows.empty())
    html += figure("Activations over a step",
                   "Bytes of activations and their gradients in use while a step runs, as planned.",
                   draw(chart),
                   table("Activations over a step",
                         {"run", "instructions", "most bytes", "where", "backward begins"}, rows));
  return html.empty() ? "" : "<div class=\"figures\">" + html + "</div>\n";
}

std::string collectives(const Runs& runs) {
  std::set<std::string> axes;
  Rows rows;
  for (std::size_t i = 0; i < runs.size(); ++i)
    for (const CollectiveTotal& c : runs[i].collectives) {
      axes.insert(c.axis);
      rows.push_back({label(runs, i), c.axis, c.op,
                      text_of(static_cast<double>(c.bytes), Unit::bytes), std::to_string(c.count),
                      text_of(static_cast<double>(c.bytes * c.count), Unit::bytes)});
    }
  const bool known = std::ranges::any_of(runs, [](const Run& r) { return !r.memory.empty(); });
  if (rows.empty())
    return known ? "<p class=\"none\">A step of one rank has no collectives.</p>\n" : "";
  BarChart chart{.id = "fig-collectives", .title = "Collectives of a step by axis"};
  const std::vector<std::string> order = ordered(axes, {"data", "tensor", "world"});
  for (std::size_t i = 0; i < runs.size(); ++i) {
    Bar bar{.label = label(runs, i)};
    double all = 0;
    for (std::size_t a = 0; a < order.size(); ++a) {
      double sum = 0;
      for (const CollectiveTotal& c : runs[i].collectives)
        if (c.axis == order[a]) sum += static_cast<double>(c.bytes * c.count);
      bar.segments.push_back({style_of(a), sum});
      all += sum;
      chart.description +=
          label(runs, i) + ", " + order[a] + ": " + text_of(sum, Unit::bytes) + ". ";
    }
    bar.text = text_of(all, Unit::bytes);
    if (all > 0) chart.bars.push_back(bar);
  }
  for (std::size_t a = 0; a < order.size(); ++a)
    chart.categories.push_back({style_of(a), order[a] + " axis"});
  return "<div class=\"figures\">" +
         figure("Collectives of a step by axis",
                "Bytes of the whole tensors that are exchanged, as planned.", draw(chart),
                table("Collectives of a step by axis",
                      {"run", "axis", "operation", "bytes", "count", "together"}, rows)) +
         "</div>\n";
}

std::string differences(const Runs& runs) {
  std::vector<std::string> keys;
  std::vector<std::map<std::string, std::string>> values(runs.size());
  for (std::size_t i = 0; i < runs.size(); ++i)
    for (const config::Setting& s : config::settings_of(runs[i].config)) {
      // Each run has a name of its own and files of its own.
      if (s.key == "run.name" || s.key == "checkpoint.dir" || s.key.starts_with("metrics."))
        continue;
      if (std::ranges::count(keys, s.key) == 0) keys.push_back(s.key);
      values[i][s.key] = s.value;
    }
  if (keys.empty() || runs.size() == 1) return "";
  std::vector<std::string> header{"key"};
  for (std::size_t i = 0; i < runs.size(); ++i) header.push_back(label(runs, i));
  Rows rows;
  for (const std::string& key : keys) {
    std::vector<std::string> row{key};
    for (const auto& of : values) row.push_back(of.contains(key) ? of.at(key) : "not set");
    if (std::ranges::any_of(row.begin() + 1, row.end(),
                            [&](const std::string& v) { return v != row[1]; }))
      rows.push_back(std::move(row));
  }
  return rows.empty() ? "<p class=\"none\">The configurations do not differ.</p>\n"
                      : words_table(table("Keys whose values differ", header, rows));
}

std::string configuration(const Runs& runs) {
  std::string html;
  for (std::size_t i = 0; i < runs.size(); ++i)
    if (!runs[i].config.empty())
      html += "<details><summary>Effective configuration of " + escaped(label(runs, i)) +
              "</summary>\n<pre tabindex=\"0\">" + escaped(runs[i].config) + "</pre></details>\n";
  return html;
}

}  // namespace tfm::report
