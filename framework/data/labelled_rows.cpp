#include "data/labelled_rows.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>

#include "core/error.h"
#include "core/strings.h"
#include "data/lines.h"
#include "io/json.h"
#include "io/text_stream.h"
#include "text/documents.h"

namespace tfm::data {
namespace {

constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";

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

// What a reader of rows needs.
struct Wanted {
  const config::SourceConfig& source;
  const std::vector<std::string>& labels;
  const LabelledSink& sink;
  bool give(const LabelledRow& row) const {
    for (const auto& [text, column] : {std::pair{row.text, source.text},
                                       {row.pair, source.text_pair},
                                       {row.negative, source.negative}})
      if (!column.empty() && text.empty())
        fail(row.where, "column " + in_quotes(column) + " is empty; expected a text");
    return sink(row);
  }
};

std::int64_t read_table(Lines& lines, const Wanted& wanted) {
  if (!lines.next()) return 0;
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
  const config::SourceConfig& c = wanted.source;
  const std::size_t text = index_of(c.text, "text"),
                    pair = c.text_pair.empty() ? 0 : index_of(c.text_pair, "text_pair"),
                    negative = c.negative.empty() ? 0 : index_of(c.negative, "negative");
  std::vector<std::size_t> labels;
  for (const std::string& column : wanted.labels)
    labels.push_back(index_of(column, wanted.labels.size() == 1 ? "label" : "the head's name"));
  std::int64_t rows = 0;
  while (lines.next()) {
    const auto columns = columns_of(lines.line());
    if (columns.size() != names.size())
      fail(lines.where(), "found " + counted(columns.size(), "column") + "; expected the " +
                              std::to_string(names.size()) + " of the header");
    ++rows;
    LabelledRow row{
        columns[text], c.text_pair.empty() ? std::string_view{} : columns[pair], {}, lines.where()};
    for (const std::size_t label : labels) row.labels.push_back(columns[label]);
    if (!c.negative.empty()) row.negative = columns[negative];
    if (!wanted.give(row)) break;
  }
  return rows;
}

// A text or a number; of a list its items, with spaces between them.
std::string text_of(const io::JsonNode& node) {
  if (node.is_string()) return node.string();
  if (!node.is_array()) return number_text(node.number());
  std::string all;
  for (const io::JsonNode& item : node.items()) {
    const std::string text = item.is_array() ? "" : text_of(item);
    if (words_of(text).size() != 1 || words_of(text)[0] != text)
      item.fail("found " + in_quotes(text) + "; expected a word, or the label of one");
    all += (all.empty() ? "" : " ") + text;
  }
  return all;
}

std::string names_in(const nlohmann::json& object) {
  std::string names;
  for (const auto& [name, value] : object.items()) names += (names.empty() ? "" : ", ") + name;
  return names;
}

std::int64_t read_objects(Lines& lines, const Wanted& wanted) {
  const config::SourceConfig& c = wanted.source;
  std::int64_t rows = 0;
  while (lines.next()) {
    if (lines.line().find_first_not_of(" \t") == std::string_view::npos) continue;
    const nlohmann::json object = io::parse_json(lines.line(), lines.where());
    const io::JsonNode node(object, lines.where());
    const auto member = [&](const std::string& name, const char* key) {
      const auto found = node.find(name);
      if (!found)
        fail(lines.where(), "member \"" + name + "\" is missing; expected " + key +
                                " to be one of " + shorten(names_in(object), 200));
      return *found;
    };
    const io::JsonNode words = member(c.text, "text");
    const std::string text = words.is_array() ? text_of(words) : words.string(),
                      pair = c.text_pair.empty() ? "" : member(c.text_pair, "text_pair").string(),
                      negative = c.negative.empty() ? "" : member(c.negative, "negative").string();
    std::vector<std::string> labels;
    for (const std::string& column : wanted.labels) {
      const auto found =
          wanted.labels.size() == 1 ? std::optional(member(column, "label")) : node.find(column);
      labels.push_back(found ? text_of(*found) : "");
    }
    ++rows;
    if (!wanted.give({text, pair, {labels.begin(), labels.end()}, lines.where(), negative})) break;
  }
  return rows;
}

std::int64_t read_words(Lines& lines, const Wanted& wanted) {
  if (wanted.labels.size() != 1 || !wanted.source.text_pair.empty())
    fail(lines.where(),
         "a file *.conll has one column of labels and no text_pair; expected "
         "another kind of file for a model with several heads, or for pairs");
  std::int64_t rows = 0;
  std::string text, labels, where;
  const auto give = [&] {
    if (text.empty()) return true;
    ++rows;
    const bool go_on = wanted.give({text, {}, {labels}, where});
    text.clear(), labels.clear();
    return go_on;
  };
  for (bool first = true; lines.next(); first = false) {
    std::string_view line = lines.line();
    if (first && line.starts_with(kByteOrderMark)) line.remove_prefix(kByteOrderMark.size());
    const auto columns = words_of(line);
    if (columns.empty() || columns[0] == "-DOCSTART-") {
      if (!give()) return rows;
      continue;
    }
    if (columns.size() == 1)
      fail(lines.where(), "found one column; expected a word and, last, its label");
    if (text.empty()) where = lines.where();
    for (auto [all, one] : {std::pair{&text, columns.front()}, {&labels, columns.back()}})
      all->append(all->empty() ? "" : " ").append(one);
  }
  give();
  return rows;
}

}  // namespace

std::vector<std::string> label_columns(const config::Config& config,
                                       const config::SourceConfig& source) {
  const auto heads = config.model.labelled_heads();
  if (heads.size() == 1) return {source.label};
  std::vector<std::string> names;
  for (const config::HeadConfig* head : heads) names.push_back(head->name);
  return names;
}

Field label_field(const config::HeadConfig& head) {
  return head.type == "tag"       ? Field::token_labels
         : head.type == "regress" ? Field::numbers
                                  : Field::sentence_labels;
}

std::vector<std::string_view> words_of(std::string_view text) {
  constexpr std::string_view kSpace = " \t\n\r";
  std::vector<std::string_view> words;
  for (std::size_t at = 0; (at = text.find_first_not_of(kSpace, at)) != std::string_view::npos;) {
    const std::size_t end = std::min(text.find_first_of(kSpace, at), text.size());
    words.push_back(text.substr(at, end - at));
    at = end;
  }
  return words;
}

void each_labelled_row(const std::string& path, const config::SourceConfig& source,
                       const std::vector<std::string>& columns, const LabelledSink& sink) {
  Lines lines(path);
  const Wanted wanted{source, columns, sink};
  const std::int64_t rows = text::is_json_lines(path) ? read_objects(lines, wanted)
                            : io::without_compression(path).ends_with(".conll")
                                ? read_words(lines, wanted)
                                : read_table(lines, wanted);
  if (rows == 0) fail(path, "the file has no rows; expected at least one below the header");
}

std::int32_t class_of(std::string_view label, const std::string& where,
                      const config::HeadConfig& head) {
  const std::string found = "the label " + in_quotes(std::string(label));
  if (!head.labels.empty()) {
    const auto at = std::ranges::find(head.labels, label);
    if (at == head.labels.end())
      fail(where,
           found + " is none of the labels of head " + in_quotes(head.name) + "; expected " +
               shorten(join(std::vector<std::string_view>(head.labels.begin(), head.labels.end())),
                       200));
    return static_cast<std::int32_t>(at - head.labels.begin());
  }
  std::int32_t number = -1;
  const char* const end = label.data() + label.size();
  const auto [stop, problem] = std::from_chars(label.data(), end, number);
  if (problem != std::errc{} || stop != end || number < 0 || number >= head.classes)
    fail(where, found + " is no class of head " + in_quotes(head.name) +
                    "; expected a number from 0 to " + std::to_string(head.classes - 1) +
                    ", or the names of the classes in the head's labels");
  return number;
}

float number_of(std::string_view label, const std::string& where, const config::HeadConfig& head) {
  float number = 0;
  const char* const end = label.data() + label.size();
  const auto [stop, problem] = std::from_chars(label.data(), end, number);
  if (problem != std::errc{} || stop != end || !std::isfinite(number))
    fail(where, "the label " + in_quotes(std::string(label)) + " is no number of head " +
                    in_quotes(head.name) + "; expected one such as 3.25");
  return number;
}

std::vector<std::int32_t> classes_of_words(const LabelledRow& row, std::string_view labels,
                                           const config::HeadConfig& head) {
  const std::vector<std::string_view> of_words = words_of(labels);
  if (const std::size_t words = words_of(row.text).size(); words != of_words.size())
    fail(row.where, "found " + counted(words, "word") + " and " +
                        counted(of_words.size(), "label") + "; expected a label for each word");
  std::vector<std::int32_t> classes;
  for (const std::string_view label : of_words) classes.push_back(class_of(label, row.where, head));
  return classes;
}

void check_labels(const LabelledRow& row, const std::vector<const config::HeadConfig*>& heads) {
  for (std::size_t h = 0; h < heads.size(); ++h) {
    const std::string_view label = row.labels[h];
    if (is_missing(label, heads.size())) continue;
    const std::string& type = heads[h]->type;
    if (type == "tag") classes_of_words(row, label, *heads[h]);
    if (type == "classify") class_of(label, row.where, *heads[h]);
    if (type == "regress") number_of(label, row.where, *heads[h]);
  }
}

}  // namespace tfm::data
