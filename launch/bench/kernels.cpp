// tfm-bench kernels: each op of a program alone against its roofline (Williams et al. 2009).
#include <cstdio>
#include <set>

#include "launch/bench/bench.h"
#include "launch/bench/rates.h"
#include "launch/support/automatic.h"
#include "launch/support/device_choice.h"
#include "plan/device_file.h"
#include "plan/prediction.h"
#include "train/engine.h"

namespace tfm::launch {
namespace {

using Json = nlohmann::ordered_json;

// Default model without a file: GPT-2 124M, cut to one or two seconds on a CPU, or less on a GPU.
config::Config configuration(const Arguments& args, Launch& launch) {
  if (args.positional().size() > 1)
    throw Error(ExitCode::usage,
                "expected: tfm-bench kernels [CONFIG.yaml] [section.key=value ...]");
  const auto on_device = [&](config::Config c) {
    choose_device(launch, c);
    return c;
  };
  if (!args.positional().empty())
    return on_device(load_config(args.positional()[0], args.overrides()));
  const auto gpt2 = [&](const std::string& length, const std::string& batch,
                        const std::string& precision) {
    return config::parse_config(
        "model: {family: decoder, preset: gpt2-124m, dropout: 0.0}\nprecision: " + precision +
            "\ntrain: {seq_len: " + length + ", global_batch_size: " + batch +
            ", micro_batch_size: " + batch + "}\ndata: {train: {type: tokens, path: none.bin}}\n",
        "the built-in configuration", args.overrides());
  };
  const config::Config c = on_device(gpt2("256", "4", "fp32"));
  if (c.device != config::DeviceKind::cuda) return c;
  config::Config larger = gpt2("1024", "16", "bf16");
  larger.device = c.device;
  return larger;
}

class KernelBench {
 public:
  KernelBench(const config::Config& config, const Launch& launch)
      : engine_(plan::make_step_plan(config, launch.mesh({})), launch.device(config)) {
    const double product = product_rate(engine_.device(), engine_.plan().dtype),
                 bandwidth = measure_bandwidth(engine_.device());
    const plan::AttentionRates attention{{product}, {product}};  // of a roofline
    const plan::DeviceModel::Rates rates{
        .peak = product, .product = product, .head_64 = attention, .head_128 = attention};
    model_ = {.name = "measured", .wide = rates, .half = rates, .bandwidth = bandwidth};
    engine_.initialize_parameters();
    const RandomData data(config, engine_.plan().shapes.size() - 1, engine_.plan().largest().batch);
    data::DataLoader loader = engine_.training_loader(data);
    engine_.train_step(1, 0, loader.load(0));
  }

  const plan::DeviceModel& model() const { return model_; }
  device::Device& device() { return engine_.device(); }

  // Runs the program in order; of equal instructions the first is timed.
  void run(const std::function<void(const Json&)>& found) {
    device::Device& device = engine_.device();
    const plan::ShapePlan& shape = engine_.plan().largest();
    const graph::Program& program = shape.train_program;
    const graph::ExecContext context{device.stream(), &engine_.plan().mesh, {.seed = 1}};
    std::set<std::string> done;
    for (std::size_t i = 0; i < program.instructions().size(); ++i) {
      const graph::Instruction& s = program.instructions()[i];
      if (s.kind != graph::Instruction::Kind::compute || program.fused_with_next(i)) continue;
      program.run_instruction(i, context);
      std::string name;
      double roofline = 0, flops = 0, bytes = 0;
      for (std::size_t part = s.fusion ? i - 1 : i; part <= i; ++part) {
        name += (name.empty() ? "" : " + ") + name_of_step(program, program.instructions()[part]);
        roofline += plan::kernel_seconds(program, part, false, model_).sum();
        flops += program.work(part).flops();
        bytes += static_cast<double>(program.moved_bytes(part, false));
      }
      if (s.phase == graph::Phase::recompute || bytes == 0 || !done.insert(name).second) continue;
      const double seconds = best_seconds(
          device, [&] { program.run_instruction(i, context); }, 3);
      const graph::Op& op = *program.recording().nodes()[static_cast<std::size_t>(s.node)].op;
      found(result(op.kind(), name, seconds, roofline, flops, bytes));
    }
    const optim::Optimizer& optimizer = engine_.optimizer();
    const plan::UpdateBytes bytes = plan::update_bytes(engine_.plan());
    const std::string elements =
        " of " + std::to_string(engine_.model().parameters().flat_elements()) + " elements";
    const auto numbers = device.allocate(sizeof(StepNumbers)),
               outcome = device.allocate(sizeof(StepOutcome));
    auto* const now = reinterpret_cast<StepNumbers*>(numbers.get());
    auto* const found_out = reinterpret_cast<StepOutcome*>(outcome.get());
    const StepNumbers step{.step = 2, .update = optimizer.numbers(2, 0)};
    device::upload(device.stream(), now, &step, sizeof step);
    const double norm = best_seconds(
        device, [&] { optimizer.measure(device.stream(), engine_.flat(), now, found_out); }, 3);
    const StepOutcome applied{.gradient_factor = 1, .applied = 1};
    device::upload(device.stream(), found_out, &applied, sizeof applied);
    found(result("gradient norm", "gradient norm" + elements, norm, bytes.norm / model_.bandwidth,
                 0, bytes.norm));
    const double update = best_seconds(
        device, [&] { optimizer.update(device.stream(), engine_.flat(), now, found_out); }, 3);
    found(result("update", "update" + elements, update, bytes.update / model_.bandwidth, 0,
                 bytes.update));
  }

 private:
  // Identity of an instruction: op, phase and shapes of the inputs.
  static std::string name_of_step(const graph::Program& program, const graph::Instruction& s) {
    const graph::Node& node = program.recording().nodes()[static_cast<std::size_t>(s.node)];
    std::string name = std::string(node.op->kind()) + " " + std::string(graph::name_of(s.phase));
    for (int v : node.in) {
      if (v < 0) continue;
      const graph::ValueInfo& info = program.recording().values()[static_cast<std::size_t>(v)];
      if (info.role == graph::Role::activation || info.role == graph::Role::parameter)
        name += " " + info.shape.str();
    }
    return name;
  }

  static Json result(std::string_view op, const std::string& name, double seconds, double roofline,
                     double flops, double bytes) {
    return {{"op", op},
            {"name", name},
            {"seconds", seconds},
            {"flops_per_second", flops / seconds},
            {"bytes_per_second", bytes / seconds},
            {"roofline_seconds", roofline},
            {"fraction", roofline / seconds}};
  }

  train::Engine engine_;
  plan::DeviceModel model_;
};

// Rates of long products and sequences are extrapolated: those of an idle machine stay near the
// peak, those that other work disturbed may be anything.
void warn_of_noise(const std::string& path, const plan::DeviceModel& m) {
  constexpr double kMost = 1.5;  // times the peak
  std::string above;
  for (const auto& [precision, rates] : {std::pair{"fp32", &m.wide}, {"bf16", &m.half}}) {
    const std::pair<const char*, double> measured[] = {
        {"product", rates->product},
        {"head_64.forward", rates->head_64.forward.rate},
        {"head_64.backward", rates->head_64.backward.rate},
        {"head_128.forward", rates->head_128.forward.rate},
        {"head_128.backward", rates->head_128.backward.rate}};
    for (const auto& [key, rate] : measured)
      if (rate > kMost * rates->peak)
        above += (above.empty() ? "" : ", ") + std::string(precision) + "." + key;
  }
  if (!above.empty())
    std::fprintf(stderr,
                 "warning: %s: more than %.1f times the peak: %s; the machine was busy, measure "
                 "again when it is idle\n",
                 path.c_str(), kMost, above.c_str());
}

// For tfm-plan --device.
void write_device(const std::string& path, KernelBench& bench, const Launch& launch,
                  const config::Config& config) {
  const bool cpu = bench.device().is_cpu();
  const int cores = cores_at_hand();
  plan::DeviceModel measured = cpu ? measure_core(cores, 1, cores, config::Precision::bf16)
                                   : measure_gpu(bench.device(), device_model(launch, config));
  if (cpu) measured.name = cpu_model();
  if (measured.name.empty()) measured.name = config::word(measured.kind);
  measured.rates_from = "tfm-bench kernels on " + measured.name +
                        (cpu ? ", " + std::to_string(cores) + " cores" : "") +
                        "; not measured: launch, sustained, networks";
  write_text(path, plan::dump_device(measured));
  warn_of_noise(path, measured);
}

}  // namespace

int bench_kernels(const Arguments& args) {
  Launch launch;
  if (launch.ranks > 1)
    throw Error(ExitCode::usage,
                "tfm-bench kernels measures a single rank; start it without mpirun");
  config::Config config = configuration(args, launch);
  config::resolve_for_ranks(config, 1);
  KernelBench bench(config, launch);
  const plan::DeviceModel& m = bench.model();
  const std::string precision = config::word(config.precision);
  Json results{{"precision", precision},
               {"threads", launch.threads()},
               {"product_flops_per_second", m.wide.product},
               {"copy_bytes_per_second", m.bandwidth}};
  std::printf(
      "%s, measured: matrix products %.1f GFLOP/s, copies %.1f GB/s\n%-52s %11s %10s %8s %9s\n",
      precision.c_str(), m.wide.product * 1e-9, m.bandwidth * 1e-9, "op, phase, shapes", "ms",
      "GFLOP/s", "GB/s", "roofline");
  std::vector<Bar> bars;
  bench.run([&](const Json& r) {
    std::printf("%-52s %11.4f %10.1f %8.1f %7.1f %%\n", r["name"].get<std::string>().c_str(),
                r["seconds"].get<double>() * 1e3, r["flops_per_second"].get<double>() * 1e-9,
                r["bytes_per_second"].get<double>() * 1e-9, r["fraction"].get<double>() * 100);
    std::fflush(stdout);
    bars.push_back({r["name"], r["fraction"],
                    printed("%.0f %% of the roofline, %.3f ms", r["fraction"].get<double>() * 100,
                            r["seconds"].get<double>() * 1e3)});
    results["kernels"].push_back(r);
  });
  write_results(args, results, "kernels against their roofline", bars);
  if (args.has("--device-file")) write_device(args.get("--device-file"), bench, launch, config);
  return 0;
}

}  // namespace tfm::launch
