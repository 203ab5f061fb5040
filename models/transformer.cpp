#include "models/transformer.h"

#include <algorithm>

#include "ops/experts.h"

namespace tfm::models {

Transformer::Transformer(const config::Config& config, const comm::Mesh& mesh)
    : config_(config),
      parameters_(parameter_set(config, mesh)),
      context_{parameters_,
               mesh.layout.size(nn::kModelAxes),
               mesh.place(nn::kModelAxes),
               config.parallel.sequence,
               config.model.init_std,
               config.parallel.context_exchange == config::ContextExchange::ring,
               mesh.layout.size(nn::kExpertAxes)},
      stages_(config, mesh),
      token_axes_(mesh.layout.size(nn::kTokenAxes) > 1 ? mesh.layout.group_of(nn::kTokenAxes)
                                                       : comm::AxisSet{}),
      first_of_tokens_(mesh.place(nn::kTokenAxes) == 0),
      batch_axes_(mesh.layout.group_of(nn::kBatchAxes)),
      batch_ranks_(mesh.layout.size(nn::kBatchAxes)) {}

nn::Recording Transformer::record_loss(const nn::BatchShape& shape, DType dtype,
                                       bool training) const {
  nn::Recording rec(shape, dtype);
  Relay relay(rec, stages_, context_, config_.model.d_model);
  if (training) begin_router_terms(rec);
  const graph::Value x = hidden(rec, relay, training);
  for (const auto& head : heads_) head->record_loss(rec, x, training);
  add_router_terms(rec);
  return rec;
}

// Their indices follow those of the heads.
void Transformer::begin_router_terms(nn::Recording& rec) const {
  const config::RouterLossConfig& loss = config_.model.router_loss;
  if (config_.model.layers_with_experts() == 0) return;
  rec.router_terms.bound = rec.shape.expert_bound;
  int next = static_cast<int>(heads_.size());
  const auto begin = [&](nn::RouterTerms::Term& term) {
    term = {next++,
            rec.tape->constant("zero", {1}, DType::f64, [](Tensor t) { *t.ptr<double>() = 0; })};
  };
  rec.router_terms.over_batch = loss.balances_batch();
  if (loss.has_term()) begin(rec.router_terms.balance);
  if (loss.balances_batch()) rec.router_terms.balance.sum = {};
  if (loss.z > 0) begin(rec.router_terms.z);
}

// Each is a mean over sequences and layers. Ranks that share sequences have terms of its sum, of
// which one counts the sequences.
void Transformer::add_router_terms(nn::Recording& rec) const {
  const config::RouterLossConfig& loss = config_.model.router_loss;
  const auto layers = static_cast<double>(config_.model.layers_with_experts());
  nn::RouterTerms& terms = rec.router_terms;
  if (terms.over_batch && terms.layers > 0)
    terms.balance.sum = ops::batch_balance(*rec.tape, terms.balance.sum, token_axes_,
                                           terms.balance.objective, context_.shard == 0);
  const auto add = [&](const char* name, const nn::RouterTerms::Term& term, double coefficient) {
    if (term.objective < 0) return;
    TFM_CHECK(rec.losses.size() == static_cast<std::size_t>(term.objective) &&
                  rec.losses.size() < kMostObjectives,
              "a model has too many losses");
    const bool here = terms.layers > 0, of_batch = terms.over_batch && &term == &terms.balance;
    nn::Recording::Loss made{.name = name,
                             .weight = of_batch ? coefficient : coefficient * layers,
                             .value = here ? term.sum : graph::Value{}};
    if (of_batch)
      made.per_batch = here && first_of_tokens_;
    else
      made.per_sequence = here && rec.shape.share.rank == 0 ? terms.layers : 0;
    rec.losses.push_back(made);
  };
  add("balance", terms.balance, loss.coefficient);
  add("z_loss", terms.z, loss.z);
}

nn::Recording Transformer::record_logits(const nn::BatchShape& shape, DType dtype,
                                         std::string_view head) const {
  nn::Recording rec(shape, dtype);
  Relay relay(rec, stages_, context_, config_.model.d_model);
  const graph::Value x = hidden(rec, relay, false);
  if (!relay.here()) return rec;
  if (head.empty()) {
    rec.logits = token_logits(rec, x);
    return rec;
  }
  const auto& all = config_.model.heads;
  const auto found = std::ranges::find(all, head, &config::HeadConfig::name);
  TFM_CHECK(found != all.end(), "no head '" + std::string(head) + "'");
  rec.logits = heads_[static_cast<std::size_t>(found - all.begin())]->logits(rec, x);
  return rec;
}

void Transformer::add_heads(const Vocabulary& tied) {
  const config::ModelConfig& m = config_.model;
  parameters_.begin_stage(stages_.last_rank());
  for (const config::HeadConfig& head : m.heads) {
    const bool is_lm = head.type == "lm";
    if (is_lm && m.tied_head()) tied.use_at(context_, stages_.last_rank());
    heads_.push_back(heads().at(head.type)({context_, m, head, config_.loss,
                                            is_lm && m.tied_head() ? &tied : nullptr, batch_axes_,
                                            batch_ranks_}));
    if (is_lm) lm_ = heads_.back().get();
  }
  parameters_.finish();
}

graph::Value Transformer::token_logits(nn::Recording& rec, graph::Value x) const {
  if (!lm_)
    throw Error(ExitCode::usage,
                "the model predicts no tokens: model.heads has no head of type lm");
  return lm_->logits(rec, x);
}

}  // namespace tfm::models
