#pragma once
// The sections of a configuration except those of the model (model_config.h) and of data
// (data_config.h).
#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "config/options.h"

namespace tfm::config {

struct ParallelConfig {
  std::int64_t tensor = 1;
  std::int64_t data = 0;  // 0: auto
  std::int64_t pipeline = 1;
  PipelineSchedule schedule = PipelineSchedule::one_forward_one_backward;
  std::int64_t virtual_stages = 0;             // 0: auto
  std::vector<std::int64_t> layers_per_stage;  // empty: auto
  std::int64_t context = 1;
  ContextExchange context_exchange = ContextExchange::gather;
  bool sequence = true;
  std::int64_t zero = 0;  // 0 to 3
  std::int64_t replicas = 1;
  std::int64_t expert = 1;
  double expert_bound = 2;  // 0: no rank ever needs more
  std::int64_t bucket_bytes = 32 << 20;
  std::int64_t timeout = 0;  // seconds; 0: auto
  Backend backend = Backend::automatic;
  bool operator==(const ParallelConfig&) const = default;
  // Seconds that ranks may wait for each other; with auto, as long as no step was timed.
  double longest_wait() const { return timeout > 0 ? static_cast<double>(timeout) : 300; }
  int stages_of_rank() const {
    if (pipeline == 1 || schedule != PipelineSchedule::interleaved) return 1;
    return virtual_stages > 0 ? static_cast<int>(virtual_stages) : 2;
  }
};
struct TrainConfig {
  std::int64_t steps = 1000;
  std::int64_t global_batch_size = 64;
  std::int64_t global_batch_tokens = 0;  // pairs: batches by length; 0: off
  std::int64_t micro_batch_size = 0;     // 0: auto
  std::int64_t micro_batch_tokens = 0;   // per side, for batches by length; 0: auto
  std::int64_t seq_len = 1024;
  std::uint64_t seed = 1234;
  bool operator==(const TrainConfig&) const = default;
  // Of all ranks, in tokens or sequences.
  std::int64_t batch_size() const {
    return global_batch_tokens > 0 ? global_batch_tokens : global_batch_size;
  }
  // Whether micro_batch() is in tokens of a side, for batches by length; otherwise in sequences.
  // micro_batch() is 0 for auto.
  bool counts_tokens() const { return global_batch_tokens > 0 && micro_batch_size == 0; }
  std::int64_t micro_batch() const {
    return counts_tokens() ? micro_batch_tokens : micro_batch_size;
  }
  void set_micro_batch(std::int64_t n) {
    (counts_tokens() ? micro_batch_tokens : micro_batch_size) = n;
  }
};
// Names and defaults of torch.optim.Adafactor.
struct AdafactorConfig {
  double beta2_decay = -0.8;
  double eps1 = 1.1920928955078125e-7, eps2 = 1e-3;  // eps1: epsilon of fp32
  double clip_threshold = 1.0;                       // torch's d
  bool operator==(const AdafactorConfig&) const = default;
};
// Names and defaults of torch.optim.Muon, except for the learning rate, which is the authors'.
struct MuonConfig {
  double lr = 0.02;  // peak learning rate of the matrices
  double momentum = 0.95;
  bool nesterov = true;
  std::int64_t ns_steps = 5;
  AdjustLr adjust_lr = AdjustLr::original;
  bool operator==(const MuonConfig&) const = default;
};
struct OptimizerConfig {
  OptimizerType type = OptimizerType::adamw;
  double lr = 6e-4;
  double beta1 = 0.9, beta2 = 0.95;                        // key: betas
  double eps = 1e-8, weight_decay = 0.1, grad_clip = 1.0;  // grad_clip 0: off
  double momentum = 0;                                     // sgd
  AdafactorConfig adafactor;
  MuonConfig muon;
  double ema = 0;  // decay of the weights' moving average; 0: none
  bool operator==(const OptimizerConfig&) const = default;
};
struct ScheduleConfig {
  ScheduleType type = ScheduleType::cosine;
  std::int64_t warmup_steps = 0;
  double min_lr = 0;
  // wsd: length of the final decay. cosine, linear: 0 means train.steps.
  std::int64_t decay_steps = 0;
  bool operator==(const ScheduleConfig&) const = default;
};
struct LossConfig {
  double label_smoothing = 0;
  SmoothingDenominator smoothing_denominator = SmoothingDenominator::vocabulary;
  bool operator==(const LossConfig&) const = default;
};
struct StopConfig {
  Metric metric = Metric::loss;
  std::int64_t patience = 0;  // required
  bool operator==(const StopConfig&) const = default;
};
struct EvalConfig {
  std::int64_t every = 0;    // 0: never
  std::int64_t batches = 0;  // 0: the whole validation source
  // These two, of numbers `loss` alone; also accuracy | bleu | chrf. stop->metric is filled in.
  std::vector<Metric> metrics{Metric::loss, Metric::perplexity};
  std::int64_t beam = 1;  // for translations
  double length_penalty = 1;
  std::optional<StopConfig> stop;
  bool has(Metric metric) const { return std::ranges::find(metrics, metric) != metrics.end(); }
  bool translates() const { return has(Metric::bleu) || has(Metric::chrf); }
  bool operator==(const EvalConfig&) const = default;
};
struct RunConfig {
  std::string name;  // empty: until the configuration is read, which derives it (run_name.h)
  bool operator==(const RunConfig&) const = default;
};
struct CheckpointConfig {
  // A path, or `none`. Empty: auto, for which tfm-train takes a directory by the run's name
  // (train/start.h); elsewhere as `none`.
  std::string dir;
  std::int64_t every = 0;
  std::int64_t every_minutes = 15;  // where `every` is 0
  std::int64_t keep = 3;
  std::string resume = "auto";                                        // auto | never | a path
  std::string directory() const { return dir == "none" ? "" : dir; }  // empty: no checkpoints
  bool looks_for_latest() const { return resume == "auto"; }
  // From the latest of `dir`, if any.
  bool resumes_latest() const { return looks_for_latest() && !directory().empty(); }
  bool resumes_path() const { return resume != "auto" && resume != "never"; }
  bool operator==(const CheckpointConfig&) const = default;
};
struct MetricsConfig {
  std::string jsonl;        // empty: no file
  std::string tensorboard;  // directory of event files; empty: none
  std::string listen;       // host:port; empty: off
  std::int64_t log_every = 1;
  bool operator==(const MetricsConfig&) const = default;
};

}  // namespace tfm::config
