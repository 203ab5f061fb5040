#include "launch/bench/bench.h"

#include <algorithm>
#include <sstream>

#include "report/chart.h"

namespace tfm::launch {

void RandomData::fill(std::int64_t, std::int64_t first, std::int64_t,
                      const BatchFields& fields) const {
  for (const auto& [field, values] : fields) {
    auto state = static_cast<std::uint32_t>(first * 2654435761 + 1);
    const FieldKind kind = info_of(field).kind;
    const std::uint32_t choices = kind == FieldKind::token || kind == FieldKind::label
                                      ? static_cast<std::uint32_t>(vocab_size_)
                                  : kind == FieldKind::answer ? 2
                                                              : 1;
    const auto draw = [&] { return (state = state * 1664525u + 1013904223u) >> 8; };
    for (std::int32_t& v : values) {
      v = static_cast<std::int32_t>(draw() % choices);
      if (kind == FieldKind::label && labelled_ < 1 && draw() >= labelled_ * (1 << 24)) v = -1;
    }
  }
}

void write_json(const Arguments& args, const nlohmann::ordered_json& results) {
  if (args.has("--json"))
    write_text(args.get("--json"),
               results.dump(1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n");
}

void write_results(const Arguments& args, const nlohmann::ordered_json& results,
                   const std::string& title, const std::vector<Bar>& bars) {
  write_json(args, results);
  if (!args.has("--svg")) return;
  double most = 0;
  for (const Bar& b : bars) most = std::max(most, b.value);
  const std::size_t height = 50 + 22 * bars.size();
  std::ostringstream out;
  out << "<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 900 " << height
      << "' font-family='sans-serif' font-size='13'>\n<rect width='900' height='" << height
      << "' fill='white'/><text x='10' y='22' font-weight='bold'>" << report::escaped(title)
      << "</text>\n";
  for (std::size_t i = 0; i < bars.size(); ++i) {
    const std::size_t y = 40 + 22 * i;
    const double width = most > 0 ? 330 * bars[i].value / most : 0;
    out << "<text x='340' y='" << y + 13 << "' text-anchor='end'>" << report::escaped(bars[i].label)
        << "</text><rect x='350' y='" << y << "' width='" << width
        << "' height='16' fill='#1f77b4'/><text x='" << 356 + width << "' y='" << y + 13 << "'>"
        << report::escaped(bars[i].text) << "</text>\n";
  }
  out << "</svg>\n";
  write_text(args.get("--svg"), out.str());
}

double median(std::vector<double> v) {
  std::ranges::sort(v);
  return (v[(v.size() - 1) / 2] + v[v.size() / 2]) / 2;
}

}  // namespace tfm::launch
