#include <algorithm>
#include <cmath>
#include <cstdio>
#include <sstream>

#include "core/strings.h"
#include "launch/bench/scaling.h"
#include "report/chart.h"

namespace tfm::launch {
namespace {

using Json = nlohmann::ordered_json;

std::string name_of(const Json& point) {
  const std::string mode = point["mode"];
  return point["axis"].is_null() ? mode : mode + " " + point["axis"].get<std::string>();
}

bool measured(const Json& point) { return point["skipped"].is_null(); }

std::string csv_cell(const Json& value) {
  if (value.is_null()) return "";
  const std::string text = value.is_string() ? value.get<std::string>() : value.dump();
  if (text.find_first_of(",\"\n") == std::string::npos) return text;
  std::string quoted = "\"";
  for (const char c : text) quoted += c == '"' ? std::string("\"\"") : std::string(1, c);
  return quoted + "\"";
}

// The least of 1, 2, 5, 10, 20, ... that cuts `most` into at most six.
double step_of_axis(double most) {
  const double power = std::pow(10, std::floor(std::log10(most / 6)));
  for (const double step : {1.0, 2.0, 5.0})
    if (step * power * 6 >= most) return step * power;
  return 10 * power;
}

std::string number(double v) {
  std::ostringstream out;
  out << std::round(v * 100) / 100;
  return out.str();
}
// With three digits after a prefix: 1.25M.
std::string short_number(double v) {
  std::ostringstream out;
  out.precision(3);
  v >= 1e6 ? out << v * 1e-6 << "M" : v >= 1e3 ? out << v * 1e-3 << "k" : out << v;
  return out.str();
}

constexpr const char* kColors[] = {"#1f77b4", "#d62728", "#2ca02c", "#9467bd", "#ff7f0e"};
constexpr double kLeft = 80, kTop = 50, kRight = 700, kBottom = 350, kRow = 18;

class Picture {
 public:
  explicit Picture(const Json& results) {
    for (const Json& p : results["points"]) {
      if (!measured(p)) continue;
      if (lines_.empty() || name_of(lines_.back()[0]) != name_of(p)) lines_.emplace_back();
      lines_.back().push_back(p);
      ranks_ = std::max(ranks_, p["ranks"].get<double>());
      oversubscribed_ |= p["oversubscribed"].get<bool>();
      for (const char* rate : {"tokens_per_second_max", "predicted_tokens_per_second"})
        most_ = std::max(most_, p[rate].get<double>());
    }
    if (lines_.empty()) {
      most_ = 1;
      return;
    }
    const Json& first = lines_[0][0];
    of_rank_ = first["tokens_per_second"].get<double>() / first["ranks"].get<double>();
    most_ = std::max(most_, of_rank_ * ranks_);
  }

  std::string draw(const std::string& title, bool repeated) {
    frame(title);
    body_ += "<path d='M" + at(0, 0) + "L" + at(ranks_, of_rank_ * ranks_) +
             "' stroke='gray' stroke-dasharray='7 5'/>\n";
    for (std::size_t i = 0; i < lines_.size(); ++i)
      line(lines_[i], kColors[i % std::size(kColors)]);
    entry("<path d='M0 0h30' stroke='gray' stroke-dasharray='7 5'/>",
          "ideal: proportional to the ranks");
    if (oversubscribed_)
      entry("<circle cx='15' cy='0' r='4' fill='white' stroke='black'/>",
            "oversubscribed: more threads than cores");
    if (repeated)
      entry("<path d='M15 -6v12' stroke='black'/>", "bar: least and most of the repeats");
    const std::string height = number(kBottom + 65 + kRow * std::ceil(entries_ / 2.0));
    return "<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 720 " + height +
           "' font-family='sans-serif' font-size='13' fill='none'>\n<rect width='720' height='" +
           height + "' fill='white'/>\n" + body_ + "</svg>\n";
  }

 private:
  double x(double ranks) const { return kLeft + (kRight - kLeft) * ranks / ranks_; }
  double y(double rate) const { return kBottom - (kBottom - kTop) * rate / most_; }
  std::string at(double ranks, double rate) const {
    return number(x(ranks)) + " " + number(y(rate));
  }

  void text(double x, double y, const std::string& anchor, const std::string& words) {
    body_ += "<text x='" + number(x) + "' y='" + number(y) + "' text-anchor='" + anchor +
             "' fill='black'>" + report::escaped(words) + "</text>\n";
  }

  void frame(const std::string& title) {
    text(kLeft, 24, "start", title);
    text(kLeft, 42, "start", "tokens/s");
    text((kLeft + kRight) / 2, kBottom + 36, "middle", "ranks");
    for (double rate = 0; rate <= most_; rate += step_of_axis(most_)) {
      body_ += "<path d='M" + at(0, rate) + "H" + number(kRight) + "' stroke='#ddd'/>\n";
      text(kLeft - 8, y(rate) + 4, "end", short_number(rate));
    }
    body_ += "<path d='M" + number(kLeft) + " " + number(kTop) + "V" + number(kBottom) + "H" +
             number(kRight) + "' stroke='black'/>\n";
    std::vector<double> numbers;
    for (const std::vector<Json>& line : lines_)
      for (const Json& p : line) numbers.push_back(p["ranks"]);
    std::ranges::sort(numbers, std::greater{});
    double free = kRight + 100;  // to the left of what is written already
    for (const double ranks : numbers)
      if (x(ranks) < free)
        text(x(ranks), kBottom + 18, "middle", number(ranks)), free = x(ranks) - 28;
  }

  void line(const std::vector<Json>& points, const std::string& color) {
    std::string rates, predicted;
    for (const Json& p : points) {
      const double ranks = p["ranks"];
      const std::string to = rates.empty() ? "M" : "L";
      rates += to + at(ranks, p["tokens_per_second"]);
      predicted += to + at(ranks, p["predicted_tokens_per_second"]);
      body_ += "<path d='M" + at(ranks, p["tokens_per_second_min"]) + "L" +
               at(ranks, p["tokens_per_second_max"]) + "' stroke='" + color +
               "' stroke-width='5' stroke-opacity='0.4'/>\n";
    }
    const std::string stroke = "' stroke='" + color + "'",
                      dotted = stroke + " stroke-width='2' stroke-dasharray='2 4'/>";
    body_ += "<path d='" + predicted + dotted + "\n<path d='" + rates + stroke + "/>\n";
    for (const Json& p : points)
      body_ += "<circle cx='" + number(x(p["ranks"])) + "' cy='" +
               number(y(p["tokens_per_second"])) + "' r='4' fill='" +
               (p["oversubscribed"].get<bool>() ? "white" : color) + stroke + "/>\n";
    const std::string name = name_of(points[0]);
    entry("<path d='M0 0h30" + stroke + "/><circle cx='15' cy='0' r='4' fill='" + color + "'/>",
          name + " scaling, measured");
    entry("<path d='M0 0h30" + dotted, name + " scaling, predicted");
  }

  // Two columns of the legend, below the axes.
  void entry(const std::string& sign, const std::string& words) {
    const double left = entries_ % 2 == 0 ? kLeft : (kLeft + kRight) / 2,
                 top = kBottom + 60 + kRow * std::floor(entries_ / 2.0);
    body_ +=
        "<g transform='translate(" + number(left) + " " + number(top) + ")'>" + sign + "</g>\n";
    text(left + 38, top + 4, "start", words);
    ++entries_;
  }

  std::vector<std::vector<Json>> lines_;  // measured points of each axis
  double ranks_ = 1, most_ = 0, of_rank_ = 0;
  bool oversubscribed_ = false;
  std::string body_;
  int entries_ = 0;
};

}  // namespace

void print_scaling_header() {
  std::printf("%-16s %6s %10s %12s %12s %12s %10s %12s\n", "scaling", "ranks", "step ms",
              "tokens/s", "least", "most", "efficiency", "predicted");
}

void print_scaling_point(const Json& p) {
  std::printf("%-16s %6d ", name_of(p).c_str(), p["ranks"].get<int>());
  if (!measured(p)) {
    std::printf("skipped: %s\n", p["skipped"].get<std::string>().c_str());
  } else {
    const Json& share = p["efficiency"];
    const std::string efficiency =
        share.is_null() ? "" : printed("%.1f%%", share.get<double>() * 100);
    std::printf("%10.2f %12.1f %12.1f %12.1f %10s %12.1f%s\n",
                p["step_seconds"].get<double>() * 1e3, p["tokens_per_second"].get<double>(),
                p["tokens_per_second_min"].get<double>(), p["tokens_per_second_max"].get<double>(),
                efficiency.c_str(), p["predicted_tokens_per_second"].get<double>(),
                p["oversubscribed"].get<bool>() ? "  oversubscribed: more threads than cores" : "");
  }
  std::fflush(stdout);
}

void write_scaling_csv(const std::string& path, const Json& points) {
  std::string header, rows;
  for (const Json& p : points) {
    header.clear();
    for (const auto& [name, value] : p.items()) {
      const char* comma = header.empty() ? "" : ",";
      header += comma + name;
      rows += comma + csv_cell(value);
    }
    rows += "\n";
  }
  write_text(path, header + "\n" + rows);
}

void write_scaling_svg(const std::string& path, const Json& results) {
  write_text(path, Picture(results).draw(results["mode"].get<std::string>() + " scaling of " +
                                             results["configuration"].get<std::string>(),
                                         results["repeats"] > 1));
}

}  // namespace tfm::launch
