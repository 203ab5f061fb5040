#include "report/run.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>
#include <tuple>
#include <utility>

#include "config/settings.h"
#include "core/error.h"
#include "io/file.h"
#include "report/scaling.h"

namespace tfm::report {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

const std::set<std::string> kNoMetrics{"step", "tokens", "seconds",
                                       "time"};  // keys of an evaluation

constexpr std::size_t kMostLoads = 200;  // Run::expert_loads
constexpr double kLatest = 1e11;         // Unix time; later ones are damage

double number_of(const Json& object, const char* key) {
  const auto at = object.find(key);
  return at != object.end() && at->is_number() ? at->get<double>() : std::nan("");
}
std::int64_t integer_of(const Json& object, const char* key) {
  const auto at = object.find(key);
  return at != object.end() && at->is_number_integer() ? at->get<std::int64_t>() : 0;
}
std::string text_of(const Json& object, const char* key) {
  const auto at = object.find(key);
  return at != object.end() && at->is_string() ? at->get<std::string>() : "";
}
std::map<std::string, std::int64_t> integers_of(const Json& object, const char* key) {
  std::map<std::string, std::int64_t> all;
  if (const auto at = object.find(key); at != object.end() && at->is_object())
    for (const auto& [name, value] : at->items())
      if (value.is_number_integer()) all[name] = value.get<std::int64_t>();
  return all;
}

// Names are compared without their number first, then by it.
bool layer_before(const std::string& a, const std::string& b) {
  const auto key = [](const std::string& name) {
    const std::size_t at = name.find_last_not_of("0123456789") + 1;
    return std::tuple(name.substr(0, at), name.size() - at, name);
  };
  return key(a) < key(b);
}

class Reader {
 public:
  explicit Reader(Run& run) : run_(run) {}

  void read(std::string_view text) {
    std::size_t number = 0;
    for (std::size_t at = 0; at < text.size();) {
      const std::size_t end = text.find('\n', at);
      ++number;
      if (end == std::string_view::npos) {
        run_.notes.push_back("line " + std::to_string(number) +
                             ", the last one, is incomplete: the run is writing it, or was killed");
        break;
      }
      if (end > at && !add(Json::parse(text.substr(at, end - at), nullptr, false))) {
        ++damaged_;
        if (damaged_ == 1) first_ = number;
      }
      at = end + 1;
    }
    if (damaged_ > 0)
      run_.notes.push_back(std::to_string(damaged_) +
                           (damaged_ == 1 ? " damaged line was" : " damaged lines were") +
                           " skipped, the first one is line " + std::to_string(first_));
  }

  bool any() const { return any_; }

 private:
  // false: not a line that a run writes.
  bool add(const Json& line) {
    if (!line.is_object()) return false;
    const std::string event = text_of(line, "event");
    if (event.empty()) return false;
    if (event == "start")
      start(line);
    else if (const auto step = line.find("step"); step == line.end() || !step->is_number_integer())
      return false;
    else if (event == "step")
      add_step(line);
    else if (event == "eval")
      add_evaluation(line);
    else if (event == "checkpoint")
      add_seconds("checkpoints", line);
    else if (event == "end")
      run_.end = text_of(line, "reason").empty() ? "steps" : text_of(line, "reason");
    any_ = true;
    return true;
  }

  // What lies after the step that a run resumed from is done again.
  void start(const Json& line) {
    const std::int64_t resumed = integer_of(line, "resumed_step");
    cut(resumed);
    run_.end.clear();
    start_ = number_of(line, "time");
    before_ = resumed > 0 && !run_.elapsed.empty()
                  ? run_.elapsed.value_at(static_cast<double>(resumed))
                  : 0;
    if (const std::string name = text_of(line, "run"); !name.empty()) run_.name = name;
    if (!std::exchange(started_, true)) run_.begin = resumed;
    if (resumed > 0) run_.restarts.push_back(resumed);
    run_.config = text_of(line, "config");
    run_.version = text_of(line, "version");
    run_.parameters = integer_of(line, "parameters");
    run_.world = integer_of(line, "world");
    run_.planned_bytes = integer_of(line, "planned_bytes");
    run_.layout = integers_of(line, "layout");
    run_.memory = integers_of(line, "memory");
    const double flops = number_of(line, "rank_flops_per_step");
    run_.rank_flops = std::isfinite(flops) ? flops : 0;
    run_.activations.clear();
    if (const auto a = line.find("activations"); a != line.end() && a->is_object()) {
      run_.backward = integer_of(*a, "backward");
      run_.instructions = integer_of(*a, "instructions");
      for (const Json& bytes : a->value("bytes", Json::array()))
        run_.activations.push_back(bytes.is_number_integer() ? bytes.get<std::int64_t>() : 0);
    }
    run_.collectives.clear();
    for (const Json& c : line.value("collectives", Json::array()))
      if (c.is_object())
        run_.collectives.push_back(
            {text_of(c, "op"), text_of(c, "axis"), integer_of(c, "bytes"), integer_of(c, "count")});
  }

  void cut(std::int64_t last) {
    const auto at = static_cast<double>(last);
    for (auto* all : {&run_.steps, &run_.phases, &run_.evaluations})
      for (auto& [name, series] : *all) series.cut(at);
    run_.dates.cut(at), run_.elapsed.cut(at);
    if (std::erase_if(run_.expert_loads, [&](const ExpertLoads& l) { return l.step > at; }) > 0)
      passing_ = false;
    std::erase_if(run_.restarts, [&](std::int64_t step) { return step > last; });
    run_.last_step = std::min(run_.last_step, last);
  }

  void add_step(const Json& line) {
    const std::int64_t step = integer_of(line, "step");
    if (step <= run_.last_step) cut(step - 1);
    run_.last_step = step;
    const auto at = static_cast<double>(step);
    add_time(at, line);
    for (const char* metric : {"loss", "grad_norm", "lr", "tokens", "tokens_per_second",
                               "step_seconds", "mfu", "loss_scale", "peak_memory_bytes"})
      run_.steps[metric].add(at, number_of(line, metric));
    for (const auto& [name, value] : line.items())  // terms of the loss
      if (name.starts_with("loss_") && name != "loss_scale" && value.is_number())
        run_.steps[name].add(at, value.get<double>());
    if (const auto loads = line.find("expert_load"); loads != line.end() && loads->is_object())
      add_loads(at, *loads);
    if (const auto phases = line.find("phases"); phases != line.end() && phases->is_object())
      for (const auto& [name, seconds] : phases->items())
        if (seconds.is_number()) run_.phases[name].add(at, seconds.get<double>());
  }

  // Every so manieth one is kept, and the last.
  void add_loads(double step, const Json& layers) {
    ExpertLoads loads{.step = step, .layers = {}};
    for (const auto& [layer, of] : layers.items()) {
      if (!of.is_array() || of.empty()) continue;
      auto& values = loads.layers.emplace_back(layer, std::vector<double>()).second;
      for (const Json& x : of)
        values.push_back(x.is_number() && x.get<double>() >= 0 ? x.get<double>() : 0);
    }
    if (loads.layers.empty()) return;
    std::ranges::sort(loads.layers, layer_before,
                      &std::pair<std::string, std::vector<double>>::first);
    std::vector<ExpertLoads>& all = run_.expert_loads;
    if (passing_ && !all.empty()) all.pop_back();
    if (all.size() == kMostLoads) {
      for (std::size_t i = 1; i < all.size(); ++i)
        all.erase(all.begin() + static_cast<std::ptrdiff_t>(i));
      load_stride_ *= 2;
    }
    passing_ = loads_++ % load_stride_ != 0;
    all.push_back(std::move(loads));
  }

  // A clock that is set back does not turn the axis round.
  void add_time(double step, const Json& line) {
    const double time = number_of(line, "time");
    Series &dates = run_.dates, &elapsed = run_.elapsed;
    if (!(start_ > 0 && time > 0 && time < kLatest) || (!dates.empty() && dates.x.back() >= step))
      return;
    dates.add(step, dates.empty() ? time : std::max(time, dates.y.back()));
    const double seconds = before_ + time - start_;
    elapsed.add(step, std::max(seconds, elapsed.empty() ? 0 : elapsed.y.back()));
  }

  void add_evaluation(const Json& line) {
    const auto at = static_cast<double>(integer_of(line, "step"));
    add_time(at, line);
    for (const auto& [name, value] : line.items()) {
      if (kNoMetrics.contains(name) || !value.is_number()) continue;
      Series& series = run_.evaluations[name];
      series.cut(at - 1);
      series.add(at, value.get<double>());
    }
    add_seconds("evaluation", line);
  }

  void add_seconds(const char* what, const Json& line) {
    if (const double s = number_of(line, "seconds"); std::isfinite(s))
      run_.seconds_outside[what] += s;
  }

  Run& run_;
  bool started_ = false;
  double start_ = std::nan(""), before_ = 0;  // of the last start; seconds of running before it
  std::size_t damaged_ = 0, first_ = 0;
  bool any_ = false;
  std::size_t loads_ = 0, load_stride_ = 1;  // of experts: read, and of these one is kept
  bool passing_ = false;                     // the last ones are kept until the next
};

std::string name_of(const fs::path& directory) {
  const fs::path whole = fs::absolute(directory.empty() ? "." : directory).lexically_normal();
  const fs::path name = whole.has_filename() ? whole.filename() : whole.parent_path().filename();
  return name.empty() ? whole.string() : name.string();
}

// The directories of metrics.jsonl below one that has none itself, by name.
std::vector<std::string> runs_below(const fs::path& folder) {
  std::vector<std::string> found;
  std::error_code error;
  if (fs::exists(folder / "metrics.jsonl", error)) return found;
  fs::recursive_directory_iterator at(folder, fs::directory_options::skip_permission_denied, error);
  for (const auto end = fs::end(at); !error && at != end; at.increment(error))
    if (at->path().filename() == "metrics.jsonl")
      found.push_back(at->path().parent_path().string());
  std::ranges::sort(found);
  return found;
}

}  // namespace

void Series::cut(double last) {
  const auto keep = std::upper_bound(x.begin(), x.end(), last) - x.begin();
  x.resize(static_cast<std::size_t>(keep));
  y.resize(static_cast<std::size_t>(keep));
}

double Series::value_at(double at) const {
  if (x.empty()) return std::nan("");
  const auto i = static_cast<std::size_t>(std::ranges::lower_bound(x, at) - x.begin());
  if (i == x.size()) return y.back();
  if (i == 0 || x[i] == at) return y[i];
  return y[i - 1] + (y[i] - y[i - 1]) * (at - x[i - 1]) / (x[i] - x[i - 1]);
}

std::size_t Series::finite() const {
  return static_cast<std::size_t>(
      std::ranges::count_if(y, [](double v) { return std::isfinite(v); }));
}

const Series& Run::step(const std::string& metric) const {
  static const Series none;
  const auto at = steps.find(metric);
  return at == steps.end() ? none : at->second;
}

double Run::last(const std::string& metric) const {
  const Series& s = step(metric);
  for (std::size_t i = s.y.size(); i-- > 0;)
    if (std::isfinite(s.y[i])) return s.y[i];
  return std::nan("");
}

Run read_run(const std::string& path) {
  std::error_code error;
  const bool directory = fs::is_directory(path, error);
  const fs::path file = directory ? fs::path(path) / "metrics.jsonl" : fs::path(path);
  Run run;
  run.path = path;
  run.name = name_of(directory ? fs::path(path) : file.parent_path());
  if (directory) read_scaling(path, run);
  if (!fs::is_regular_file(file, error) && !run.scaling.empty()) return run;
  if (directory && !fs::exists(file, error))
    throw Error(
        ExitCode::input,
        path +
            ": has no metrics.jsonl, nor has a directory below it; "
            "expected the directory in which a run wrote it (metrics.jsonl=DIR/metrics.jsonl)");
  run.files.push_back(file.string());
  const io::MappedFile mapped(file.string());
  Reader reader(run);
  reader.read({reinterpret_cast<const char*>(mapped.bytes().data()), mapped.bytes().size()});
  if (!reader.any() && run.scaling.empty())
    throw Error(ExitCode::input, file.string() +
                                     ": holds no event of a run; expected lines such as "
                                     "{\"event\":\"step\",\"step\":1,\"loss\":10.98}");
  if (const Series& loss = run.step("loss"); !loss.empty())
    run.nonfinite = static_cast<std::int64_t>(loss.x.size() - loss.finite());
  return run;
}

std::vector<Run> read_runs(const std::vector<std::string>& paths) {
  std::vector<Run> runs;
  for (const std::string& path : paths) {
    const std::vector<std::string> below = runs_below(path);
    for (const std::string& run : below.empty() ? std::vector{path} : below)
      runs.push_back(read_run(run));
  }
  std::map<std::string, int> names;
  for (const Run& run : runs) ++names[run.name];
  for (Run& run : runs)
    if (names[run.name] > 1) run.name += " (" + run.path + ")";
  return runs;
}

}  // namespace tfm::report
