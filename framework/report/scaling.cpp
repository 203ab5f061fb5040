#include "report/scaling.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <sstream>

#include "core/strings.h"
#include "io/file.h"

namespace tfm::report {
namespace {

namespace fs = std::filesystem;
using Row = std::map<std::string, std::string>;

constexpr std::uintmax_t kLargest = 4 << 20;  // bytes of a file of results

std::vector<std::string> cells_of(const std::string& line) {
  std::vector<std::string> cells(1);
  bool quoted = false;
  for (const char c : line) {
    if (c == '"')
      quoted = !quoted;
    else if (c == ',' && !quoted)
      cells.emplace_back();
    else if (c != '\r')
      cells.back() += c;
  }
  return cells;
}

std::vector<Row> rows_of_csv(const std::string& text) {
  std::istringstream in(text);
  std::string line;
  std::getline(in, line);
  const std::vector<std::string> names = cells_of(line);
  std::vector<Row> rows;
  while (std::getline(in, line)) {
    const std::vector<std::string> cells = cells_of(line);
    Row row;
    for (std::size_t i = 0; i < std::min(cells.size(), names.size()); ++i) row[names[i]] = cells[i];
    if (!line.empty()) rows.push_back(std::move(row));
  }
  return rows;
}

// An array of points, or an object that has it. Nothing of what is not JSON.
std::optional<std::vector<Row>> rows_of_json(const std::string& text) {
  using Json = nlohmann::json;
  Json json = Json::parse(text, nullptr, false);
  if (json.is_discarded()) return {};
  if (json.is_object()) json = json.value("points", Json());
  std::vector<Row> rows;
  for (const Json& entry : json.is_array() ? json : Json::array()) {
    if (!entry.is_object()) continue;
    Row& row = rows.emplace_back();
    for (const auto& [name, value] : entry.items())
      if (!value.is_structured() && !value.is_null())
        row[name] = value.is_string() ? value.get<std::string>() : value.dump();
  }
  return rows;
}

std::optional<double> number_of(const Row& row, const char* name) {
  const auto at = row.find(name);
  if (at == row.end()) return {};
  char* end = nullptr;
  const double value = std::strtod(at->second.c_str(), &end);
  if (at->second.empty() || *end != 0 || !std::isfinite(value)) return {};
  return value;
}

std::optional<ScalingPoint> point_of(const Row& row) {
  const auto ranks = number_of(row, "ranks"), rate = number_of(row, "tokens_per_second");
  if (!ranks || !rate || *ranks < 1 || *rate <= 0) return {};
  ScalingPoint point{.ranks = *ranks, .tokens_per_second = *rate};
  for (const char* name : {"mode", "scaling"})
    if (const auto at = row.find(name); at != row.end()) point.mode = at->second;
  if (const auto at = row.find("axis"); at != row.end() && !at->second.empty())
    point.mode += " " + at->second;
  point.efficiency = number_of(row, "efficiency");
  point.predicted = number_of(row, "predicted_tokens_per_second");
  const auto over = row.find("oversubscribed");
  point.oversubscribed = over != row.end() && over->second.find_first_of("tT1") == 0;
  return point;
}

}  // namespace

void read_scaling(const std::string& directory, Run& run) {
  std::error_code error;
  std::vector<fs::path> files;
  for (const fs::directory_entry& e : fs::directory_iterator(directory, error))
    if (const auto suffix = e.path().extension(); (suffix == ".json" || suffix == ".csv") &&
                                                  e.is_regular_file(error) &&
                                                  e.file_size(error) <= kLargest)
      files.push_back(e.path());
  std::ranges::sort(files);
  std::vector<ScalingPoint>& points = run.scaling;
  for (const fs::path& file : files) {
    run.files.push_back(file.string());
    const std::string text = io::read_whole_file(file.string(), kLargest);
    const auto rows = file.extension() == ".csv" ? rows_of_csv(text) : rows_of_json(text);
    if (!rows) {
      run.notes.push_back(file.filename().string() + ": not JSON, skipped");
      continue;
    }
    std::size_t left_out = 0;
    for (const Row& row : *rows) {
      if (!row.contains("ranks") || !row.contains("tokens_per_second")) continue;
      if (const auto skipped = row.find("skipped");
          skipped != row.end() && !skipped->second.empty())
        continue;
      const auto point = point_of(row);
      // The same results as CSV and as JSON are shown once.
      const auto same = [&](const ScalingPoint& p) {
        return p.mode == point->mode && p.ranks == point->ranks &&
               std::abs(p.tokens_per_second / point->tokens_per_second - 1) < 1e-6;
      };
      if (!point)
        ++left_out;
      else if (std::ranges::none_of(points, same))
        points.push_back(*point);
    }
    if (left_out > 0)
      run.notes.push_back(file.filename().string() + ": " + counted(left_out, "row") +
                          " without numbers of ranks and tokens per second skipped");
  }
  std::ranges::stable_sort(points, {},
                           [](const ScalingPoint& p) { return std::pair(p.mode, p.ranks); });
}

}  // namespace tfm::report
