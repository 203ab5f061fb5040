#include "launch/support/program.h"

#include <omp.h>

#include <algorithm>
#include <cstdio>
#include <fstream>

#include "comm/start_wait.h"
#include "comm/watchdog.h"
#include "inference/initial_weights.h"
#include "inference/loaded_model.h"
#include "inference/text_format.h"
#include "launch/support/device_choice.h"
#include "launch/support/settings.h"
#include "plan/step_plan.h"

namespace tfm::launch {

config::Config load_config(const std::string& path, const std::vector<std::string>& overrides) {
  return config::load_config(path, overrides, inference::config_of_directory);
}

void write_text(const std::string& path, const std::string& text) {
  errno = 0;
  std::ofstream out(path);
  out << text;
  if (!out.flush()) throw Error(ExitCode::retryable, path + ": cannot be written: " + errno_text());
}

Launch::Launch(bool check, double timeout) : cores_at_start_(omp_get_num_procs()) {
  const auto place = launcher_rank(), size = launcher_ranks();
  if (launched_by_mpi()) {
    session.emplace(timeout > 0 ? timeout : comm::kStartTimeout);
    ranks = session->size();
  }
  foreign = foreign_launcher(place, size, rank(), ranks);
  if (check && foreign) throw Error(ExitCode::environment, foreign->found + "; " + foreign->remedy);
  // Before anything else: other programs would take part in other collectives next.
  if (check && session) check_same_settings(*session, {host_name(), build_id(false), "", ""});
  node_ = cpus_of_node();
  take_cores_near("");
  if (check && !cores.warning.empty()) std::fprintf(stderr, "warning: %s\n", cores.warning.c_str());
}

void Launch::take_cores_near(const std::string& gpu) {
  give_way_.reset();
  cores = take_cores(session ? &*session : nullptr, node_, gpu);
  if (cores.threads > 1 && !wait_policy_is_set()) give_way_.emplace(cores.threads, cores_at_start_);
}

void Launch::take_cores_near_gpus() { take_cores_near(device::Device::bus_id(local_rank())); }

std::vector<std::string> Launch::gather(const std::string& text) const {
  if (!session) return {text};
  return session->gather(text, comm::MpiSession::Scope::job);
}

void Launch::check_same(const config::Config& config) const {
  if (session) check_same_settings(*session, settings_of_rank(&config));
}

device::Device Launch::device(const config::Config& config) const {
  return config.device == config::DeviceKind::cuda
             ? device::Device::gpu(
                   local_rank(), threads(),
                   {config.tf32, config.numerics == config::Numerics::deterministic})
             : device::Device::cpu(threads());
}

comm::Mesh Launch::mesh(comm::Layout layout) const {
  if (session) return comm::make_mesh(*session, layout);
  return comm::single_mesh();
}

std::string Launch::verified_path(const std::string& path) const {
  const comm::Mesh all = mesh(ranks);
  const comm::Watchdog watchdog(all, comm::kStartTimeout);
  return inference::verified_path(path, all.world());
}

comm::RankContext Launch::rank_context(const config::Config& config) {
  config::Config chosen = config;
  choose_device(*this, chosen);
  check_same(chosen);
  return comm::rank_context(device(chosen), mesh(config::layout_of(chosen)),
                            plan::mesh_options(chosen));
}

void check_tokenizer(const Arguments& args, const std::string& dir,
                     const tokenizer::Tokenizer& tokenizer, const config::DataConfig& data) {
  const std::string text = inference::other_tokenizer(dir, tokenizer, data);
  if (text.empty()) return;
  const bool named =
      args.has("--tokenizer") || std::ranges::any_of(args.overrides(), [](const std::string& o) {
        return o.starts_with("data.tokenizer=") || o.starts_with("data.source_tokenizer=");
      });
  if (!named)
    throw Error(ExitCode::input,
                text + "; put that file back, or name a tokenizer by data.tokenizer=");
  if (rank_of_launch() == 0) std::fprintf(stderr, "warning: %s\n", text.c_str());
}

}  // namespace tfm::launch
