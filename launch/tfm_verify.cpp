// tfm-verify: checks that a configuration's sharded run equals the single-rank one.
#include <algorithm>
#include <cstdio>
#include <limits>
#include <numeric>

#include "comm/watchdog.h"
#include "launch/programs.h"
#include "launch/support/automatic.h"
#include "launch/support/control_group.h"
#include "launch/support/device_choice.h"
#include "models/registry.h"
#include "verify/as_run.h"
#include "verify/layout.h"
#include "verify/save_and_load.h"

namespace {

constexpr const char* kHelp =
    R"(usage: mpirun -np N tfm-verify CONFIG.yaml [section.key=value ...] [options]
  --full             keep the configured sizes (default: shrink to 2 layers, heads of 8, 16 tokens)
  --as-run           check the run's own precision, device and kernels, at full width, see below
  --inject-error P   change the gradient of parameter P in the sharded run, to see it reported
  --help, --version
Compares the layout of this launch with a single rank: loss, every gradient, and the parameters
after 5 steps, in float64 on synthetic tokens, with dropout and device as configured; saves and
loads a checkpoint in the configured precision.
With --as-run the step is the run's: precision, device, layout, recomputation, and two micro-batches
where it has several, with as many layers as fit into memory. Loss, gradient norm and the gradient
of every parameter are compared with float64 on one rank, and may err by 2 times (gradients by 3
times) as much as the plain computation, every result of which is rounded to the precision. The
first update, the 16-bit copies of weights, and recomputation on against off are exact. A fault of
an op that float64 shares is not found.
Exits with 0 if all are equal, otherwise with 1 after naming the first tensor that differs.
)";

using namespace tfm;

// Makes the first gradient of `parameter` wrong, on the last rank that has it or on all that do;
// nothing where it is empty. Collective.
std::function<void(verify::Trace&)> injection(const config::Config& config, const comm::Mesh& mesh,
                                              const std::string& parameter, bool all) {
  if (parameter.empty()) return [](verify::Trace&) {};
  const auto model = models::make_model(config, mesh);
  const auto& slices = model->parameters().slices();
  const auto found = std::ranges::find(slices, parameter, &nn::PartSlice::name);
  const double has = found != slices.end();
  std::vector<double> having(static_cast<std::size_t>(mesh.layout.world()));
  mesh.world().all_gather({const_cast<double*>(&has), DType::f64, {1}},
                          {having.data(), DType::f64, {std::ssize(having)}});
  const auto last = std::ranges::find(having.rbegin(), having.rend(), 1.0);
  if (last == having.rend())
    throw Error(ExitCode::usage, "--inject-error: the model has no parameter " + parameter +
                                     "; expected one such as " + slices.front().name);
  const bool here = has > 0 && (all || having.rend() - last == mesh.rank() + 1);
  return [part = static_cast<std::size_t>(found - slices.begin()), here](verify::Trace& trace) {
    if (here && part < trace.gradients.size() && !trace.gradients[part].empty())
      trace.gradients[part].front() += 1;
  };
}

// " on ranks 1, 3"
std::string on_ranks(const std::vector<int>& ranks) {
  std::string text;
  for (const int r : ranks)
    text += (!text.empty()       ? ", "
             : ranks.size() == 1 ? " on rank "
                                 : " on ranks ") +
            std::to_string(r);
  return text;
}

// Prints the findings; whether all are equal.
bool report(const std::vector<verify::Finding>& findings, bool lead) {
  bool ok = true;
  for (const verify::Finding& f : findings) {
    const std::string where = f.worst + on_ranks(f.ranks);
    if (lead)
      std::printf("%-6s %-28s error %.2e, bound %.1e %s\n", f.ok() ? "equal" : "WRONG",
                  f.check.c_str(), f.error, f.bound, f.ok() && f.error == 0 ? "" : where.c_str());
    if (ok && !f.ok() && lead)
      std::fprintf(stderr, "tfm-verify: %s differs: %s\n", f.check.c_str(), where.c_str());
    ok &= f.ok();
  }
  return ok;
}

std::vector<verify::Finding> verify_as_run(const launch::Launch& launch, config::Config config,
                                           const comm::Mesh& mesh, const std::string& inject) {
  const verify::AsRunSize size =
      verify::as_run_size(config, mesh, launch::available_memory() / launch.ranks_per_node());
  config = size.config;
  if (mesh.rank() == 0) {
    std::printf(
        "as run: %s on %s, %lld of %lld layers (%.2f GB of host memory a rank, %.2f GB are "
        "available), %lld sequences of %lld tokens\n",
        std::string(name_of(plan::make_step_plan(config, mesh).dtype)).c_str(),
        config.device == config::DeviceKind::cuda ? "cuda" : "cpu",
        static_cast<long long>(size.layers), static_cast<long long>(size.configured),
        static_cast<double>(size.bytes) * 1e-9, static_cast<double>(size.available) * 1e-9,
        static_cast<long long>(config.train.global_batch_size),
        static_cast<long long>(config.train.seq_len));
    std::fflush(stdout);
  }
  return verify::verify_as_run(config, mesh, launch.device(config),
                               injection(config, mesh, inject, true));
}

std::vector<verify::Finding> verify_layout(const launch::Launch& launch,
                                           const config::Config& config, const comm::Mesh& mesh,
                                           const std::string& inject) {
  const auto change = injection(config, mesh, inject, false);
  const device::Device device = launch.device(config);
  verify::LayoutTraces traces = verify::trace_layout(config, mesh, device);
  for (verify::Trace* of : {&traces.layout, &traces.no_zero}) change(*of);
  std::vector<verify::Finding> all = verify::compare(config, mesh, traces);
  all.push_back(verify::save_and_load(config, mesh, device));
  return all;
}

// Synthetic batches are of one length: of train.seq_len, as many sequences as the run's batches of
// tokens hold, in whole micro-batches on every rank.
void use_one_length(config::Config& config) {
  config::TrainConfig& t = config.train;
  if (t.global_batch_tokens == 0) return;
  const std::int64_t data = config.parallel.data,
                     shards = config.parallel.sequence ? config.parallel.tensor : 1,
                     whole = shards / std::gcd(shards, t.seq_len),
                     sequences = std::max<std::int64_t>(1, t.global_batch_tokens / t.seq_len),
                     micro =
                         t.counts_tokens() ? t.micro_batch_tokens / t.seq_len : t.micro_batch_size;
  t.micro_batch_size =
      round_up(std::clamp<std::int64_t>(micro, 1, ceil_div(sequences, data)), whole);
  t.global_batch_size = round_up(sequences, data * t.micro_batch_size);
  t.global_batch_tokens = t.micro_batch_tokens = 0;
}

int run(int argc, char** argv) {
  const launch::Arguments args(
      argc, argv, {{"--full", false}, {"--as-run", false}, {"--inject-error"}}, config::meant_key);
  const bool as_run = args.has("--as-run");
  if (as_run && args.has("--full"))
    throw Error(ExitCode::usage, "--as-run keeps the configured sizes; expected it without --full");
  config::Config config = launch::load_config(args.only("configuration file"), args.overrides());
  launch::Launch launch;
  if (as_run) launch::choose_device(launch, config);
  launch.check_same(config);
  launch::choose(launch, config);
  if (as_run && config.precision != config::Precision::fp32 &&
      config.model.layers_with_experts() > 0)
    throw Error(ExitCode::usage,
                "--as-run compares with exact numbers, by which a token may go to other experts "
                "than by those of " +
                    config::word(config.precision) +
                    "; expected precision fp32, or no --as-run, in a model with experts");
  use_one_length(config);
  if (!as_run && !args.has("--full")) config = verify::shrink(config);
  const comm::Mesh mesh = launch.mesh(config::layout_of(config));
  comm::Watchdog watchdog(mesh, config.parallel.longest_wait());
  // Rank 0 then computes alone for as long as the model takes: only ranks that die are noticed.
  if (as_run || args.has("--full")) watchdog.set_timeout(std::numeric_limits<double>::infinity());
  const std::string inject = args.get("--inject-error");
  const bool ok = report(as_run ? verify_as_run(launch, config, mesh, inject)
                                : verify_layout(launch, config, mesh, inject),
                         mesh.rank() == 0);
  if (mesh.rank() == 0)
    std::printf("%s: %d ranks, %s\n",
                ok ? "equal to the single-rank run" : "NOT equal to the single-rank run",
                launch.ranks, mesh.layout.str().c_str());
  return ok ? 0 : 1;
}

}  // namespace

int tfm::launch::verify_main(int argc, char** argv) {
  return tfm::launch::guarded(argc, argv, kHelp, run);
}
