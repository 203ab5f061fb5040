#include "data/labelled_rows.h"

#include <algorithm>
#include <charconv>
#include <limits>
#include <nlohmann/json.hpp>

#include "core/error.h"
#include "core/strings.h"
#include "data/lines.h"
#include "io/json.h"
#include "text/documents.h"

namespace tfm::data {
namespace {

[[noreturn]] void fail(const std::string& where, const std::string& problem) {
  throw Error(ExitCode::input, where + ": " + problem);
}

std::vector<std::string_view> columns_of(std::string_view line) {
  std::vector<std::string_view> columns;
  for (std::size_t begin = 0;;) {
    const std::size_t end = std::min(line.find('\t', begin), line.size());
    columns.push_back(line.substr(begin, end - begin));
    if (end == line.size()) return columns;
    begin = end + 1;
  }
}

bool give(const LabelledRow& row, const config::SourceConfig& c, const LabelledSink& sink) {
  for (const auto& [text, column] : {std::pair{row.text, c.text}, {row.pair, c.text_pair}})
    if (!column.empty() && text.empty())
      fail(row.where, "column " + in_quotes(column) + " is empty; expected a text");
  return sink(row);
}

std::int64_t read_table(Lines& lines, const config::SourceConfig& c, const LabelledSink& sink) {
  if (!lines.next()) return 0;
  constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";
  std::string header(lines.line());
  if (header.starts_with(kByteOrderMark)) header.erase(0, kByteOrderMark.size());
  const auto names = columns_of(header);
  const auto index_of = [&](const std::string& column, const char* key) {
    const auto found = std::ranges::find(names, column);
    if (found == names.end())
      fail(lines.where(), "the header has no column " + in_quotes(column) + "; expected " + key +
                              " to be one of " + shorten(join(names), 200));
    return static_cast<std::size_t>(found - names.begin());
  };
  const std::size_t text = index_of(c.text, "text"), label = index_of(c.label, "label"),
                    pair = c.text_pair.empty() ? 0 : index_of(c.text_pair, "text_pair");
  std::int64_t rows = 0;
  while (lines.next()) {
    const auto columns = columns_of(lines.line());
    if (columns.size() != names.size())
      fail(lines.where(), "found " + counted(columns.size(), "column") + "; expected the " +
                              std::to_string(names.size()) + " of the header");
    ++rows;
    if (!give({columns[text], c.text_pair.empty() ? std::string_view{} : columns[pair],
               columns[label], lines.where()},
              c, sink))
      break;
  }
  return rows;
}

std::int64_t read_objects(Lines& lines, const config::SourceConfig& c, const LabelledSink& sink) {
  std::int64_t rows = 0;
  while (lines.next()) {
    if (lines.line().find_first_not_of(" \t") == std::string_view::npos) continue;
    const nlohmann::json object = io::parse_json(lines.line(), lines.where());
    const io::JsonNode node(object, lines.where());
    const std::string pair = c.text_pair.empty() ? "" : node.at(c.text_pair).string();
    const io::JsonNode label = node.at(c.label);
    const std::string label_text =
        label.is_string() ? label.string()
                          : std::to_string(label.integer(std::numeric_limits<std::int64_t>::min(),
                                                         std::numeric_limits<std::int64_t>::max()));
    ++rows;
    if (!give({node.at(c.text).string(), pair, label_text, lines.where()}, c, sink)) break;
  }
  return rows;
}

}  // namespace

void each_labelled_row(const std::string& path, const config::SourceConfig& source,
                       const LabelledSink& sink) {
  Lines lines(path);
  const std::int64_t rows = text::is_json_lines(path) ? read_objects(lines, source, sink)
                                                      : read_table(lines, source, sink);
  if (rows == 0) fail(path, "the file has no rows; expected at least one below the header");
}

void check_labelled_file(const std::string& path, const config::SourceConfig& source) {
  each_labelled_row(path, source, [](const LabelledRow&) { return false; });
}

std::int32_t class_of(const LabelledRow& row, const config::HeadConfig& head) {
  const std::string found = "the label " + in_quotes(std::string(row.label));
  if (!head.labels.empty()) {
    const auto at = std::ranges::find(head.labels, row.label);
    if (at == head.labels.end())
      fail(row.where,
           found + " is none of the labels of head " + in_quotes(head.name) + "; expected " +
               shorten(join(std::vector<std::string_view>(head.labels.begin(), head.labels.end())),
                       200));
    return static_cast<std::int32_t>(at - head.labels.begin());
  }
  std::int32_t number = -1;
  const char* const end = row.label.data() + row.label.size();
  const auto [stop, problem] = std::from_chars(row.label.data(), end, number);
  if (problem != std::errc{} || stop != end || number < 0 || number >= head.classes)
    fail(row.where, found + " is no class of head " + in_quotes(head.name) +
                        "; expected a number from 0 to " + std::to_string(head.classes - 1) +
                        ", or the names of the classes in the head's labels");
  return number;
}

}  // namespace tfm::data
