#pragma once
// Charts as inline SVG. Lines are drawn in a nested picture that stretches with the width; labels
// are placed at percentages of it, so text keeps its size from a phone to a desktop.
#include <string>
#include <vector>

#include "report/series.h"

namespace tfm::report {

// For HTML and XML, in text and in quotes; bytes that are no UTF-8 become U+FFFD.
std::string escaped(std::string_view text);

inline constexpr int kStyles = 8;  // colours, each with a dash pattern and a marker shape

struct Line {
  std::string label;  // in the legend; empty: not listed
  int style = 0;
  Series series;
  // raw and average: of the same values; the page can hide either.
  enum class Kind { line, faint, raw, average, markers, filled } kind = Kind::line;
  std::string tag;      // printed at the end of the line
  std::size_t run = 0;  // whose it is
};

struct Mark {  // a vertical line
  double x = 0;
  std::string text;  // tooltip
  int style = -1;    // -1: of no run
  std::size_t run = 0;
};

struct LineChart {
  // `description`: for users who do not see the picture.
  std::string id, title, description;
  std::string x_label = "step", y_label;
  Unit x_unit = Unit::count, y_unit = Unit::number;
  bool log_y = false, from_zero = false;
  std::vector<Line> lines;
  double x_end = 0;  // the x axis reaches to at least here, and from 0 unless it has dates
  std::vector<Mark> marks;
  std::string marks_label;  // in the legend
};
// The chart with its legend; a sentence if no line has a value.
std::string draw(const LineChart& chart);

struct BarSegment {
  int style = 0;
  double value = 0;
};
struct Bar {
  std::string label, text;  // text: the sum, at the end of the bar
  std::vector<BarSegment> segments;
};
struct BarChart {
  std::string id, title, description;
  std::vector<Bar> bars;                                // the longest is as wide as the picture
  std::vector<std::pair<int, std::string>> categories;  // style and name, in the legend
};
std::string draw(const BarChart& chart);

// Cells of a table as colors: 0 is white, 1 and more orange, -1 and less blue.
struct HeatMap {
  std::string id, title, description;
  std::vector<std::string> labels;  // by row; empty: none
  std::vector<std::vector<double>> rows;
};
std::string draw(const HeatMap& map);

}  // namespace tfm::report
