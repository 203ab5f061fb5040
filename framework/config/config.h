#pragma once
// The typed configuration of a run. Keys, defaults and meanings: configs/keys.md (generated
// from the same field list).
#include <algorithm>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "comm/mesh.h"
#include "config/data_config.h"
#include "config/model_config.h"
#include "config/problems.h"
#include "config/sections.h"

namespace tfm::config {

struct Config {
  ModelConfig model;
  ParallelConfig parallel;
  Precision precision = Precision::fp32;
  Recompute recompute = Recompute::none;
  std::int64_t recompute_layers = 0;  // 0: auto
  bool tf32 = false;
  CudaGraphs cuda_graphs = CudaGraphs::automatic;
  Numerics numerics = Numerics::normal;
  DeviceKind device = DeviceKind::automatic;
  TrainConfig train;
  OptimizerConfig optimizer;
  ScheduleConfig schedule;
  LossConfig loss;
  DataConfig data;
  EvalConfig eval;
  RunConfig run;
  CheckpointConfig checkpoint;
  MetricsConfig metrics;
  Places places;  // where the values were written, for messages
  // Consecutive sequences of a batch that one micro-batch has, because their texts are compared.
  std::int64_t sequences_together() const {
    const HeadConfig* head = model.head_of_type("embed");
    if (!head || !data.train.kind().labelled) return 1;
    return data.train.texts_of_pair() * std::max<std::int64_t>(head->group, 1);
  }
  bool operator==(const Config&) const = default;
};

// What a directory named by model.init contributes to a configuration.
struct InitialConfig {
  ModelConfig model;                  // the shape of its model
  std::string tokenizer;              // the default of data.tokenizer
  std::string source_tokenizer = {};  // likewise
};
using ReadInitial = std::function<InitialConfig(const std::string& dir)>;

// Reads a file and `section.key=value` overrides, and fills defaults that do not depend on the
// number of ranks. Error(usage) lists every problem of the file and the overrides, each as
// `file:line:col: error: ...`, the line, a caret and help.
Config load_config(const std::string& path, const std::vector<std::string>& overrides,
                   const ReadInitial& read_initial = {});
// The same for a text, which messages call `name`.
Config parse_config(const std::string& text, const std::string& name,
                    const std::vector<std::string>& overrides,
                    const ReadInitial& read_initial = {});

// `config` with `overrides`, checked as a whole. `name` stands for the file of a configuration that
// was not read from a text.
Config with_overrides(const Config& config, const std::vector<std::string>& overrides,
                      const std::string& name);

// Whether it breaks no rule between keys, of those that do not depend on the number of ranks.
bool is_consistent(const Config& config);

// Fills the probability and the length of spans that `source` needs and does not give.
void fill_derived(SourceConfig& source, const ModelConfig& model);
// Resolves what depends on the number of ranks: fills parallel.data and the micro-batch size, and
// checks every divisibility. What depends on a device's memory is resolved as if that were large:
// recompute auto becomes none (plan/choose.h asks a device). Error(usage) lists every problem with
// the legal values at the place of the value.
void resolve_for_ranks(Config& config, int ranks);
// Whether targets of their own length meet dropout, whose masks depend on their padded length.
inline bool drops_targets(const Config& c) {
  return c.data.train.kind().own_lengths && c.model.drops();
}
inline comm::Layout layout_of(const Config& c) {
  const auto& p = c.parallel;
  return comm::Layout({.data = static_cast<int>(p.data),
                       .tensor = static_cast<int>(p.tensor),
                       .replicas = static_cast<int>(p.replicas),
                       .pipeline = static_cast<int>(p.pipeline),
                       .context = static_cast<int>(p.context),
                       .expert = static_cast<int>(p.expert)});
}

// The key that `word` names or probably means, as in "learning_rate" for optimizer.lr; empty: none.
std::string meant_key(const std::string& word);

// The effective configuration as YAML that load_config accepts and reads back to the same value.
std::string dump_config(const Config& config);
std::string config_reference();  // Markdown table of every key: type, default, meaning
std::string config_schema();     // JSON schema
std::vector<std::string> preset_names();

}  // namespace tfm::config
