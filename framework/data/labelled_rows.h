#pragma once
// Files of rows that have a text, perhaps a second one, and labels.
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "config/config.h"
#include "core/batch.h"

namespace tfm::data {

struct LabelledRow {
  std::string_view text, pair;  // `pair`: empty unless a column is named for it
  // One of each column asked for, empty where it is missing. Words, and labels of words, have
  // spaces between them.
  std::vector<std::string_view> labels;
  std::string where;               // file and line
  std::string_view negative = {};  // as `pair`
};
using LabelledSink = std::function<bool(const LabelledRow& row)>;

// The columns of labels: data.train.label for a model with one head that learns labels; else each
// such head's name.
std::vector<std::string> label_columns(const config::Config& config,
                                       const config::SourceConfig& source);

// Calls sink(row) for the rows of a file until it returns false. JSON lines have objects, whose
// texts and labels may be lists; a file *.conll has a word on each line, its label last, and empty
// lines between texts; any other file has a header, with tabs between columns, which are not
// quoted. Error(input) names file and line: a column that is not there, a row with another number
// of columns than the header, an empty text, no rows.
void each_labelled_row(const std::string& path, const config::SourceConfig& source,
                       const std::vector<std::string>& columns, const LabelledSink& sink);

// The field of a batch that has the labels of a head of type classify, tag or regress.
Field label_field(const config::HeadConfig& head);

// What stands between white space.
std::vector<std::string_view> words_of(std::string_view text);
// The number of a class. Error(input), which begins with `where`, for one that the head does not
// have.
std::int32_t class_of(std::string_view label, const std::string& where,
                      const config::HeadConfig& head);
// The number that a head of type regress learns. Error(input) for another text, and beyond float.
float number_of(std::string_view label, const std::string& where, const config::HeadConfig& head);
// The class of each word of the row's text. Error(input) where words and labels differ in number.
std::vector<std::int32_t> classes_of_words(const LabelledRow& row, std::string_view labels,
                                           const config::HeadConfig& head);
// Whether a row lacks the label of one of several heads, as it may.
inline bool is_missing(std::string_view label, std::size_t heads) {
  return label.empty() && heads > 1;
}
// Error(input) for a label that its head does not learn.
void check_labels(const LabelledRow& row, const std::vector<const config::HeadConfig*>& heads);

}  // namespace tfm::data
