// tfm-verify: checks that a configuration's sharded run equals the single-rank one.
#include <algorithm>
#include <cstdio>

#include "launch/support/program.h"
#include "models/registry.h"
#include "train/verify.h"

namespace {

constexpr const char* kHelp =
    R"(usage: mpirun -np N tfm-verify CONFIG.yaml [section.key=value ...] [options]
  --full             keep the configured sizes (default: shrink to 2 layers, heads of 8, 16 tokens)
  --inject-error P   change one gradient of parameter P in the sharded run, to see it reported
  --help, --version
Compares the layout of this launch with a single rank: loss, every gradient, and the parameters
after 5 steps, in float64 on synthetic tokens, with dropout and device as configured; saves and
loads a checkpoint in the configured precision. Exits with 0 if all are equal, otherwise with 1
after naming the first tensor that differs.
)";

using namespace tfm;

// Corrupts the first gradient of `parameter` on the last rank of the sharded run; empty: none.
train::Interference interference(const config::Config& config, const comm::Mesh& mesh,
                                 const std::string& parameter) {
  if (parameter.empty()) return {};
  const auto model = models::make_model(config, mesh);
  const auto& slices = model->parameters().slices();
  const auto found = std::ranges::find(slices, parameter, &nn::PartSlice::name);
  if (found == slices.end())
    throw Error(ExitCode::usage, "--inject-error: the model has no parameter " + parameter +
                                     "; expected one such as " + slices.front().name);
  const auto part = static_cast<std::size_t>(found - slices.begin());
  return {.traced = [part, last = mesh.rank() + 1 == mesh.layout.world()](train::Experiment which,
                                                                          train::Trace& trace) {
    if (which == train::Experiment::layout && last) trace.gradients[part].front() += 1;
  }};
}

int run(int argc, char** argv) {
  const launch::Arguments args(argc, argv, {{"--full", false}, {"--inject-error"}});
  config::Config config = launch::load_config(args.only("configuration file"), args.overrides());
  config.train.global_batch_tokens = 0;  // synthetic batches are of one length
  const launch::Launch launch;
  launch.check_same(config);
  config::resolve_for_ranks(config, launch.ranks);
  if (!args.has("--full")) config = train::shrink(config);
  const comm::Mesh mesh = launch.mesh(config::layout_of(config));
  const auto findings = train::verify_layout(
      config, mesh, launch.device(config), interference(config, mesh, args.get("--inject-error")));
  bool ok = true;
  for (const train::Finding& f : findings) {
    if (mesh.rank() == 0)
      std::printf("%-6s %-28s error %.2e, bound %.0e %s\n", f.ok() ? "equal" : "WRONG",
                  f.check.c_str(), f.error, f.bound, f.ok() && f.error == 0 ? "" : f.worst.c_str());
    if (ok && !f.ok() && mesh.rank() == 0)
      std::fprintf(stderr, "tfm-verify: %s differs: %s\n", f.check.c_str(), f.worst.c_str());
    ok &= f.ok();
  }
  if (mesh.rank() == 0)
    std::printf("%s: %d ranks, %s\n",
                ok ? "equal to the single-rank run" : "NOT equal to the single-rank run",
                launch.ranks, mesh.layout.str().c_str());
  return ok ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) { return tfm::launch::guarded(argc, argv, kHelp, run); }
