// tfm-bench scaling: throughput and efficiency of one configuration against the number of ranks.
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <thread>

#include "launch/bench/bench.h"

namespace tfm::launch {
namespace {

// Where the ranks go: an axis has all that the other ones, as configured, leave.
struct ScaledAxis {
  std::string_view name;
  std::int64_t config::ParallelConfig::*size = nullptr;  // none: of the data axis
  std::string_view with = {};                            // an override
};
constexpr ScaledAxis kAxes[] = {{.name = "data"},
                                {.name = "shard", .with = "parallel.zero=3"},
                                {.name = "tensor", .size = &config::ParallelConfig::tensor},
                                {.name = "pipeline",
                                 .size = &config::ParallelConfig::pipeline,
                                 .with = "parallel.layers_per_stage=auto"},
                                {.name = "context", .size = &config::ParallelConfig::context}};

struct Point {
  std::string mode, axis;  // axis: empty as configured
  int ranks = 1;
  double step_seconds = 0, tokens_per_second = 0, efficiency = 0;
  bool oversubscribed = false;
  std::string name() const { return mode + (axis.empty() ? "" : " " + axis); }
};

std::vector<std::string> listed(const std::string& text) {
  std::vector<std::string> items;
  std::stringstream in(text);
  for (std::string item; std::getline(in, item, ',');) items.push_back(item);
  return items;
}

// Without --axes one that changes nothing.
std::vector<ScaledAxis> axis_list(const std::string& text) {
  if (text.empty()) return {{}};
  std::vector<ScaledAxis> axes;
  for (const std::string& name : listed(text)) {
    const auto* const axis = std::ranges::find(kAxes, name, &ScaledAxis::name);
    if (axis == std::end(kAxes))
      throw Error(ExitCode::usage, "--axes '" + text + "': '" + name +
                                       "' is not an axis; expected a comma-separated list of "
                                       "data, shard, tensor, pipeline and context");
    axes.push_back(*axis);
  }
  return axes;
}

std::vector<int> rank_list(const std::string& text) {
  std::vector<int> ranks;
  for (const std::string& item : listed(text)) {
    const int n = std::atoi(item.c_str());
    if (n < 1)
      throw Error(
          ExitCode::usage,
          "--ranks '" + text + "': expected comma-separated numbers of at least 1, such as 1,2,4");
    ranks.push_back(n);
  }
  return ranks;
}

std::string quoted_for_shell(const std::string& s) {
  std::string out = "'";
  for (char c : s) out += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return out + "'";
}

class Scaling {
 public:
  Scaling(std::string program, std::string config, std::vector<std::string> overrides,
          std::int64_t warmup, std::int64_t steps)
      : program_(std::move(program)),
        config_(std::move(config)),
        overrides_(std::move(overrides)),
        warmup_(warmup),
        steps_(steps) {
    const char* omp = std::getenv("OMP_NUM_THREADS");
    threads_ = omp ? std::max(1, std::atoi(omp)) : 1;
    read_ = load_config(config_, overrides_);
  }

  Point measure(const std::string& mode, const ScaledAxis& axis, int ranks) const {
    const auto file = std::filesystem::temp_directory_path() /
                      ("tfm-bench-" + std::to_string(getpid()) + ".jsonl");
    std::vector<std::string> args = overrides_;
    std::ranges::move(overrides(axis, ranks), std::back_inserter(args));
    const std::int64_t batch = read_.train.global_batch_size * (mode == "weak" ? ranks : 1);
    for (const std::string& o :
         {std::string("train.steps=") + std::to_string(warmup_ + steps_),
          "train.global_batch_size=" + std::to_string(batch), std::string("checkpoint.dir=\"\""),
          std::string("checkpoint.resume=never"), std::string("eval.every=0"),
          std::string("metrics.listen=none"), std::string("metrics.log_every=1"),
          "metrics.jsonl=" + file.string()})
      args.push_back(o);
    std::string command = "OMP_NUM_THREADS=" + std::to_string(threads_) +
                          " mpirun --oversubscribe --bind-to none -np " + std::to_string(ranks) +
                          " " + quoted_for_shell(program_) + " " + quoted_for_shell(config_);
    if (geteuid() == 0)
      command = "OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 " + command;
    for (const std::string& a : args) command += " " + quoted_for_shell(a);
    const int status = std::system((command + " >/dev/null").c_str());
    if (status != 0)
      throw Error(ExitCode::failed, "the run with " + std::to_string(ranks) +
                                        " ranks failed; see its messages above");
    Point point = read(ranks, file);
    point.mode = mode, point.axis = axis.name;
    return point;
  }

 private:
  std::vector<std::string> overrides(const ScaledAxis& axis, int ranks) const {
    if (axis.name.empty()) return {};
    const config::ParallelConfig& p = read_.parallel;
    std::int64_t others = p.tensor * p.pipeline * p.context;
    std::vector<std::string> all{"parallel.data=auto"};
    if (axis.size) {
      others /= p.*axis.size;
      all.push_back("parallel." + std::string(axis.name) + "=" +
                    std::to_string(std::max<std::int64_t>(1, ranks / others)));
    }
    if (!axis.with.empty()) all.emplace_back(axis.with);
    return all;
  }

  Point read(int ranks, const std::filesystem::path& file) const {
    std::ifstream in(file);
    std::vector<double> seconds;
    double tokens = 0;
    for (std::string line; std::getline(in, line);) {
      const auto e = nlohmann::json::parse(line);
      if (e["event"] != "step" || e["step"].get<std::int64_t>() <= warmup_) continue;
      seconds.push_back(e["step_seconds"]);
      tokens = e["tokens"];
    }
    std::filesystem::remove(file);
    if (seconds.empty())
      throw Error(ExitCode::failed,
                  "the run with " + std::to_string(ranks) + " ranks recorded no steps");
    const double step = median(seconds);
    return {.ranks = ranks,
            .step_seconds = step,
            .tokens_per_second = tokens / step,
            .oversubscribed =
                static_cast<unsigned>(ranks * threads_) > std::thread::hardware_concurrency()};
  }

  std::string program_, config_;
  std::vector<std::string> overrides_;
  config::Config read_;
  std::int64_t warmup_, steps_;
  int threads_ = 1;
};

void write_svg(const std::string& path, const std::vector<Point>& points) {
  double most = 0, ranks = 1;
  for (const Point& p : points)
    most = std::max(
        {most, p.tokens_per_second, points[0].tokens_per_second / points[0].ranks * p.ranks}),
    ranks = std::max(ranks, 1.0 * p.ranks);
  const auto x = [&](double r) { return 70 + 500 * r / ranks; };
  const auto y = [&](double t) { return 330 - 290 * t / most; };
  std::ofstream out = open_results(path);
  out << "<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 620 390' font-family='sans-serif' "
         "font-size='13'>\n"
      << "<rect width='620' height='390' fill='white'/><path d='M70 30V330H590' fill='none' "
         "stroke='black'/>\n"
      << "<text x='330' y='370' text-anchor='middle'>ranks</text><text x='75' y='24'>tokens/s "
         "(dashed: ideal)</text>\n";
  const double first = points[0].tokens_per_second / points[0].ranks;
  out << "<path d='M" << x(0) << " " << y(0) << "L" << x(ranks) << " " << y(first * ranks)
      << "' stroke='gray' stroke-dasharray='5'/>\n";
  constexpr const char* kColors[] = {"#1f77b4", "#d62728", "#2ca02c", "#9467bd", "#ff7f0e"};
  std::size_t lines = 0;  // points of one follow each other
  for (auto from = points.begin(), to = from; from != points.end(); from = to, ++lines) {
    const std::string name = from->name(), color = kColors[lines % std::size(kColors)];
    std::string line;
    for (; to != points.end() && to->name() == name; ++to) {
      line += (line.empty() ? "M" : "L") + std::to_string(x(to->ranks)) + " " +
              std::to_string(y(to->tokens_per_second));
      out << "<circle cx='" << x(to->ranks) << "' cy='" << y(to->tokens_per_second)
          << "' r='4' fill='" << (to->oversubscribed ? "white" : color) << "' stroke='" << color
          << "'/><text x='" << x(to->ranks) << "' y='348' text-anchor='middle'>" << to->ranks
          << "</text>\n";
    }
    out << "<path d='" << line << "' fill='none' stroke='" << color << "'/><text x='90' y='"
        << 50 + 16 * lines << "' fill='" << color << "'>" << name << "</text>\n";
  }
  out << "<text x='230' y='50' fill='gray'>hollow: more threads than cores</text></svg>\n";
}

}  // namespace

int bench_scaling(const Arguments& args) {
  std::string fallback = "1";
  for (unsigned n = 2; n <= std::thread::hardware_concurrency(); n *= 2)
    fallback += "," + std::to_string(n);
  const auto program = std::filesystem::read_symlink("/proc/self/exe").parent_path() / "tfm-train";
  const Scaling scaling(program.string(), args.only("configuration file"), args.overrides(),
                        args.integer("--warmup", 3, 0), args.integer("--steps", 10, 1));
  std::vector<Point> points;
  std::printf("%-16s %6s %12s %14s %11s\n", "scaling", "ranks", "step ms", "tokens/s",
              "efficiency");
  const std::vector<int> numbers = rank_list(args.get("--ranks", fallback));
  for (const ScaledAxis& axis : axis_list(args.get("--axes")))
    for (const char* mode : {"strong", "weak"}) {
      double base = 0;
      for (const int ranks : numbers) {
        Point p = scaling.measure(mode, axis, ranks);
        if (base == 0) base = p.tokens_per_second / p.ranks;
        p.efficiency = p.tokens_per_second / p.ranks / base;
        std::printf("%-16s %6d %12.2f %14.1f %10.1f%%%s\n", p.name().c_str(), ranks,
                    p.step_seconds * 1e3, p.tokens_per_second, p.efficiency * 100,
                    p.oversubscribed ? "  oversubscribed: more threads than cores" : "");
        std::fflush(stdout);
        points.push_back(p);
      }
    }
  if (args.has("--svg")) write_svg(args.get("--svg"), points);
  nlohmann::ordered_json j = nlohmann::json::array();
  for (const Point& p : points) {
    j.push_back({{"scaling", p.mode},
                 {"ranks", p.ranks},
                 {"step_seconds", p.step_seconds},
                 {"tokens_per_second", p.tokens_per_second},
                 {"efficiency", p.efficiency},
                 {"oversubscribed", p.oversubscribed}});
    if (!p.axis.empty()) j.back()["axis"] = p.axis;
  }
  write_json(args, j);
  return 0;
}

}  // namespace tfm::launch
