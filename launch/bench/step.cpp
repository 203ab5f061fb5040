// tfm-bench step: where the time of a configuration's step goes.
#include <algorithm>
#include <cstdio>

#include "comm/watchdog.h"
#include "data/run_data.h"
#include "device/timed.h"
#include "launch/bench/bench.h"
#include "launch/support/automatic.h"
#include "launch/support/device_choice.h"
#include "train/step_phases.h"

namespace tfm::launch {
namespace {

using Json = nlohmann::ordered_json;

// An op in one phase, over a step.
struct Row {
  std::string op;
  graph::Phase phase;
  double seconds = 0, flops = 0, bytes = 0, calls = 0;
};

double real(std::int64_t n) { return static_cast<double>(n); }

class StepBench {
 public:
  StepBench(const Arguments& args, Launch& launch)
      : launch_(launch),
        config_(load(args, launch)),
        engine_(plan::make_step_plan(config_, launch.mesh(config::layout_of(config_))),
                launch.device(config_)),
        schedule_(plan::schedule_of(config_)),
        random_(config_, engine_.plan().shapes.size() - 1, engine_.plan().largest().batch),
        // With length buckets: the longest bucket.
        data_(!args.has("--random-data") && engine_.plan().shapes.size() == 1
                  ? std::make_unique<data::RunData>(config_)
                  : nullptr),
        loader_(engine_.training_loader(data_ ? *data_->train : random_)),
        watchdog_(engine_.plan().mesh, config_.parallel.longest_wait()) {
    engine_.initialize_parameters();
  }

  void steps(std::int64_t count, std::vector<double>* seconds) {
    for (std::int64_t i = 0; i < count; ++i) {
      engine_.plan().mesh.world().barrier();
      double wall = 0;
      device::timed(engine_.device().stream(), &wall, [&] { step(); });
      if (seconds) seconds->push_back(wall);
    }
  }

  Json measure(std::int64_t warmup, std::int64_t count) {
    steps(warmup, nullptr);
    std::vector<double> plain, parts;
    steps(count, &plain);
    data_seconds_ = 0;
    engine_.time_steps(&times_);
    steps(count, &parts);
    engine_.time_steps(nullptr);
    const Means means = means_of(count, parts);
    const plan::ShapePlan& s = engine_.plan().largest();
    Json j{{"ranks", engine_.plan().mesh.layout.world()},
           {"device", engine_.device().is_cpu() ? "cpu" : "cuda"},
           {"threads", engine_.device().threads()},
           {"steps", count},
           {"tokens_per_step", s.batch * s.shape.length},
           {"random_data", !data_},
           {"step_seconds", median(plain)},
           {"tokens_per_second", static_cast<double>(s.batch * s.shape.length) / median(plain)},
           {"timed_step_seconds", means.whole}};
    for (const std::string_view phase : train::kPhases)
      if (const auto at = means.phases.find(std::string(phase)); at != means.phases.end())
        j["phases"][at->first] = at->second;
    for (const Row& r : means.rows)
      j["ops"].push_back({{"op", r.op},
                          {"phase", graph::name_of(r.phase)},
                          {"seconds", r.seconds},
                          {"share", r.seconds / means.whole},
                          {"calls", r.calls},
                          {"flops_per_second", r.flops / r.seconds},
                          {"bytes_per_second", r.bytes / r.seconds}});
    return j;
  }

  bool lead() const { return engine_.plan().mesh.rank() == 0; }

 private:
  static config::Config load(const Arguments& args, Launch& launch) {
    if (args.positional().size() != 1)
      throw Error(ExitCode::usage, "expected: tfm-bench step CONFIG.yaml [section.key=value ...]");
    config::Config c = load_config(args.positional()[0], args.overrides());
    choose_device(launch, c);
    choose(launch, c);
    return c;
  }

  void step() {
    const Batch* batch = nullptr;
    device::timed(&engine_.device().host(), &data_seconds_, [&] { batch = &loader_.load(done_); });
    engine_.train_step(done_ + 1, schedule_.at(done_ + 1), *batch);
    ++done_;
  }

  // Of a step, averaged over all ranks. Stages of a pipeline have different ops.
  struct Means {
    double whole = 0;
    std::map<std::string, double> phases;
    std::vector<Row> rows;  // from the longest on
  };

  // `parts`: seconds of the `count` timed steps.
  Means means_of(std::int64_t count, const std::vector<double>& parts) {
    for (double* s : {&times_.norm, &times_.update, &data_seconds_}) *s /= real(count);
    for (double& s : times_.program) s /= real(count);
    double whole = 0;
    for (double s : parts) whole += s / real(count);
    Json own{{"whole", whole}};
    for (const auto& [name, seconds] : train::phases_of_step(engine_.plan().largest().train_program,
                                                             times_, data_seconds_, whole))
      own["phases"].push_back({name, seconds});
    for (const Row& r : rows_of_program())
      own["rows"].push_back({r.op, r.phase, r.seconds, r.flops, r.bytes, r.calls});
    return means_of(launch_.gather(own.dump()));
  }

  static Means means_of(const std::vector<std::string>& ranks) {
    Means means;
    std::map<std::pair<std::string, graph::Phase>, Row> rows;
    const double share = 1 / real(std::ssize(ranks));
    for (const std::string& text : ranks) {
      const Json rank = Json::parse(text);
      means.whole += share * rank["whole"].get<double>();
      for (const Json& p : rank["phases"]) means.phases[p[0]] += share * p[1].get<double>();
      for (const Json& of : rank["rows"]) {
        const std::string op = of[0];
        const auto phase = of[1].get<graph::Phase>();
        Row& r = rows.try_emplace({op, phase}, Row{op, phase}).first->second;
        r.seconds += share * of[2].get<double>();
        r.flops += share * of[3].get<double>();
        r.bytes += share * of[4].get<double>();
        r.calls += share * of[5].get<double>();
      }
    }
    for (const auto& [key, r] : rows) means.rows.push_back(r);
    std::ranges::stable_sort(means.rows, std::greater{}, &Row::seconds);
    return means;
  }

  std::vector<Row> rows_of_program() const {
    const plan::ShapePlan& s = engine_.plan().largest();
    const graph::Program& program = s.train_program;
    std::map<std::pair<std::string, graph::Phase>, Row> rows;
    const auto kind_of = [&](std::size_t i) {
      return std::string(program.recording()
                             .nodes()[static_cast<std::size_t>(program.instructions()[i].node)]
                             .op->kind());
    };
    for (std::size_t i = 0; i < program.instructions().size(); ++i) {
      const graph::Instruction& step = program.instructions()[i];
      if (step.node < 0 || program.fused_with_next(i)) continue;
      const std::size_t first = step.fusion ? i - 1 : i;
      const std::string kind = (first < i ? kind_of(first) + " + " : "") + kind_of(i);
      Row& r = rows.try_emplace({kind, step.phase}, Row{kind, step.phase}).first->second;
      for (std::size_t part = first; part <= i; ++part) {
        r.seconds += times_.program[part];
        r.flops += program.work(part).flops() * real(s.micro_batches);
        r.bytes += real(program.moved_bytes(part, false) +
                        (s.micro_batches - 1) * program.moved_bytes(part, true));
      }
      const bool begins = step.kind == graph::Instruction::Kind::compute && step.stage == 0 &&
                          step.gradients != graph::Instruction::Gradients::of_parameters;
      if (begins) r.calls += real(s.micro_batches);
    }
    std::vector<Row> all;
    for (const auto& [key, r] : rows) all.push_back(r);
    return all;
  }

  const Launch& launch_;
  config::Config config_;
  train::Engine engine_;
  optim::Schedule schedule_;
  RandomData random_;
  std::unique_ptr<data::RunData> data_;
  data::DataLoader loader_;
  comm::Watchdog watchdog_;
  train::StepTimes times_;
  double data_seconds_ = 0;
  std::int64_t done_ = 0;
};

void print(const Json& j) {
  const double whole = j["timed_step_seconds"];
  std::printf("%s, %d ranks of %d threads, %lld tokens per step%s\n",
              j["device"].get<std::string>().c_str(), j["ranks"].get<int>(),
              j["threads"].get<int>(), j["tokens_per_step"].get<long long>(),
              j["random_data"].get<bool>() ? " of random ids" : "");
  std::printf(
      "step %.3f ms, %.1f tokens/s (median); with a synchronization after every op %.3f ms (mean), "
      "of which\n",
      j["step_seconds"].get<double>() * 1e3, j["tokens_per_second"].get<double>(), whole * 1e3);
  std::printf("\n%-12s %12s %8s\n", "phase", "ms", "share");
  for (const auto& [name, s] : j["phases"].items())
    std::printf("%-12s %12.3f %7.1f%%\n", name.c_str(), s.get<double>() * 1e3,
                s.get<double>() / whole * 100);
  std::printf("\n%-18s %-10s %12s %8s %8s %12s %10s\n", "op", "phase", "ms", "share", "calls",
              "GFLOP/s", "GB/s");
  for (const Json& r : j["ops"]) {
    std::printf("%-18s %-10s %12.3f %7.1f%% %8.6g ", r["op"].get<std::string>().c_str(),
                r["phase"].get<std::string>().c_str(), r["seconds"].get<double>() * 1e3,
                r["share"].get<double>() * 100, r["calls"].get<double>());
    std::printf("%12.1f %10.1f\n", r["flops_per_second"].get<double>() * 1e-9,
                r["bytes_per_second"].get<double>() * 1e-9);
  }
}

}  // namespace

int bench_step(const Arguments& args) {
  const std::int64_t steps = args.integer("--steps", 10, 1),
                     warmup = args.integer("--warmup", 2, 0);
  Launch launch;
  StepBench bench(args, launch);
  const Json j = bench.measure(warmup, steps);
  if (!bench.lead()) return 0;
  print(j);
  std::vector<Bar> bars;
  for (const Json& r : j["ops"])
    bars.push_back({r["op"].get<std::string>() + " " + r["phase"].get<std::string>(), r["seconds"],
                    printed("%.3f ms", r["seconds"].get<double>() * 1e3)});
  write_results(args, j, "time of a step by op", bars);
  return 0;
}

}  // namespace tfm::launch
