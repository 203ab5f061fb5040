#pragma once
// Files of rows that have a text, perhaps a second one, and a class.
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "config/config.h"

namespace tfm::data {

struct LabelledRow {
  std::string_view text, pair;  // `pair`: empty unless a column is named for it
  std::string_view label;
  std::string where;  // file and line
};
using LabelledSink = std::function<bool(const LabelledRow& row)>;

// Calls sink(row) for the rows of a file until it returns false. JSON lines have objects; any other
// file has a header, with tabs between columns, which are not quoted. Error(input) names file and
// line: a column that is not there, a row with another number of columns than the header, an empty
// text, no rows.
void each_labelled_row(const std::string& path, const config::SourceConfig& source,
                       const LabelledSink& sink);
// Reads the first row.
void check_labelled_file(const std::string& path, const config::SourceConfig& source);

// The number of a row's class. Error(input) for one that the head does not have.
std::int32_t class_of(const LabelledRow& row, const config::HeadConfig& head);

}  // namespace tfm::data
