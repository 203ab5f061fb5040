#include "inference/forward.h"

#include <algorithm>

#include "comm/calls.h"
#include "device/memory.h"
#include "ops/fusion.h"

namespace tfm::inference {
namespace {

graph::PlanOptions plan_options(const std::vector<graph::Value>& outputs,
                                const ForwardPass::Options& o) {
  graph::PlanOptions options{.training = false,
                             .outputs = outputs,
                             .buckets = o.buckets,
                             .sharded = {.parameters = !o.buckets.empty()},
                             .device = o.device,
                             .overlap = o.device};
  if (o.device) options.fusions = ops::fusions();
  return options;
}

}  // namespace

void fill_constants(device::AnyStream stream, const nn::Recording& recording,
                    const std::vector<Tensor>& leaves) {
  const auto& values = recording.tape->values();
  for (std::size_t v = 0; v < values.size(); ++v) {
    if (!values[v].fill) continue;
    std::vector<std::byte> host(static_cast<std::size_t>(values[v].bytes()));
    values[v].fill({host.data(), values[v].dtype, values[v].shape});
    device::upload(stream, leaves[v].data, host.data(), values[v].bytes());
  }
}

ForwardPass::ForwardPass(nn::Recording recording, const std::vector<graph::Value>& outputs,
                         const Options& options)
    : recording_(std::move(recording)),
      program_(graph::plan(recording_.tape, plan_options(outputs, options))),
      given_(options.given) {}

ForwardPass ForwardPass::loss(const nn::Model& model, const nn::BatchShape& shape, DType dtype,
                              const Options& options) {
  nn::Recording r = model.record_loss(shape, dtype, false);
  const std::vector<graph::Value> outputs = r.outputs();
  return {std::move(r), outputs, options};
}

ForwardPass ForwardPass::logits(const nn::Model& model, const nn::BatchShape& shape, DType dtype,
                                std::string_view head) {
  nn::Recording r = model.record_logits(shape, dtype, head);
  const graph::Value logits = r.logits;
  return {std::move(r), {logits}};
}

bool ForwardPass::own(std::size_t value) const {
  const graph::Role role = recording_.tape->values()[value].role;
  return (role == graph::Role::input || role == graph::Role::constant) &&
         std::ranges::none_of(given_,
                              [&](graph::Value g) { return g.id == static_cast<int>(value); });
}

std::int64_t ForwardPass::bytes() const {
  device::Arena counting;
  std::vector<Tensor> leaves(recording_.tape->values().size());
  lay_out(counting, leaves);
  return counting.high_water();
}

std::byte* ForwardPass::lay_out(device::Arena& arena, std::vector<Tensor>& leaves) const {
  const auto& values = recording_.tape->values();
  for (std::size_t v = 0; v < values.size(); ++v)
    if (own(v))
      leaves[v] = {arena.take("leaves", values[v].bytes()), values[v].dtype, values[v].shape};
  return arena.take("activations", program_.arena_bytes());
}

void ForwardPass::bind(device::AnyStream stream, const Weights& weights, device::Arena& arena,
                       const std::vector<Tensor>& given) {
  const auto& values = recording_.tape->values();
  TFM_CHECK(weights.dtype == recording_.tape->dtype(), "weights of another type than was recorded");
  std::vector<Tensor> leaves(values.size());
  for (std::size_t g = 0; g < given_.size(); ++g)
    leaves[static_cast<std::size_t>(given_[g].id)] = given[g];
  for (std::size_t v = 0; v < values.size(); ++v) {
    const graph::ValueInfo& info = values[v];
    if (info.role == graph::Role::parameter)
      leaves[v] = weights.places.view(info.parameter, weights.flat, recording_.tape->dtype());
  }
  std::byte* const activations = lay_out(arena, leaves);
  bind(stream, std::move(leaves), activations);
}

void ForwardPass::bind(device::AnyStream stream, std::vector<Tensor> leaves, std::byte* activations,
                       std::vector<Tensor> bucket_parameters) {
  leaves_ = std::move(leaves);
  program_.bind(activations, {.data = leaves_,
                              .gradients = std::vector<Tensor>(leaves_.size()),
                              .bucket_parameters = std::move(bucket_parameters)});
  fill_constants(stream, recording_, leaves_);
}

void ForwardPass::run(const graph::ExecContext& context, const BatchFields& fields) const {
  for (const auto& [field, value] : recording_.inputs) {
    const Tensor in = leaf(value);
    const auto found = fields.find(field);
    std::vector<std::int32_t> zeros;
    std::span<const std::int32_t> from;
    if (found != fields.end()) {
      from = found->second;
    } else {
      zeros.resize(static_cast<std::size_t>(in.elements()));
      from = zeros;
    }
    TFM_CHECK(std::ssize(from) == in.elements(),
              std::string(info_of(field).name) + " does not fill the recorded shape");
    device::upload(context.stream, in.data, from.data(), in.bytes());
  }
  program_.run(context);
  if (context.mesh) comm::complete_sends(*context.mesh);
}

Totals ForwardPass::totals(const graph::ExecContext& context, const BatchFields& fields) const {
  Totals totals = count_labels(recording_, fields, recording_.shape.sequences);
  graph::ExecContext packed = context;
  packed.state.packed_rows = packed_rows(recording_, totals.labels);
  run(packed, fields);
  const auto value = [&](graph::Value v) {
    return device::download_value(context.stream, output(v).ptr<double>());
  };
  for (std::size_t k = 0; k < recording_.losses.size(); ++k) {
    if (!recording_.losses[k].value) continue;
    totals.loss[k] = value(recording_.losses[k].value);
    if (recording_.losses[k].correct)
      totals.correct[k] = static_cast<std::int64_t>(value(recording_.losses[k].correct));
  }
  return totals;
}

}  // namespace tfm::inference
