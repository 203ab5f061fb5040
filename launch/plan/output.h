#pragma once
// The output of tfm-plan, as JSON and as text made from it.
#include <nlohmann/json.hpp>
#include <span>

#include "plan/choose.h"
#include "plan/device_model.h"
#include "plan/rank_plans.h"
#include "plan/suggest.h"

namespace tfm::launch {

using Json = nlohmann::ordered_json;

// The plan of a configuration: memory, collectives, prediction, a layout that fits. `read`: the
// configuration as it was read.
Json describe_plan(const plan::RankPlans& plans, const config::Config& read,
                   const plan::Choice& choice, const plan::DeviceModel& device);
void print_plan(const Json& j, const plan::RankPlans& plans);
// Components of the model, those of layers that are configured alike in one row: parameters, FLOPs
// of a step on all ranks, and what a micro-batch's forward pass keeps on a rank of their stage.
Json describe_table(const plan::RankPlans& plans);
void print_table(const Json& rows);
// The values that a micro-batch computes in forward, of one layer of each kind.
Json describe_trace(const plan::RankPlans& plans);
void print_trace(const Json& rows);
// The calls in order, with consecutive equal ones counted.
Json describe_collectives(std::span<const comm::CollectiveCall> calls);

Json describe_suggestions(const plan::Suggestions& s, const config::Config& config, int ranks,
                          const plan::DeviceModel& device);
void print_suggestions(const Json& j);

Json describe_device(const plan::DeviceModel& device, DType dtype);
inline double giga(const Json& bytes) { return bytes.get<double>() * 1e-9; }

}  // namespace tfm::launch
