#pragma once
// Parts of the configuration reader: the field list, the presets and the rules between keys.
#include <string_view>

#include "config/config.h"
#include "config/field_reader.h"

namespace tfm::config {

void describe_config(Config& config, FieldVisitor& visitor);
// Describe one section each.
void describe(ModelConfig& model, FieldVisitor& visitor);
// The keys of the model that concern one layer, and the kinds of layers.
void describe_layers(ModelConfig& model, FieldVisitor& visitor);
// A list of names; empty: auto. `expected`: "a list of names, such as [a, b], or auto".
void describe_names(std::vector<std::string>& names, const Field& field, std::string_view expected,
                    FieldVisitor& visitor);
std::string flow_list(const std::vector<std::string>& names);
void describe(AttentionConfig& attention, FieldVisitor& visitor);
void describe(RopeConfig& rope, FieldVisitor& visitor);
void check_layer_ranges(LayerConfig layer, const RangeReport& report);
void describe(ParallelConfig& parallel, FieldVisitor& visitor);
void describe(TrainConfig& train, FieldVisitor& visitor);
void describe(OptimizerConfig& optimizer, FieldVisitor& visitor);
void describe(ScheduleConfig& schedule, FieldVisitor& visitor);
void describe(LossConfig& loss, FieldVisitor& visitor);
void describe(DataConfig& data, FieldVisitor& visitor);
void describe(EvalConfig& eval, FieldVisitor& visitor);
void describe(RunConfig& run, FieldVisitor& visitor);
void describe(CheckpointConfig& checkpoint, FieldVisitor& visitor);
void describe(MetricsConfig& metrics, FieldVisitor& visitor);

const FieldReader::Hints& hints();

// Sets the model to a preset of preset_names(). Values that are derived from others (d_head, 4
// d_model) stay 0.
void apply_preset(ModelConfig& model, std::string_view name);

// Fills the values that are derived from others.
void fill_derived(Config& config);
// Checks every rule between keys that does not depend on the number of ranks.
void check_consistency(const Config& config, const Report& report);
// Checks those of data sources.
void check_data(const Config& config, const Report& report);

}  // namespace tfm::config
