// Rules between keys of a run: defaults that depend on other keys, and invalid combinations.
#include <cmath>
#include <numeric>

#include "config/fields.h"
#include "config/rules.h"
#include "config/run_name.h"
#include "core/address.h"

namespace tfm::config {
namespace {

// Whether metrics, which are those of the first head, are of numbers.
bool predicts_numbers(const ModelConfig& m) {
  return !m.heads.empty() && m.heads[0].type == "regress";
}

void check_schedule(const Config& c, const Report& report) {
  const ScheduleConfig& s = c.schedule;
  const std::string steps = std::to_string(c.train.steps);
  if (s.min_lr > c.optimizer.lr)
    report({"schedule.min_lr", "optimizer.lr"},
           "min_lr " + number_text(s.min_lr) + " is greater than optimizer.lr " +
               number_text(c.optimizer.lr) + "; expected min_lr <= lr",
           "");
  if (s.type == ScheduleType::noam && s.warmup_steps > 0) {
    const double peak =
        c.optimizer.lr / std::sqrt(static_cast<double>(c.model.d_model * s.warmup_steps));
    if (s.min_lr > peak)
      report(
          {"schedule.min_lr", "schedule.type"},
          "min_lr " + number_text(s.min_lr) +
              " is greater than the peak of schedule noam, lr / sqrt(d_model * warmup_steps) = " +
              number_text(peak) + "; expected min_lr of at most that",
          "");
  }
  if (s.type == ScheduleType::wsd && s.decay_steps == 0)
    report({"schedule.decay_steps", "schedule.type"},
           "decay_steps is missing: schedule wsd needs the length of its final decay; expected " +
               (s.warmup_steps < c.train.steps
                    ? "1 to train.steps - warmup_steps = " +
                          std::to_string(c.train.steps - s.warmup_steps)
                    : "a number from 1, and fewer warmup_steps than train.steps, " + steps),
           "");
  if (s.type == ScheduleType::wsd && s.decay_steps > 0 &&
      s.warmup_steps + s.decay_steps > c.train.steps)
    report({"schedule.decay_steps", "schedule.warmup_steps", "train.steps"},
           "warmup_steps " + std::to_string(s.warmup_steps) + " + decay_steps " +
               std::to_string(s.decay_steps) + " = " +
               std::to_string(s.warmup_steps + s.decay_steps) + " exceeds train.steps " + steps +
               "; expected a sum of at most " + steps,
           "");
  only_with(report)(s.decay_steps > 0,
                    s.type == ScheduleType::wsd || s.type == ScheduleType::cosine ||
                        s.type == ScheduleType::linear,
                    "schedule.decay_steps", "schedule.type wsd, cosine and linear", "");
  const bool decays = s.type == ScheduleType::cosine || s.type == ScheduleType::linear;
  if (decays && s.decay_steps > 0 && s.decay_steps <= s.warmup_steps)
    report({"schedule.decay_steps", "schedule.warmup_steps"},
           "decay_steps " + std::to_string(s.decay_steps) + " is not greater than warmup_steps " +
               std::to_string(s.warmup_steps) + "; expected a larger value, or 0 for train.steps",
           "");
  if ((s.type == ScheduleType::noam || s.type == ScheduleType::inverse_sqrt) && s.warmup_steps == 0)
    report({"schedule.warmup_steps", "schedule.type"},
           "schedule " + word(s.type) +
               " scales with warmup_steps, which is 0; expected warmup_steps >= 1",
           "");
}

void check_layers_per_stage(const Config& c, const Report& report) {
  const ParallelConfig& p = c.parallel;
  const std::vector<std::int64_t>& layers = p.layers_per_stage;
  if (layers.empty()) return;
  const std::int64_t stages = p.pipeline * p.stages_of_rank(),
                     sum = std::accumulate(layers.begin(), layers.end(), std::int64_t{0});
  const auto text = [](std::int64_t n) { return std::to_string(n); };
  if (p.pipeline == 1)
    return report({"parallel.layers_per_stage", "parallel.pipeline"},
                  "layers_per_stage shares out the layers of a pipeline, but parallel.pipeline is "
                  "1; expected parallel.pipeline 2 or more, or layers_per_stage auto",
                  "");
  if (std::ssize(layers) != stages)
    report({"parallel.layers_per_stage", "parallel.pipeline"},
           "layers_per_stage has " + text(std::ssize(layers)) + " numbers, but there are " +
               text(stages) + " stages (parallel.pipeline " + text(p.pipeline) +
               (p.stages_of_rank() > 1 ? " * virtual_stages " + text(p.stages_of_rank()) : "") +
               "); expected " + text(stages) + " numbers, or auto",
           "");
  if (sum != c.model.total_layers())
    report({"parallel.layers_per_stage",
            c.model.translates() ? "model.n_decoder_layers" : "model.n_layers"},
           "layers_per_stage has " + text(sum) + " layers in all, but the model has " +
               text(c.model.total_layers()) + "; expected numbers that add up to them, or auto",
           "");
}

void check_parallel(const Config& c, const Report& report) {
  const ParallelConfig& p = c.parallel;
  const bool interleaved = p.schedule == PipelineSchedule::interleaved;
  if (interleaved && p.virtual_stages == 1)
    report({"parallel.virtual_stages", "parallel.schedule"},
           "schedule interleaved gives each rank several stages, but virtual_stages is 1; expected "
           "2 or more, or schedule 1f1b",
           "");
  if (!interleaved && p.virtual_stages > 1)
    report({"parallel.virtual_stages", "parallel.schedule"},
           "schedule 1f1b gives each rank one stage, but virtual_stages is " +
               std::to_string(p.virtual_stages) +
               "; expected schedule interleaved, or virtual_stages auto",
           "");
  check_layers_per_stage(c, report);
}

void check_listen(const Config& c, const Report& report) {
  const std::string& listen = c.metrics.listen;
  if (!listen.empty() && !address_of(listen))
    report({"metrics.listen"},
           quoted(listen) +
               " is not a valid address; expected host:port, such as \"127.0.0.1:9750\", or none",
           "");
}

void check_device(const Config& c, const Report& report) {
  if (c.tf32 && (c.device != DeviceKind::cuda || c.precision != Precision::fp32))
    report({"tf32", "device", "precision"},
           "tf32 is true, but TF32 exists only for fp32 on GPUs; expected device cuda and "
           "precision fp32, or tf32 false",
           "");
  if (c.cuda_graphs == CudaGraphs::on && c.device != DeviceKind::cuda)
    report({"cuda_graphs", "device"},
           "cuda_graphs is on, but CUDA graphs exist only on GPUs; expected device cuda, or "
           "cuda_graphs auto",
           "");
  if (c.parallel.backend == Backend::nccl && c.device != DeviceKind::cuda)
    report({"parallel.backend", "device"},
           "parallel.backend is nccl, but NCCL works only between GPUs; expected device cuda, or "
           "parallel.backend auto or mpi",
           "");
}

void check_optimizer(const Config& c, const Report& report) {
  const OptimizerConfig& o = c.optimizer;
  only_with(report)(o.momentum > 0, o.type == OptimizerType::sgd, "optimizer.momentum",
                    "optimizer.type sgd",
                    o.type == OptimizerType::muon ? "optimizer.muon.momentum" : "");
  if (o.type == OptimizerType::muon && o.lr == 0)
    report({"optimizer.lr", "optimizer.type"},
           "optimizer.lr is 0, but muon.lr follows its schedule; expected a rate greater than 0",
           "");
}

void check_recompute(const Config& c, const Report& report) {
  if (c.recompute_layers == 0 || c.recompute == Recompute::selective ||
      c.recompute == Recompute::full)
    return;
  report({"recompute_layers", "recompute"},
         "recompute_layers " + std::to_string(c.recompute_layers) + " with recompute " +
             word(c.recompute) +
             (c.recompute == Recompute::none ? " recomputes nothing" : ", which chooses it") +
             "; expected recompute selective or full, or recompute_layers auto",
         "");
}

void check_name(const Config& c, const Report& report) {
  if (const std::string& name = c.run.name; name != as_run_name(name))
    report({"run.name"},
           "run.name " + quoted(name) +
               " is not a valid name; expected at most 128 letters, digits and . _ - + = , "
               "beginning with a letter, a digit or _",
           "write " + as_run_name(name));
}

void check_metrics(const Config& c, const Report& report) {
  const EvalConfig& e = c.eval;
  if (e.translates() && c.data.validation && !c.data.validation->kind().pairs)
    report(
        {"eval.metrics", "eval.stop.metric", "data.validation.type"},
        "bleu and chrf need translations; expected data.validation.type pairs, or another metric",
        "");
  for (const Metric metric : {Metric::accuracy, Metric::perplexity})
    if (e.has(metric) && predicts_numbers(c.model))
      report({"eval.metrics", "eval.stop.metric"},
             word(metric) +
                 " is that of the first head, which predicts numbers; expected another metric, or "
                 "a head with classes before it",
             "");
  if (e.stop && e.every == 0)
    report({"eval.stop", "eval.every"},
           "eval.stop needs evaluations, but eval.every is 0; expected eval.every >= 1", "");
  if ((e.beam != 1 || e.length_penalty != 1) && !e.translates())
    report(
        {e.beam != 1 ? "eval.beam" : "eval.length_penalty", "eval.metrics"},
        "no translations are made; expected bleu or chrf in eval.metrics, or the default value 1",
        "");
}

void check_eval(const Config& c, const Report& report) {
  if (c.eval.every > 0 && !c.data.validation)
    report({"eval.every", "data.validation"},
           "eval.every is " + std::to_string(c.eval.every) +
               ", but data.validation is missing; expected both, or eval.every 0",
           "");
  check_metrics(c, report);
  if (c.checkpoint.every > 0 && c.checkpoint.dir == "none")
    report({"checkpoint.every", "checkpoint.dir"},
           "checkpoint.every is " + std::to_string(c.checkpoint.every) +
               ", but checkpoint.dir is none; expected a directory, or checkpoint.every 0",
           "");
}

}  // namespace

void fill_derived(Config& c) {
  fill_derived(c.model, c.train.seq_len);
  fill_derived(c.data.train, c.model);
  if (c.data.validation) fill_derived(*c.data.validation, c.model);
  if (predicts_numbers(c.model)) std::erase(c.eval.metrics, Metric::perplexity);
  if (c.eval.stop && !c.eval.has(c.eval.stop->metric))
    c.eval.metrics.push_back(c.eval.stop->metric);
}

void check_consistency(const Config& c, const Report& report) {
  check_model(c.model, report);
  check_data(c, report);
  check_eval(c, report);
  check_schedule(c, report);
  check_parallel(c, report);
  check_name(c, report);
  check_listen(c, report);
  check_device(c, report);
  check_recompute(c, report);
  check_optimizer(c, report);
}

bool is_consistent(const Config& config) {
  bool consistent = true;
  check_consistency(config, [&](const auto&...) { consistent = false; });
  return consistent;
}

}  // namespace tfm::config
