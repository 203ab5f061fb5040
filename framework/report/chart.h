#pragma once
// Pictures as inline SVG. Lines are drawn in a nested picture that stretches with its width, labels
// at percentages of it, so that text keeps its size from a phone to a desktop.
#include <string>
#include <vector>

#include "report/series.h"

namespace tfm::report {

std::string escaped(std::string_view text);  // for HTML and XML, in text and in quotes

inline constexpr int kStyles = 8;  // colours with a dash pattern and a shape of marker each

struct Line {
  std::string label;  // in the legend; empty: not there
  int style = 0;
  Series series;
  enum class Kind { line, faint, markers, filled } kind = Kind::line;
  std::string tag;  // at the end of the line
};

struct Mark {  // a vertical line
  double x = 0;
  std::string text;  // when pointed at
  int style = -1;    // of no run
};

struct LineChart {
  std::string id, title, description;  // the description is for those who do not see the picture
  std::string x_label = "step", y_label;
  Unit x_unit = Unit::count, y_unit = Unit::number;
  bool log_y = false, from_zero = false;
  std::vector<Line> lines;
  double x_end = 0;  // x goes from 0 to here at least
  std::vector<Mark> marks;
  std::string marks_label;  // in the legend
};
// The picture with its legend; a sentence where no line has a value.
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

}  // namespace tfm::report
