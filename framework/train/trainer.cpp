#include "train/trainer.h"

#include <algorithm>
#include <chrono>

#include "comm/consensus.h"
#include "train/observers.h"
#include "train/start.h"

namespace tfm::train {
namespace {

using Clock = std::chrono::steady_clock;

// Observers in the order of notification: a step is checked, then reported; evaluations and
// requests come before the checkpoints they ask for.
void add_observers(TrainingRun& run, StopRequests& requests) {
  const auto add = [&](std::unique_ptr<Observer> o) { run.observers.push_back(std::move(o)); };
  add(watch_nonfinite_steps());
  if (run.lead()) {
    add(serve_metrics());
    add(print_log());
    add(write_metrics());
    add(write_tensorboard());
  }
  add(stop_early(run));
  add(evaluate_regularly(run));
  add(obey_requests(requests));
  add(write_checkpoints(run));
}

std::int64_t most_of_all_ranks(const TrainingRun& run, std::int64_t value) {
  run.mesh.world().all_reduce({&value, DType::i64, {1}}, comm::Collective::all_reduce_max);
  return value;
}

// A step's products on all ranks, by shape of the batch.
std::vector<double> flops_of_all_ranks(const TrainingRun& run) {
  const plan::StepPlan& plan = run.engine.plan();
  std::vector<double> flops;
  for (const plan::ShapePlan& s : plan.shapes) flops.push_back(plan.matmul_flops(s));
  run.mesh.world().all_reduce({flops.data(), DType::f64, {std::ssize(flops)}});
  return flops;
}

// Ranks that read other files, or parts of one pipe, would compute with other batches.
void check_data_of_ranks(const TrainingRun& run) {
  const auto check = [&](const char* what, const data::Dataset& data, std::int64_t index) {
    comm::check_same_on_all_ranks(run.mesh.world(), data::fingerprint(run.config, data, index),
                                  what, data::kSameDataRemedy);
  };
  check("training data", *run.data.train, run.step);
  if (run.data.validation) check("validation data", *run.data.validation, 0);
}

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

}  // namespace

double step_timeout(const config::ParallelConfig& parallel, double longest_step) {
  if (parallel.timeout > 0 || longest_step == 0) return parallel.longest_wait();
  return std::clamp(10 * longest_step, 30.0, 300.0);
}

void check_inputs(const config::Config& config) {
  config::Problems problems(config.places);
  check_start(config, problems);
  check_checkpoints(config, problems);
  check_latest(config, problems);
  data::check_data(config, problems);
  problems.throw_if_any();
}

TrainOutcome train(const config::Config& config, const comm::Mesh& mesh,
                   const device::Device& device, StopRequests& requests, const Machine& machine) {
  config::Problems problems(config.places);
  check_start(config, problems);
  check_checkpoints(config, problems);
  problems.throw_if_any();

  TrainingRun run(config, mesh, device);
  run.machine = machine;
  comm::check_same_on_all_ranks(mesh.stage(), run.engine.plan().collective_hash(),
                                "the order of collectives");
  add_observers(run, requests);
  start_from(run);
  check_data_of_ranks(run);
  run.planned_bytes = most_of_all_ranks(run, run.engine.plan().memory.total());
  const std::vector<double> flops = flops_of_all_ranks(run);
  run.flops = flops.back();
  run.tell(&Observer::on_start);

  const optim::Schedule schedule = plan::schedule_of(config);
  data::DataLoader loader = run.engine.training_loader(*run.data.train);
  double longest_step = 0;
  // For those who write them; on a GPU, measuring each part would make the host wait for it.
  const config::MetricsConfig& metrics = config.metrics;
  const bool timed =
      run.engine.plan().on_host() &&
      (!metrics.jsonl.empty() || !metrics.tensorboard.empty() || !metrics.listen.empty());
  StepTimes times;
  double data = 0;  // seconds for which batches were waited since the last step was done
  const auto launch = [&](std::int64_t step) {
    const auto start = Clock::now();
    const Batch& batch = loader.load(step - 1);
    data += seconds_since(start);
    run.engine.launch(step, schedule.at(step), batch);
  };
  const bool runs_ahead = run.engine.runs_ahead();
  auto start = Clock::now();
  if (!metrics.listen.empty()) run.rank_times.emplace(mesh, run.engine.rank_context().tensors);
  if (timed) run.engine.time_steps(&times);
  while (!run.over()) {
    if (!run.ahead) start = Clock::now();
    ++run.step;
    run.save = false;
    run.watchdog.heartbeat(run.step);
    run.watchdog.set_timeout(step_timeout(run.config.parallel, longest_step));
    run.lr = schedule.at(run.step);
    times.clear();
    if (!run.ahead) launch(run.step);
    // The device has the next step before the host reads the result of this one.
    run.ahead = runs_ahead && !run.last() && !run.needs_engine();
    if (run.ahead) launch(run.step + 1);
    const std::int64_t replans = run.engine.replans();
    run.result = run.engine.finish();
    if (run.engine.replans() > replans) {
      run.planned_bytes = most_of_all_ranks(run, run.engine.plan().memory.total());
      run.tell(&Observer::after_replan);
    }
    run.seconds = seconds_since(start);
    start = Clock::now();
    run.flops = flops[run.result.shape];
    const graph::Program& program = run.engine.plan().shapes[run.result.shape].train_program;
    run.phases = timed ? phases_of_step(program, times, data, run.seconds)
                       : StepPhases{{"data", data}, {"step", run.seconds - data}};
    data = 0;
    longest_step = std::max(longest_step, run.seconds);
    run.time_left.add_step(run.seconds);
    if (run.rank_times) run.rank_times->add(run.phases);
    if (run.rank_times && run.logged()) run.rank_times->gather();
    if (run.logged() && !run.expert_load.layers().empty())
      run.expert_load.gather(run.engine, run.result.shape);
    run.tell(&Observer::after_step);
  }

  run.arena_bytes = most_of_all_ranks(run, run.engine.arena_high_water());
  run.tell(&Observer::at_end);
  return {.step = run.step, .stopped = run.stop_requested, .loss = run.result.loss};
}

}  // namespace tfm::train
