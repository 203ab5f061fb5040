#include "nn/experts.h"

#include <algorithm>
#include <cmath>

namespace tfm::nn {
namespace {

// Parts of all experts in turn: rows of each name for each.
std::vector<PartSpec> parts(const std::string& name, std::int64_t experts,
                            const std::vector<std::string>& of, std::int64_t rows,
                            const char* suffix) {
  std::vector<PartSpec> all;
  for (std::int64_t e = 0; e < experts; ++e)
    for (const std::string& part : of)
      all.push_back({.name = name + ".experts." + std::to_string(e) + "." + part + suffix,
                     .rows = rows,
                     .initial = name + ".experts." + part + suffix,
                     .first_row = e * rows});
  return all;
}

}  // namespace

Experts::Experts(Context& c, const std::string& name, Options options)
    : context_(c), name_(last_component(name)), options_(options) {
  const FeedForward::Options& e = options.expert;
  const std::int64_t count = options.router.experts;
  const auto shared_out = [](Placements p) {
    for (const comm::Axis a : comm::kAxes)
      if (kExpertAxes.contains(a)) p[a] = Placement::shard_parts;
    return p;
  };
  const Placements rows = shared_out(placed(Placement::shard_rows, kModelAxes)),
                   columns = shared_out(placed(Placement::shard_columns, kModelAxes));
  // Each tensor rank has a term of what experts return, hence of the gradients of their weights.
  const comm::AxisSet terms = c.partial_where(c.split());
  router_ = c.parameters.add({.parts = {{name + ".router.weight", count}},
                              .cols = e.width,
                              .init = {Init::Kind::normal, c.init_std},
                              .decay = true,
                              .partial = terms});
  if (options.router_bias)
    router_bias_ = c.parameters.add({.parts = {{name + ".router.bias", count}}, .partial = terms});
  if (options.load_bias)
    load_bias_ =
        c.parameters.add({.parts = {{name + ".router.load_bias", count}}, .evens_load = true});
  const std::vector<std::string> up =
      e.gated ? std::vector<std::string>{"gate", "up"} : std::vector<std::string>{"up"};
  up_ = c.parameters.add({.parts = parts(name, count, up, e.hidden, ".weight"),
                          .cols = e.width,
                          .placement = rows,
                          .init = {Init::Kind::normal, c.init_std},
                          .decay = true,
                          .hidden = true});
  down_ = c.parameters.add({.parts = parts(name, count, {"down"}, e.width, ".weight"),
                            .cols = e.hidden,
                            .placement = columns,
                            .init = {Init::Kind::normal, e.output_std},
                            .decay = true,
                            .hidden = true});
  if (e.bias) {
    up_bias_ =
        c.parameters.add({.parts = parts(name, count, up, e.hidden, ".bias"), .placement = rows});
    down_bias_ = c.parameters.add({.parts = parts(name, count, {"down"}, e.width, ".bias"),
                                   .placement = shared_out({}),
                                   .partial = terms});
  }
  if (options.shared_hidden > 0) {
    FeedForward::Options shared = e;
    shared.hidden = options.shared_hidden;
    shared_.emplace(c, name + ".shared", shared);
    if (options.shared_gate)
      shared_gate_ = c.parameters.add({.parts = {{name + ".shared_gate.weight", 1}},
                                       .cols = e.width,
                                       .init = {Init::Kind::normal, c.init_std},
                                       .decay = true,
                                       .partial = terms});
  }
}

graph::Value Experts::record(graph::Recorder& r, graph::Value x, const LayerContext& c) const {
  const graph::Recorder::Named scope(r, name_);
  x = enter_tp_region(r, context_, x);
  kernels::RouterOptions router = options_.router;
  router.rows = c.rows;
  if (c.training && options_.capacity_factor > 0)
    router.capacity = static_cast<std::int64_t>(std::ceil(
        options_.capacity_factor * static_cast<double>(c.rows.sequence_length * router.top_k) /
        static_cast<double>(router.experts)));
  const graph::Value seen = c.training && options_.jitter > 0
                                ? ops::jitter(r, x, options_.jitter,
                                              {.rows = c.rows, .cols_total = options_.expert.width})
                                : x;
  const ops::Routing routing =
      ops::route(r, ops::router_logits(r, seen, parameter(r, router_), parameter(r, router_bias_)),
                 c.k_segments, parameter(r, load_bias_), router);
  if (c.router_terms) add_terms(r, routing, router, *c.router_terms);
  ops::Routing here = routing;
  const graph::Value y = record_routed(r, x, routing, here, router, c);
  if (c.router_terms) c.router_terms->loads.push_back(ops::router_load(r, routing, here, router));
  if (!shared_) return leave_tp_region(r, context_, y);
  const graph::Recorder::Named shared_scope(r, "shared");
  const graph::Value shared = shared_->record_inside(r, x, c);
  const graph::Value sum =
      shared_gate_ < 0
          ? ops::dropout_add(r, shared, y, 0, {})
          : ops::gated_add(r, shared, ops::router_logits(r, x, parameter(r, shared_gate_)), y);
  return leave_tp_region(r, context_, sum, shared_->bias(r));
}

graph::Value Experts::record_routed(graph::Recorder& r, graph::Value x, const ops::Routing& routing,
                                    ops::Routing& here, const kernels::RouterOptions& router,
                                    const LayerContext& c) const {
  const bool travels = context_.expert_ranks > 1, drops = c.training && options_.expert.dropout > 0;
  ops::ActivationRegion place = inside_tp_region(context_, c.rows, options_.expert.hidden);
  place.slot = routing.slot, place.top_k = router.top_k;
  ops::Sent sent;
  if (travels) {
    const std::int64_t ranks = context_.expert_ranks, tokens = c.rows.tokens();
    // A token takes an expert once.
    std::int64_t room = tokens * std::min(router.top_k, router.experts / ranks);
    const double bound = c.router_terms ? c.router_terms->bound : 0,
                 even = static_cast<double>(tokens * router.top_k) / static_cast<double>(ranks);
    const bool bounded = bound > 0 && bound * even < static_cast<double>(room);
    if (bounded) room = static_cast<std::int64_t>(std::ceil(bound * even));
    sent = ops::dispatch(r, routing,
                         {context_.expert_ranks, room, drops, c.rows,
                          bounded ? c.router_terms->excess : graph::Value{}});
    if (bounded) c.router_terms->excess = sent.excess;
    here = sent.here;
    place.slot = here.slot, place.global = sent.rows_here;
    x = ops::send_slots(r, x, sent);
  }
  graph::Value h =
      ops::activation(r, ops::experts_up(r, x, here, parameter(r, up_), parameter(r, up_bias_)),
                      options_.expert.activation, options_.expert.gated);
  if (drops) h = ops::dropout_add(r, h, {}, options_.expert.dropout, place);
  const graph::Value y = ops::experts_down(r, h, here, parameter(r, down_),
                                           parameter(r, down_bias_), context_.shard == 0);
  return travels ? ops::return_slots(r, y, sent, c.rows.tokens()) : y;
}

void Experts::add_terms(graph::Recorder& r, const ops::Routing& routing,
                        const kernels::RouterOptions& router, RouterTerms& terms) const {
  ++terms.layers;
  if (terms.over_batch) terms.balance.sum = ops::sum_routing(r, routing, router, terms.balance.sum);
  for (const auto& [term, kind] : {std::pair{&terms.balance, kernels::RouterTerm::balance},
                                   {&terms.z, kernels::RouterTerm::z}})
    if (term->objective >= 0 && !(terms.over_batch && term == &terms.balance))
      term->sum = ops::router_term(r, kind, routing, router, term->sum, term->objective,
                                   context_.shard == 0);
}

}  // namespace tfm::nn
