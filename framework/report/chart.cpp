#include "report/chart.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

#include "core/strings.h"
#include "core/utf8.h"

namespace tfm::report {
namespace {

constexpr std::size_t kColumns = 500;  // of a picture, each with the smallest and largest value
constexpr std::size_t kMarkers = 100;  // of a line, at most; it passes through all values

std::string number(double value) {
  std::string s = printed("%.2f", value);
  s.erase(s.find_last_not_of('0') + 1);
  if (s.back() == '.') s.pop_back();
  return s == "-0" ? "0" : s;
}

// What a picture shows of x and y, and where a value lies in it, from 0 to 1 (y: from the top).
struct Frame {
  double x0 = std::numeric_limits<double>::infinity(), x1 = -x0, y0 = x0, y1 = -x0;
  bool log_y = false;

  explicit Frame(const LineChart& chart) : log_y(chart.log_y) {
    for (const Line& line : chart.lines)
      for (std::size_t i = 0; i < line.series.x.size(); ++i) {
        const double x = line.series.x[i], y = line.series.y[i];
        if (!std::isfinite(y)) continue;
        x0 = std::min(x0, x), x1 = std::max(x1, x), y0 = std::min(y0, y), y1 = std::max(y1, y);
      }
    log_y = log_y && y0 > 0;
    if (chart.from_zero && !log_y) y0 = std::min(y0, 0.0);
    if (chart.x_unit == Unit::date)
      x1 = std::max(x1, x0 + 1e-3);
    else
      x0 = 0, x1 = std::max({x1, chart.x_end, 1e-9});
    // Values that differ by rounding alone are drawn as equal ones.
    const bool apart = y1 - y0 > 1e-9 * std::max(std::abs(y0), std::abs(y1));
    const double room = apart ? 0.04 * (y1 - y0) : std::max(std::abs(y1) * 0.1, 1e-12);
    if (log_y) {
      y0 *= 0.9, y1 *= 1.1;
    } else {
      y1 += room;
      if (!(chart.from_zero && y0 == 0)) y0 -= room;
    }
  }
  bool empty() const { return !(y1 >= y0); }
  double x(double value) const { return (value - x0) / (x1 - x0); }
  double y(double value) const {
    return log_y ? 1 - std::log(value / y0) / std::log(y1 / y0) : 1 - (value - y0) / (y1 - y0);
  }
};

std::string percent(double part) { return number(part * 100) + "%"; }

// A part for each run of values without a gap; `filled`: down to the bottom.
std::string path_of(const Series& series, const Frame& f, bool filled) {
  const auto drawn = [&](std::size_t i) {
    return i < series.y.size() && std::isfinite(series.y[i]) && !(f.log_y && series.y[i] <= 0);
  };
  std::string path;
  for (std::size_t i = 0; i < series.x.size(); ++i) {
    if (!drawn(i)) continue;
    const std::string x = number(f.x(series.x[i]) * 1000);
    const bool first = i == 0 || !drawn(i - 1), last = !drawn(i + 1);
    path += first ? "M" : " ";
    if (first && filled) path += x + " 1000 ";
    path += x + " " + number(f.y(series.y[i]) * 1000);
    if (first && last) path += "h.01";
    if (last && filled) path += " " + x + " 1000Z";
  }
  return path;
}

// Shapes that differ without their colour.
std::string marker(double x, double y, int style) {
  static const char* const shapes[] = {
      "M0 -4A4 4 0 1 0 .01 -4Z", "M-4 -4H4V4H-4Z", "M0 -5L5 4H-5Z",  "M0 -5L5 0L0 5L-5 0Z",
      "M-5 -4H5L0 5Z",           "M-5 -2H5V2H-5Z", "M-2 -5H2V5H-2Z", "M-4 -4L4 -4L4 4Z"};
  return "<svg x=\"" + percent(x) + "\" y=\"" + percent(y) + "\" class=\"over\"><path class=\"m s" +
         std::to_string(style) + "\" d=\"" + shapes[style] + "\"/></svg>";
}

std::string heading(const std::string& id, const std::string& title,
                    const std::string& description) {
  return "<title id=\"" + id + "-t\">" + escaped(title) + "</title><desc id=\"" + id + "-d\">" +
         escaped(description) + "</desc>";
}
std::string opening(const std::string& id, const char* kind) {
  return "<svg role=\"img\" aria-labelledby=\"" + id + "-t " + id + "-d\" class=\"" + kind + "\">";
}

std::string axes(const LineChart& chart, const Frame& f) {
  std::string out;
  for (const double v : f.log_y ? log_ticks(f.y0, f.y1) : ticks(f.y0, f.y1, chart.y_unit)) {
    const std::string at = percent(f.y(v));
    out += "<line class=\"grid\" x1=\"0\" x2=\"100%\" y1=\"" + at + "\" y2=\"" + at +
           "\"/><text class=\"end\" x=\"-8\" dy=\".32em\" y=\"" + at + "\">" +
           escaped(text_of(v, chart.y_unit)) + "</text>";
  }
  for (const double v : ticks(f.x0, f.x1, chart.x_unit)) {
    const std::string at = percent(f.x(v));
    out += "<line class=\"grid\" y1=\"0\" y2=\"100%\" x1=\"" + at + "\" x2=\"" + at +
           "\"/><text class=\"mid\" y=\"100%\" dy=\"17\" x=\"" + at + "\">" +
           escaped(text_of(v, chart.x_unit)) + "</text>";
  }
  return out + "<text class=\"mid\" x=\"50%\" y=\"100%\" dy=\"35\">" + escaped(chart.x_label) +
         "</text>";
}

// Letters at the right end of lines, apart from each other.
std::string tags(const LineChart& chart, const Frame& f) {
  struct Tag {
    double y;
    const Line* line;
  };
  std::vector<Tag> all;
  for (const Line& line : chart.lines)
    for (std::size_t i = line.series.y.size(); !line.tag.empty() && i-- > 0;)
      if (std::isfinite(line.series.y[i]) && !(f.log_y && line.series.y[i] <= 0)) {
        all.push_back({f.y(line.series.y[i]), &line});
        break;
      }
  std::ranges::sort(all, {}, &Tag::y);
  constexpr double apart = 0.055;
  for (std::size_t k = 1; k < all.size(); ++k) all[k].y = std::max(all[k].y, all[k - 1].y + apart);
  double most = 1;
  std::string out;
  for (std::size_t k = all.size(); k-- > 0;) {
    most = std::min(all[k].y, most);
    out += "<text class=\"tag t" + std::to_string(all[k].line->style) +
           "\" x=\"100%\" dx=\"8\" dy=\".32em\" y=\"" + percent(most) + "\">" +
           escaped(all[k].line->tag) + "</text>";
    most -= apart;
  }
  return out;
}

const char* class_of(Line::Kind kind) {
  switch (kind) {
    case Line::Kind::faint:
      return " faint";
    case Line::Kind::raw:
      return " faint raw";
    case Line::Kind::average:
      return " avg";
    case Line::Kind::markers:
      return " thin";
    default:
      return "";
  }
}

std::string legend_entry(const std::string& drawing, const std::string& label) {
  return "<li><svg class=\"key\" viewBox=\"0 0 28 12\" aria-hidden=\"true\">" + drawing + "</svg>" +
         escaped(label) + "</li>";
}

std::string legend(const LineChart& chart) {
  std::string out;
  for (const Line& line : chart.lines) {
    if (line.label.empty() || line.series.finite() == 0) continue;
    const std::string style = std::to_string(line.style);
    if (line.kind == Line::Kind::markers)
      out += legend_entry(
          "<svg x=\"14\" y=\"6\" class=\"over\">" + marker(0, 0, line.style) + "</svg>",
          line.label);
    else
      out +=
          legend_entry(std::string("<path class=\"l s") + style +
                           (line.kind == Line::Kind::faint ? " faint" : "") + "\" d=\"M0 6H28\"/>",
                       line.label);
  }
  if (!chart.marks.empty())
    out += legend_entry("<path class=\"mark\" d=\"M14 0V12\"/>", chart.marks_label);
  return out.empty() ? "" : "<ul class=\"legend\">" + out + "</ul>";
}

}  // namespace

std::string escaped(std::string_view text) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    const std::size_t length = utf8_length(text.substr(i));
    if (length == 0)
      out += "\uFFFD";
    else if (length > 1)
      out += text.substr(i, length), i += length - 1;
    else if (c == '&')
      out += "&amp;";
    else if (c == '<')
      out += "&lt;";
    else if (c == '>')
      out += "&gt;";
    else if (c == '"')
      out += "&quot;";
    else if (static_cast<unsigned char>(c) >= 32 || c == '\n' || c == '\t')
      out += c;
    else
      out += ' ';  // XML has no way to write it
  }
  return out;
}

std::string draw(const LineChart& chart) {
  const Frame f(chart);
  if (f.empty()) return "<p class=\"none\">No values of this kind in the metrics.</p>\n";
  std::string lines, markers, marks;
  for (const Line& line : chart.lines) {
    const std::string style = "s" + std::to_string(line.style);
    const Series shown = min_max(line.series, kColumns);
    if (line.kind == Line::Kind::markers || shown.finite() == 1) {
      const std::size_t stride = (shown.x.size() + kMarkers - 1) / kMarkers;
      for (std::size_t i = 0; i < shown.x.size(); i += stride)
        if (std::isfinite(shown.y[i]) && !(f.log_y && shown.y[i] <= 0))
          markers += marker(f.x(shown.x[i]), f.y(shown.y[i]), line.style);
    }
    if (shown.finite() < 2) continue;
    const bool filled = line.kind == Line::Kind::filled;
    if (filled)
      lines += "<path class=\"area " + style + "\" d=\"" + path_of(shown, f, true) + "\"/>";
    lines += "<path class=\"l " + style + class_of(line.kind) + "\" d=\"" +
             path_of(shown, f, false) + "\"/>";
  }
  for (const Mark& m : chart.marks) {
    if (m.x < f.x0 || m.x > f.x1) continue;
    const std::string at = percent(f.x(m.x));
    marks += "<line class=\"mark" + (m.style < 0 ? "" : " k" + std::to_string(m.style)) +
             "\" x1=\"" + at + "\" x2=\"" + at + "\" y1=\"0\" y2=\"100%\"><title>" +
             escaped(m.text) + "</title></line>";
  }
  return legend(chart) + "<div class=\"frame\"><p class=\"unit\">" + escaped(chart.y_label) +
         "</p>" + opening(chart.id, "plot") + heading(chart.id, chart.title, chart.description) +
         axes(chart, f) + marks +
         "<svg viewBox=\"0 0 1000 1000\" preserveAspectRatio=\"none\" width=\"100%\" "
         "height=\"100%\">" +
         lines + "</svg>" + markers + tags(chart, f) + "</svg></div>\n";
}

std::string draw(const BarChart& chart) {
  double longest = 0;
  for (const Bar& bar : chart.bars) {
    double sum = 0;
    for (const BarSegment& s : bar.segments) sum += s.value;
    longest = std::max(longest, sum);
  }
  if (!(longest > 0)) return "<p class=\"none\">No values of this kind in the metrics.</p>\n";
  constexpr int row = 48;
  std::string body;
  for (std::size_t i = 0; i < chart.bars.size(); ++i) {
    const Bar& bar = chart.bars[i];
    const int top = static_cast<int>(i) * row;
    body += "<text y=\"" + std::to_string(top + 14) + "\">" + escaped(bar.label) +
            "</text><text class=\"end\" x=\"100%\" y=\"" + std::to_string(top + 14) + "\">" +
            escaped(bar.text) + "</text>";
    double at = 0;
    for (const BarSegment& s : bar.segments) {
      if (!(s.value > 0)) continue;
      body += "<rect class=\"b s" + std::to_string(s.style) + "\" x=\"" + percent(at / longest) +
              "\" y=\"" + std::to_string(top + 20) + "\" width=\"" + percent(s.value / longest) +
              "\" height=\"20\"/>";
      at += s.value;
    }
  }
  std::string keys;
  for (const auto& [style, name] : chart.categories)
    keys += legend_entry(
        "<rect class=\"b s" + std::to_string(style) + "\" x=\"4\" width=\"20\" height=\"12\"/>",
        name);
  return (keys.empty() ? "" : "<ul class=\"legend\">" + keys + "</ul>") +
         "<div class=\"bars\"><svg role=\"img\" aria-labelledby=\"" + chart.id + "-t " + chart.id +
         "-d\" class=\"plot\" style=\"height:" +
         std::to_string(row * static_cast<int>(chart.bars.size())) + "px\">" +
         heading(chart.id, chart.title, chart.description) + body + "</svg></div>\n";
}

// Cells of the same shade are one path.
std::string draw(const HeatMap& map) {
  constexpr int kShades = 8;
  std::map<int, std::string> shades;
  std::size_t columns = 1;
  for (std::size_t r = 0; r < map.rows.size(); ++r) {
    columns = std::max(columns, map.rows[r].size());
    for (std::size_t c = 0; c < map.rows[r].size(); ++c) {
      const double value = std::clamp(map.rows[r][c], -1.0, 1.0);
      const int shade = static_cast<int>(std::lround(value * kShades));
      if (shade != 0)
        shades[shade] += "M" + std::to_string(c) + " " + std::to_string(r) + "h1v1h-1z";
    }
  }
  std::string cells, labels;
  for (const auto& [shade, path] : shades)
    cells += std::string("<path style=\"fill:var(--c") + (shade > 0 ? "1" : "0") +
             ");fill-opacity:" + number(std::abs(shade) / static_cast<double>(kShades)) +
             "\" d=\"" + path + "\"/>";
  const bool named = std::ranges::all_of(map.labels, [](const auto& l) { return !l.empty(); });
  const std::size_t height = std::max<std::size_t>(map.rows.size() * (named ? 16 : 6), 24);
  for (std::size_t r = 0; r < map.labels.size(); ++r)
    if (!map.labels[r].empty())
      labels += "<text y=\"" +
                percent((static_cast<double>(r) + (named ? 0.75 : 0.0)) /
                        static_cast<double>(map.rows.size())) +
                "\"" + (named ? "" : " dy=\"10\"") + ">" + escaped(map.labels[r]) + "</text>";
  return "<div class=\"bars\"><svg role=\"img\" aria-labelledby=\"" + map.id + "-t " + map.id +
         "-d\" class=\"plot\" style=\"height:" + std::to_string(height) + "px\">" +
         heading(map.id, map.title, map.description) + labels +
         "<svg x=\"18%\" width=\"82%\" height=\"100%\" preserveAspectRatio=\"none\" viewBox=\"0 "
         "0 " +
         std::to_string(columns) + " " + std::to_string(map.rows.size()) +
         "\"><rect width=\"100%\" height=\"100%\" style=\"fill:none;stroke:var(--soft);"
         "vector-effect:non-scaling-stroke\"/>" +
         cells + "</svg></svg></div>\n";
}

}  // namespace tfm::report
