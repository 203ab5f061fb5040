#include "train/observer.h"

#include <sys/resource.h>

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "telemetry/live_line.h"

namespace tfm::train {

TrainingRun::TrainingRun(const config::Config& config, const comm::Mesh& mesh,
                         const device::Device& device)
    : config(config),
      mesh(mesh),
      data(config),
      engine(plan::make_step_plan(config, mesh), device),
      watchdog(mesh, file_timeout()),
      expert_load(engine),
      time_left(config) {}

bool TrainingRun::needs_engine() const {
  return std::ranges::any_of(observers, [&](const auto& o) { return o->needs_engine(*this); });
}

bool TrainingRun::nonfinite() const {
  const optim::LossScale& scale = engine.loss_scale();
  return !result.applied && !(scale.dynamic && scale.value >= 1 && std::isfinite(result.loss));
}

double TrainingRun::file_timeout() const {
  return config.parallel.longest_wait() +
         checkpoint::longest_transfer(engine.model().parameters().total_elements());
}

std::int64_t peak_memory_bytes(const TrainingRun& run) {
  if (run.config.device == config::DeviceKind::cuda) return run.engine.arena_high_water();
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<std::int64_t>(usage.ru_maxrss) * 1024;
}

void say(const std::string& text) { telemetry::print_line(stdout, text); }

void warn(const std::string& text) { telemetry::print_line(stderr, "warning: " + text); }

std::vector<std::string> TrainingRun::terms() const {
  std::vector<std::string> names;
  const auto& losses = engine.plan().largest().training.losses;
  for (const nn::Recording::Loss& term : losses)
    if (losses.size() > 1) names.push_back(term.name);
  return names;
}

std::vector<std::pair<std::string, double>> TrainingRun::term_losses(
    const inference::Totals& totals) const {
  std::vector<std::pair<std::string, double>> all;
  const std::vector<std::string> names = terms();
  for (std::size_t k = 0; k < names.size(); ++k)
    all.emplace_back("loss_" + names[k], totals.mean(k));
  return all;
}

std::vector<std::pair<std::string, double>> TrainingRun::term_metrics(
    const inference::Totals& totals) const {
  std::vector<std::pair<std::string, double>> all;
  const std::vector<config::HeadConfig>& heads = config.model.heads;  // the first terms
  for (std::size_t k = 0; k < heads.size() && heads.size() > 1; ++k)
    all.emplace_back("loss_" + heads[k].name, totals.mean(k));
  for (std::size_t k = 0; k < heads.size() && heads.size() > 1; ++k)
    if (heads[k].type != "regress")
      all.emplace_back("accuracy_" + heads[k].name, totals.accuracy(k));
  return all;
}

}  // namespace tfm::train
