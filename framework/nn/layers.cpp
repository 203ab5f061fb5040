#include "nn/layers.h"

namespace tfm::nn {
namespace {

std::string suffixed(const std::string& name, const char* suffix) { return name + suffix; }

std::vector<PartSpec> renamed(const std::vector<PartSpec>& parts, const char* suffix) {
  std::vector<PartSpec> out;
  for (const PartSpec& p : parts) out.push_back({suffixed(p.name, suffix), p.rows});
  return out;
}

}  // namespace

Linear::Linear(Context& c, const std::vector<PartSpec>& outputs, std::int64_t inputs,
               Options options)
    : parameters_(&c.parameters),
      reduced_(options.placement == Placement::shard_columns && c.split()) {
  const bool rows = options.placement == Placement::shard_rows,
             terms = options.partial ? c.split() : c.split_rows();
  weight_ = c.parameters.add(
      {.parts = renamed(outputs, ".weight"),
       .cols = inputs,
       .placement = placed(options.placement, kModelAxes),
       .init = {Init::Kind::normal, options.std},
       .decay = true,
       .hidden = options.hidden,
       .partial = c.partial_where(options.placement == Placement::replicate && terms)});
  if (options.bias)
    bias_ = c.parameters.add(
        {.parts = renamed(outputs, ".bias"),
         .placement = rows ? placed(Placement::shard_rows, kModelAxes) : Placements{},
         .partial = c.partial_where(!rows && terms)});
}

graph::Value Linear::operator()(graph::Recorder& r, graph::Value x) const {
  return ops::linear(r, x, parameters_->record(r, weight_), reduced_ ? graph::Value{} : bias(r));
}

Norm::Norm(Context& c, const std::string& name, std::int64_t width, Options options)
    : parameters_(&c.parameters), name_(name), options_(options) {
  const comm::AxisSet partial = c.partial_where(options.partial || c.split_rows());
  gain_ = c.parameters.add({.parts = {{name + ".weight", width}},
                            .init = {Init::Kind::constant, options.plus_one ? 0.0 : 1.0},
                            .partial = partial});
  if (options.bias && !options.rms)
    shift_ = c.parameters.add({.parts = {{name + ".bias", width}}, .partial = partial});
}

graph::Value Norm::operator()(graph::Recorder& r, graph::Value x) const {
  const graph::Recorder::Named scope(r, last_component(name_));
  return ops::norm(r, x, {options_.eps, options_.rms, options_.plus_one, options_.eps_outside},
                   parameters_->record(r, gain_),
                   shift_ < 0 ? graph::Value{} : parameters_->record(r, shift_));
}

HeadNorm::HeadNorm(Context& c, const std::vector<Group>& groups, std::int64_t head_size,
                   Options options)
    : parameters_(&c.parameters), head_size_(head_size), shards_(c.shards), options_(options) {
  std::vector<PartSpec> parts;
  for (const Group& g : groups) {
    parts.push_back({g.name, options.whole ? g.heads * head_size : head_size});
    heads_.push_back(div_exact(g.heads, c.shards));
  }
  const comm::AxisSet terms = c.partial_where(c.split() && !options.whole);
  gain_ = c.parameters.add(
      {.parts = renamed(parts, ".weight"),
       .placement = options.whole ? placed(Placement::shard_rows, kModelAxes) : Placements{},
       .init = {Init::Kind::constant, options.plus_one ? 0.0 : 1.0},
       .partial = terms});
  if (options.bias && !options.rms)
    shift_ = c.parameters.add({.parts = renamed(parts, ".bias"), .partial = terms});
}

graph::Value HeadNorm::operator()(graph::Recorder& r, graph::Value x) const {
  const graph::Recorder::Named scope(r, "qk_norm");
  const graph::Value gain = parameters_->record(r, gain_);
  if (!options_.whole)
    return ops::head_norm(
        r, x,
        {{options_.eps, options_.rms, options_.plus_one, options_.eps_outside}, head_size_, heads_},
        gain, shift_ < 0 ? graph::Value{} : parameters_->record(r, shift_));
  std::vector<std::int64_t> widths;
  for (const std::int64_t heads : heads_) widths.push_back(heads * head_size_);
  return ops::width_norm(r, x, {options_.eps, widths, shards_, kModelAxes}, gain);
}

graph::Value enter_tp_region(graph::Recorder& r, const Context& c, graph::Value x) {
  if (!c.split()) return x;
  return c.sequence ? ops::gather_sequence(r, x, c.shards) : ops::copy_to_tp_region(r, x);
}

graph::Value leave_tp_region(graph::Recorder& r, const Context& c, graph::Value partial,
                             graph::Value bias) {
  if (!c.split()) return partial;
  return c.sequence ? ops::scatter_sequence(r, partial, c.shards, bias)
                    : ops::reduce_from_tp_region(r, partial, bias);
}

ops::ActivationRegion outside_tp_region(const Context& c, const Rows& rows, std::int64_t width) {
  const std::int64_t offset = c.split_rows() ? c.rows_outside(rows) * c.shard : 0;
  return {rows, offset, 0, width};
}

ops::ActivationRegion inside_tp_region(const Context& c, const Rows& rows,
                                       std::int64_t full_width) {
  return {rows, 0, full_width / c.shards * c.shard, full_width};
}

void name_outside(graph::Recorder& r, const Context& c, const std::string& name, graph::Value v,
                  const Rows& rows) {
  const std::int64_t width = r.info(v).shape[1];
  r.name(name, v,
         {.rows = rows,
          .first_row = c.split_rows() ? c.rows_outside(rows) * c.shard : 0,
          .columns = width,
          .all_columns = width});
}

void name_inside(graph::Recorder& r, const Context& c, const std::string& name, graph::Value v,
                 const Rows& rows, std::int64_t full_width, std::int64_t within) {
  const std::int64_t share = div_exact(full_width, c.shards);
  r.name(name, v,
         {.rows = rows,
          .columns = share,
          .first_column = share * c.shard,
          .all_columns = full_width,
          .within = within});
}

}  // namespace tfm::nn
