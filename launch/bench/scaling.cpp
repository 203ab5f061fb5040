// tfm-bench scaling: throughput and efficiency of one configuration against the number of ranks.
#include "launch/bench/scaling.h"

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <set>
#include <sstream>

#include "core/version.h"
#include "launch/bench/launcher.h"
#include "launch/bench/rates.h"
#include "launch/support/control_group.h"
#include "plan/choose.h"
#include "plan/prediction.h"
#include "plan/rank_plans.h"
#include "telemetry/live_line.h"
#include "train/trainer.h"

namespace tfm::launch {
namespace {

using Json = nlohmann::ordered_json;

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

std::set<int> rank_list(const Arguments& args) {
  std::string fallback = "1";
  for (int n = 2; n <= cores_at_hand(); n *= 2) fallback += "," + std::to_string(n);
  const std::string text = args.get("--ranks", fallback);
  std::set<int> ranks;
  for (const std::string& item : listed(text)) {
    int n = 0;
    const auto [end, error] = std::from_chars(item.data(), item.data() + item.size(), n);
    if (error != std::errc() || end != item.data() + item.size() || n < 1) n = 0;
    ranks.insert(n);
  }
  if (ranks.empty() || ranks.contains(0))
    throw Error(
        ExitCode::usage,
        "--ranks '" + text + "': expected comma-separated numbers of at least 1, such as 1,2,4");
  return ranks;
}

// One of a configuration's problems without its place: the first with an override, where an axis
// is set, else the first of all.
std::string reason_of(const std::string& problems) {
  const std::string mark = ": error: ";
  std::istringstream in(problems);
  std::string found;
  bool of_override = false;
  for (std::string line; std::getline(in, line);) {
    const auto at = line.find(mark);
    if (line.starts_with(" ") || at == std::string::npos) continue;
    const bool better = !of_override && line.starts_with("override ");
    if (found.empty() || better) found = line.substr(at + mark.size());
    of_override |= better;
  }
  return found.empty() ? problems.substr(0, problems.find('\n')) : found;
}

struct Point {
  std::string axis;  // empty: as configured
  int ranks = 1;
  std::string skipped;    // why it cannot be run; empty: it can
  config::Config config;  // of its runs
  std::vector<MeasuredRun> runs;
  std::vector<plan::DeviceModel> devices;  // a rank of each run, measured; on GPUs none

  const Json& host() const { return runs.front().host; }
  double tokens() const { return runs.front().tokens_per_step; }
  double seconds() const {  // of a step
    std::vector<double> all;
    for (const MeasuredRun& r : runs) all.push_back(r.step_seconds);
    return median(all);
  }
};

class Scaling {
 public:
  explicit Scaling(const Arguments& args)
      : file_(args.only("configuration file")),
        overrides_(args.overrides()),
        launcher_(args),
        weak_(args.has("--weak")),
        warmup_(args.integer("--warmup", 3, 0)),
        steps_(args.integer("--steps", 10, 1)),
        repeats_(args.integer("--repeats", 1, 1)),
        read_(load_config(file_, overrides_)) {
    const std::set<int> ranks = rank_list(args);
    for (const ScaledAxis& axis : axis_list(args.get("--axes")))
      for (const int n : ranks) points_.push_back(prepare(axis, n));
  }

  bool any() const {
    return std::ranges::any_of(points_, [](const Point& p) { return p.skipped.empty(); });
  }

  // Rounds over all points, so that what slows the machine for a while does not hit one of them.
  // They end with the first run that fails, whose error is returned; what was measured before it
  // stays.
  std::optional<Error> measure() {
    print_scaling_header();
    std::optional<Error> failed;
    for (std::int64_t round = 1; round <= repeats_ && !failed; ++round)
      for (Point& p : points_) {
        try {
          if (p.skipped.empty()) measure(p, round);
        } catch (const Error& e) {
          failed = e;
          p.skipped = reason_of(e.what());
          break;
        }
        if (round == repeats_) print(p);
      }
    for (Point& p : points_)
      if (p.skipped.empty() && p.runs.empty()) p.skipped = "not reached";
    while (described_.size() < points_.size()) print(points_[described_.size()]);
    return failed;
  }

  Json results() const {
    const Point* const first = first_run();
    const auto host = [&](const char* key) { return first ? first->host().at(key) : Json(); };
    return {
        {"configuration", file_}, {"overrides", overrides_},    {"launcher", launcher_.command()},
        {"mode", mode()},         {"version", version},         {"device", host("device")},
        {"cpu", host("cpu")},     {"threads", host("threads")}, {"warmup", warmup_},
        {"steps", steps_},        {"repeats", repeats_},        {"prediction", prediction(first)},
        {"points", described_}};
  }

 private:
  void measure(Point& p, std::int64_t round) {
    telemetry::set_live_line("round " + std::to_string(round) + " of " + std::to_string(repeats_) +
                             ": ranks " + std::to_string(p.ranks));
    p.runs.push_back(launcher_.run(p.config, p.ranks, warmup_));
    check_device(p);
    if (!on_gpu(p)) p.devices.push_back(measured_rank(p.host()));
    telemetry::clear_live_line();
  }

  void print(const Point& p) { print_scaling_point(described_.emplace_back(describe(p))); }

  const char* mode() const { return weak_ ? "weak" : "strong"; }
  // With `device: auto` the runs choose.
  static bool on_gpu(const Point& p) {
    return p.host()["device"] == config::word(config::DeviceKind::cuda);
  }

  const Point* first_run() const {
    const auto first =
        std::ranges::find_if(points_, [](const Point& p) { return !p.runs.empty(); });
    return first == points_.end() ? nullptr : &*first;
  }

  // Throughput on different devices says nothing of scaling.
  void check_device(const Point& p) const {
    const Point& first = *first_run();
    const std::string mine = p.host()["device"], before = first.host()["device"];
    if (mine != before)
      throw Error(ExitCode::environment,
                  counted(first.ranks, "rank") + " computed on " + before + ", " +
                      counted(p.ranks, "rank") + " on " + mine +
                      "; set device=cpu, or device=cuda, where ranks may share a GPU");
  }

  // What a point changes.
  std::vector<std::string> overrides(const ScaledAxis& axis, int ranks) const {
    std::vector<std::string> all;
    if (weak_) {
      const config::TrainConfig& t = read_.train;
      all.push_back(t.global_batch_tokens > 0
                        ? "train.global_batch_tokens=" +
                              std::to_string(t.global_batch_tokens * ranks)
                        : "train.global_batch_size=" + std::to_string(t.global_batch_size * ranks));
    }
    if (axis.name.empty()) return all;
    const config::ParallelConfig& p = read_.parallel;
    std::int64_t others = p.tensor * p.pipeline * p.context;
    all.emplace_back("parallel.data=auto");
    if (axis.size) {
      others /= p.*axis.size;
      all.push_back("parallel." + std::string(axis.name) + "=" +
                    std::to_string(std::max<std::int64_t>(1, ranks / others)));
    }
    if (!axis.with.empty()) all.emplace_back(axis.with);
    return all;
  }

  // As tfm-train --check --ranks does it; what a run does besides training is left out.
  Point prepare(const ScaledAxis& axis, int ranks) const {
    Point p{.axis = std::string(axis.name), .ranks = ranks};
    try {
      config::Config c = config::with_overrides(read_, overrides(axis, ranks), file_);
      c.train.steps = warmup_ + steps_;
      if (c.schedule.type == config::ScheduleType::wsd)  // whose parts need not fit so few steps
        c.schedule = {.type = config::ScheduleType::constant,
                      .warmup_steps = c.schedule.warmup_steps};
      c.data.validation.reset();
      c.eval = {};
      c.checkpoint = {.dir = "none", .resume = "never"};
      c.metrics = {};
      p.config = c;
      config::resolve_for_ranks(c, ranks);
      train::check_inputs(c);
    } catch (const Error& e) {
      if (e.code() != ExitCode::usage) throw;
      p.skipped = reason_of(e.what());
    }
    return p;
  }

  // Of this machine, each time right after a run: what else happens on it slows both.
  plan::DeviceModel measured_rank(const Json& host) const {
    const int cores = host["cores"], ranks = host["ranks"], threads = host["threads"];
    return plan::cpu_model(
        measure_core(std::min(cores, cores_at_hand()), ranks, threads, read_.precision),
        host_memory(), cores, ranks, threads);
  }

  double predicted_seconds(const Point& p) const {
    std::vector<plan::DeviceModel> devices = p.devices;
    if (on_gpu(p)) {
      devices = {plan::gpu_model(plan::Target::h200)};
      if (read_.tf32) devices[0].use_tf32();
    }
    config::Config c = p.config;
    plan::choose(c, p.ranks, devices[0]).layout.apply(c);
    config::resolve_for_ranks(c, p.ranks);
    const plan::RankPlans plans(c);
    std::vector<double> all;
    for (const plan::DeviceModel& device : devices)
      all.push_back(plan::predict(plans.stages(), device).seconds());
    return median(all);
  }

  Json prediction(const Point* first) const {
    if (!first) return nullptr;
    if (on_gpu(*first))
      return {{"device", config::word(plan::Target::h200)},
              {"rates_from", plan::gpu_model(plan::Target::h200).rates_from}};
    const std::string here = cpu_model();
    const Json& cpu = first->host().at("cpu");
    return {{"device", config::word(plan::Target::cpu)},
            {"rates_from", "cores measured on this machine" +
                               (cpu == here || cpu.is_null() ? "" : ", which has " + here) +
                               "; links assumed"}};
  }

  Json describe(const Point& p) const {
    Json j{{"mode", mode()}, {"axis", p.axis.empty() ? Json() : Json(p.axis)}, {"ranks", p.ranks}};
    for (const char* key :
         {"ranks_per_host", "threads", "cores", "tokens_per_step", "step_seconds",
          "step_seconds_min", "step_seconds_max", "tokens_per_second", "tokens_per_second_min",
          "tokens_per_second_max", "efficiency", "predicted_tokens_per_second", "oversubscribed"})
      j[key] = nullptr;
    j["skipped"] = p.skipped.empty() ? Json() : Json(p.skipped);
    if (!p.skipped.empty()) return j;
    j["ranks_per_host"] = p.host()["ranks"];
    for (const char* key : {"threads", "cores", "oversubscribed"}) j[key] = p.host()[key];
    const auto [least, most] = std::ranges::minmax(p.runs, {}, &MeasuredRun::step_seconds);
    j["tokens_per_step"] = p.tokens();
    j["step_seconds"] = p.seconds();
    j["step_seconds_min"] = least.step_seconds;
    j["step_seconds_max"] = most.step_seconds;
    j["tokens_per_second"] = p.tokens() / p.seconds();
    j["tokens_per_second_min"] = p.tokens() / most.step_seconds;
    j["tokens_per_second_max"] = p.tokens() / least.step_seconds;
    j["predicted_tokens_per_second"] = p.tokens() / predicted_seconds(p);
    if (const auto share = efficiency(p)) j["efficiency"] = *share;
    return j;
  }

  // Of a rank, against the fewest ranks that were measured on this axis.
  std::optional<double> efficiency(const Point& p) const {
    const Point& base = *std::ranges::find_if(
        points_, [&](const Point& other) { return other.axis == p.axis && other.skipped.empty(); });
    if (base.host()["oversubscribed"].get<bool>() || p.host()["oversubscribed"].get<bool>())
      return {};
    const auto of_rank = [](const Point& of) { return of.tokens() / of.seconds() / of.ranks; };
    return of_rank(p) / of_rank(base);
  }

  std::string file_;
  std::vector<std::string> overrides_;
  Launcher launcher_;
  bool weak_;
  std::int64_t warmup_, steps_, repeats_;
  config::Config read_;
  std::vector<Point> points_;  // of each axis by ascending ranks
  std::vector<Json> described_;
};

}  // namespace

int bench_scaling(const Arguments& args) {
  if (ranks_of_launch() > 1)
    throw Error(ExitCode::usage,
                "scaling starts the ranks itself, by mpirun or --launcher; start it alone");
  Scaling scaling(args);
  const std::optional<Error> failed = scaling.measure();
  const Json results = scaling.results();
  if (const Json& from = results["prediction"]; !from.is_null())
    std::printf("%s of the runs' first host; predicted with %s\n",
                results["cpu"].is_null() ? "processor" : results["cpu"].get<std::string>().c_str(),
                from["rates_from"].get<std::string>().c_str());
  if (args.has("--csv")) write_scaling_csv(args.get("--csv"), results["points"]);
  if (args.has("--svg")) write_scaling_svg(args.get("--svg"), results);
  write_json(args, results);
  if (failed) throw *failed;
  if (scaling.any()) return 0;
  throw Error(ExitCode::usage, "the configuration allows none of these points");
}

}  // namespace tfm::launch
