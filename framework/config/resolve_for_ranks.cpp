// Values and rules that depend on the number of ranks.
#include <numeric>

#include "config/fields.h"
#include "config/rules.h"

namespace tfm::config {
namespace {

// Tokens of a micro-batch that `auto` does not exceed before a device is known (plan/choose.h).
constexpr std::int64_t kAutoTokens = 4096;

std::string text(std::int64_t n) { return std::to_string(n); }

// `auto` leaves so many micro-batches for each stage of a pipeline, where the batch has them.
constexpr std::int64_t kAutoMicroBatches = 4;

// A rule that the number of ranks breaks, with the keys involved, the likeliest culprit first.
using Refuse = std::function<void(const std::vector<std::string>& keys, const std::string&)>;

void check_tensor(const Config& c, int ranks, const Refuse& refuse) {
  const std::int64_t t = c.parallel.tensor;
  // Sizes of layers that are shared out, with their keys.
  std::vector<std::pair<std::string, std::int64_t>> sizes;
  for (const auto& [path, layer] : c.model.kinds_in_use()) {
    sizes.insert(sizes.end(),
                 {{path + "n_heads", layer->n_heads}, {path + "n_kv_heads", layer->n_kv_heads}});
    if (layer->attention.key_heads > 0)
      sizes.emplace_back(path + "attention.key_heads", layer->attention.key_heads);
    const ExpertsConfig& e = layer->experts;
    if (e.count == 0 || c.model.expert_layers != ExpertLayersConfig{})
      sizes.emplace_back(path + "d_ff", layer->d_ff);
    if (e.count > 0)
      sizes.insert(sizes.end(), {{path + "experts.d_ff", e.d_ff},
                                 {path + "experts.shared_d_ff", e.shared_d_ff}});
  }
  std::vector<std::int64_t> legal;
  for (std::int64_t d : divisors(ranks))
    if (std::ranges::all_of(sizes, [d](const auto& s) { return s.second % d == 0; }))
      legal.push_back(d);
  const std::string values =
      "; legal values of parallel.tensor for " + text(ranks) + " ranks are " + listed(legal, t);
  if (ranks % t != 0)
    refuse(
        {"parallel.tensor"},
        "the " + text(ranks) + " ranks are not divisible by parallel.tensor " + text(t) + values);
  if (drops_targets(c) && c.parallel.sequence && 8 % t != 0)
    refuse({"parallel.tensor", "parallel.sequence", "model.dropout"},
           "parallel.sequence shares out positions, but targets of span_corruption are padded to "
           "multiples of 8, on which masks of dropout depend; expected parallel.tensor 1, 2, 4 or "
           "8, parallel.sequence false, or model.dropout 0");
  for (const auto& [key, size] : sizes)
    if (size % t != 0)
      refuse({"parallel.tensor", key},
             key.substr(key.starts_with("model.layer_kinds.") ? 18 : 6) + " " + text(size) +
                 " is not divisible by parallel.tensor " + text(t) + "; it is divisible by " +
                 listed(divisors(size), t) + values);
}

void check_pipeline(const Config& c, int ranks, const Refuse& refuse) {
  const std::int64_t stages = c.parallel.pipeline, of_rank = c.parallel.stages_of_rank();
  if (stages == 1) return;
  const ModelConfig& m = c.model;
  const std::int64_t blocks = m.total_layers();
  std::vector<std::int64_t> legal;
  for (std::int64_t d : divisors(ranks))
    if (d * of_rank <= blocks && ranks % (d * c.parallel.tensor) == 0) legal.push_back(d);
  const std::string values = "; legal values of parallel.pipeline for " + text(ranks) +
                             " ranks are " + listed(legal, stages);
  if (blocks < stages * of_rank)
    refuse({"parallel.pipeline", m.translates() ? "model.n_decoder_layers" : "model.n_layers"},
           "parallel.pipeline " + text(stages) +
               (of_rank > 1 ? " with " + text(of_rank) + " stages on each rank needs " +
                                  text(stages * of_rank)
                            : " needs as many") +
               " layers, but the model has " + text(blocks) + values);
  else if (ranks % c.parallel.tensor == 0 && ranks % (c.parallel.tensor * stages) != 0)
    refuse({"parallel.pipeline", "parallel.tensor"},
           "the " + text(ranks) + " ranks are not divisible by parallel.tensor " +
               text(c.parallel.tensor) + " * parallel.pipeline " + text(stages) + values);
}

void check_context(const Config& c, int ranks, const Refuse& refuse) {
  const std::int64_t context = c.parallel.context, length = c.train.seq_len,
                     others = c.parallel.tensor * c.parallel.pipeline;
  if (context == 1) return;
  const auto cuts = [&](std::int64_t d) { return d == 1 || length % (2 * d) == 0; };
  std::vector<std::int64_t> legal;
  for (std::int64_t d : divisors(ranks))
    if (cuts(d) && ranks % (d * others) == 0) legal.push_back(d);
  const std::string values = "; legal values of parallel.context for " + text(ranks) +
                             " ranks are " + listed(legal, context),
                    rule = "parallel.context " + text(context) + " cuts every sequence in " +
                           text(2 * context) + " chunks, ";
  for (const auto& [path, layer] : c.model.kinds_in_use()) {
    const std::string& type = layer->attention.type;
    for (const auto& [key, heads] : {std::pair{"n_heads", layer->n_heads},
                                     {"attention.key_heads", layer->attention.key_heads}})
      if (layer->attention.has_state() && heads % (c.parallel.tensor * context) != 0)
        refuse({"parallel.context", path + key},
               "attention.type " + type + " shares out heads over parallel.tensor " +
                   text(c.parallel.tensor) + " * parallel.context " + text(context) + ", but " +
                   key + " is " + text(heads) + "; expected a multiple of " +
                   text(c.parallel.tensor * context));
    for (const auto& [key, value] : {std::pair{"capacity_factor", layer->experts.capacity_factor},
                                     {"capacity", static_cast<double>(layer->experts.capacity)}})
      if (value > 0)
        refuse({"parallel.context", path + "experts." + key},
               std::string(key) + " counts the tokens of whole sequences, which parallel.context " +
                   text(context) + " cuts; expected parallel.context 1, or " + key + " 0");
  }
  if (!cuts(context))
    refuse({"parallel.context", "train.seq_len"},
           rule + "but train.seq_len " + text(length) + " is not a multiple of that" + values);
  // Lengths of batches of sentence pairs are multiples of 8 only.
  else if (c.train.global_batch_tokens > 0 && 8 % (2 * context) != 0)
    refuse({"parallel.context", "train.global_batch_tokens"},
           rule +
               "but with train.global_batch_tokens lengths are multiples of 8; expected "
               "parallel.context 1, 2 or 4");
  else if (drops_targets(c) && 8 % (2 * context) != 0)
    refuse({"parallel.context", "model.dropout"},
           rule +
               "but targets of span_corruption are padded to multiples of 8, on which masks of "
               "dropout depend; expected parallel.context 1, 2 or 4, or model.dropout 0");
  if (ranks % others == 0 && ranks % (others * context) != 0)
    refuse(
        {"parallel.context", "parallel.tensor"},
        "the " + text(ranks) + " ranks are not divisible by parallel.tensor " +
            text(c.parallel.tensor) +
            (c.parallel.pipeline > 1 ? " * parallel.pipeline " + text(c.parallel.pipeline) : "") +
            " * parallel.context " + text(context) + values);
}

void check_replicas(const Config& c, const Refuse& refuse) {
  const std::int64_t data = c.parallel.data, replicas = c.parallel.replicas;
  if (replicas == 1) return;
  if (data % replicas != 0)
    refuse({"parallel.replicas", "parallel.data"},
           "the " + text(data) + " data-parallel ranks are not divisible by parallel.replicas " +
               text(replicas) + "; legal values are " + listed(divisors(data), replicas));
  if (c.parallel.zero == 0)
    refuse({"parallel.replicas", "parallel.zero"},
           "parallel.replicas " + text(replicas) +
               " says over how many ranks ZeRO shares out, but parallel.zero is 0, which shares "
               "out nothing; expected parallel.zero 1, 2 or 3, or parallel.replicas 1");
}

void check_expert(const Config& c, const Refuse& refuse) {
  const std::int64_t ranks = c.parallel.expert,
                     shares = c.parallel.data / std::max<std::int64_t>(c.parallel.replicas, 1);
  if (ranks == 1) return;
  if (c.model.layers_with_experts() == 0)
    return refuse({"parallel.expert"}, "parallel.expert " + text(ranks) +
                                           " shares out experts, of which the model has none; "
                                           "expected parallel.expert 1, or model.experts");
  for (const auto& [path, layer] : c.model.kinds_in_use()) {
    const double slots = static_cast<double>(c.train.batch_size()) *
                         static_cast<double>(c.train.counts_tokens() ? 1 : c.train.seq_len) *
                         static_cast<double>(layer->experts.top_k);
    if (layer->dropout.ffn > 0 && layer->experts.count > 0 && slots >= 1 << 30)
      refuse(
          {"parallel.expert", path + "experts.top_k", "train.global_batch_size"},
          "a step has " + number_text(slots) +
              " tokens times experts, which masks of dropout number; expected less than 1e9 with "
              "parallel.expert, or dropout.ffn 0");
  }
  const auto divides = [&](std::int64_t d) {
    return shares % d == 0 && std::ranges::all_of(c.model.kinds_in_use(), [&](const auto& kind) {
             return kind.second->experts.count % d == 0;
           });
  };
  std::vector<std::int64_t> legal;
  for (const std::int64_t d : divisors(shares))
    if (divides(d)) legal.push_back(d);
  const std::string values = "; legal values of parallel.expert are " + listed(legal, ranks);
  if (shares % ranks != 0)
    refuse({"parallel.expert", "parallel.data"},
           "the " + text(shares) + " data-parallel ranks" +
               (c.parallel.replicas > 1 ? " of a replica" : "") +
               " are not divisible by parallel.expert " + text(ranks) + values);
  for (const auto& [path, layer] : c.model.kinds_in_use())
    if (layer->experts.count % ranks != 0)
      refuse({"parallel.expert", path + "experts.count"},
             "the " + text(layer->experts.count) +
                 " experts of a layer are not divisible by parallel.expert " + text(ranks) +
                 values);
}

// A balance over the batch is known when all of it has been routed.
void check_balance(const Config& c, const Refuse& refuse) {
  if (c.model.layers_with_experts() == 0 || !c.model.router_loss.balances_batch()) return;
  const auto wrong = [&](const std::string& key, const std::string& problem) {
    refuse({"model.experts.balance.over", key},
           "a balance over the batch needs all its tokens at once, but " + problem +
               "; expected over: sequence, or another " + key);
  };
  if (c.parallel.pipeline > 1)
    wrong("parallel.pipeline", "parallel.pipeline is " + text(c.parallel.pipeline));
  if (c.train.counts_tokens() || c.train.global_batch_tokens > 0)
    wrong("train.global_batch_size", "batches are counted in tokens");
  else if (c.train.micro_batch_size * c.parallel.data != c.train.global_batch_size)
    wrong("train.micro_batch_size", "train.micro_batch_size " + text(c.train.micro_batch_size) +
                                        " * parallel.data " + text(c.parallel.data) +
                                        " is not train.global_batch_size " +
                                        text(c.train.global_batch_size));
  std::vector<std::int64_t> counts;
  for (const auto& [path, layer] : c.model.kinds_in_use())
    if (layer->experts.count > 0) counts.push_back(layer->experts.count);
  if (std::ranges::count(counts, counts.front()) != std::ssize(counts))
    wrong("model.layer_kinds", "layers have different numbers of experts");
}

// Pairs whose documents are each other's negatives are compared in one micro-batch: by each rank
// alone, or all of the batch by all ranks.
void check_pairs(const Config& c, const Refuse& refuse) {
  const HeadConfig* head = c.model.head_of_type("embed");
  if (!head || !c.data.train.kind().labelled) return;
  const std::int64_t texts = c.data.train.texts_of_pair(), data = c.parallel.data,
                     batch = c.train.global_batch_size, group = head->group;
  if (batch % data != 0) return;  // already refused
  if (batch % (data * texts) != 0)
    return refuse({"train.global_batch_size", "parallel.data"},
                  "a row has " + text(texts) + " texts, but train.global_batch_size " +
                      text(batch) + " is not a multiple of that for each of the " + text(data) +
                      " data-parallel ranks; expected a multiple of " + text(data * texts));
  const std::int64_t local = batch / data, pairs = batch / texts;
  if (group > 0 && pairs % group != 0)
    return refuse({"model.heads", "train.global_batch_size"},
                  "group " + text(group) + " does not divide the " + text(pairs) +
                      " pairs of a batch; legal values are auto, " +
                      listed(divisors(pairs), group));
  const bool whole = group == 0 || group == pairs;
  const auto fits = [&](std::int64_t micro) {
    return (whole && micro == local) || (group > 0 && micro % (group * texts) == 0);
  };
  if (const std::int64_t micro = c.train.micro_batch_size; !fits(micro)) {
    std::vector<std::int64_t> legal;
    for (const std::int64_t d : divisors(local))
      if (fits(d)) legal.push_back(d);
    const std::string of =
        group > 0 ? "groups of " + text(group) + " pairs" : "all pairs of a batch";
    refuse({"train.micro_batch_size", "model.heads"},
           of + " share negatives, which train.micro_batch_size " + text(micro) + " on " +
               text(data) + " data-parallel ranks does not hold; expected " +
               (legal.empty() ? "" : "micro_batch_size " + listed(legal, micro) + ", or ") +
               "a group of pairs that divides micro_batch_size / " + text(texts));
  }
}

void resolve_micro_batch(Config& c, const Refuse& refuse) {
  if (c.train.global_batch_tokens > 0) {  // any number of sequences: the rest is padding
    if (c.train.micro_batch() == 0) c.train.micro_batch_tokens = kAutoTokens;
    return;
  }
  const std::int64_t data = c.parallel.data, tensor = c.parallel.tensor,
                     batch = c.train.global_batch_size, context = c.parallel.context,
                     length = c.train.seq_len / context;  // of a rank
  if (batch % data != 0) {
    std::vector<std::int64_t> near;
    for (std::int64_t k : {batch / data, batch / data + 1})
      if (k > 0) near.push_back(k * data);
    return refuse(
        {"train.global_batch_size", "parallel.data", "parallel.tensor"},
        "train.global_batch_size " + text(batch) + " is not divisible by the " + text(data) +
            " data-parallel ranks (parallel.data); the nearest legal values are " + join(near));
  }
  const std::int64_t local = batch / data;
  const bool split = c.parallel.sequence && tensor > 1;
  std::vector<std::int64_t> legal;
  // Targets are padded to multiples of 8, which each axis alone is known to share out.
  const auto shares_targets = [&](std::int64_t m) {
    return !split || !drops_targets(c) || 8 % tensor != 0 || 8 * m % (context * tensor) == 0;
  };
  for (std::int64_t m : divisors(local))
    if (!split || (m * length % tensor == 0 && shares_targets(m))) legal.push_back(m);
  std::int64_t& micro = c.train.micro_batch_size;
  if (!shares_targets(legal.empty() ? local : micro))
    return refuse({"train.micro_batch_size", "parallel.sequence", "parallel.tensor"},
                  "targets of span_corruption are padded to multiples of 8, which "
                  "parallel.context " +
                      text(context) + " and sequence parallelism over parallel.tensor " +
                      text(tensor) + " share out; expected a micro_batch_size of a multiple of " +
                      text(context * tensor / std::gcd<std::int64_t>(8, context * tensor)) +
                      ", parallel.sequence false, or model.dropout 0");
  const std::string positions =
      "seq_len" + (context > 1 ? " / parallel.context " + text(context) : "");
  const std::string rule = "sequence parallelism shards micro_batch_size * " + positions +
                           " positions over parallel.tensor " + text(tensor);
  if (legal.empty())
    return refuse(
        {"parallel.sequence", "train.seq_len", "train.global_batch_size", "parallel.tensor"},
        rule + ", but no micro-batch size that divides the " + text(local) +
            " sequences of a replica, times train." + positions + " " + text(length) +
            ", is a multiple of " + text(tensor) +
            "; expected a seq_len that is a multiple of it, or parallel.sequence false");
  if (micro == 0) {
    micro = legal.front();
    const std::int64_t least =
        c.parallel.pipeline > 1 ? kAutoMicroBatches * c.parallel.pipeline : 1;
    for (std::int64_t m : legal)
      if (m * length <= kAutoTokens && local / m >= least) micro = m;
    if (c.model.router_loss.balances_batch() && c.model.layers_with_experts() > 0) micro = local;
    if (const HeadConfig* head = c.model.head_of_type("embed")) {
      const std::int64_t together = c.sequences_together();
      if (head->group == 0 || local % together != 0)
        micro = local;
      else
        for (const std::int64_t m : legal)
          if (m % together == 0 && (micro % together != 0 || m * length <= kAutoTokens)) micro = m;
    }
  } else if (local % micro != 0) {
    refuse({"train.micro_batch_size"},
           "the " + text(local) + " sequences of a replica (train.global_batch_size " +
               text(batch) + " / parallel.data " + text(data) +
               ") are not divisible by train.micro_batch_size " + text(micro) +
               "; legal values are auto, " + listed(legal, micro));
  } else if (split && micro * length % tensor != 0) {
    refuse({"train.micro_batch_size"},
           rule + ", but train.micro_batch_size " + text(micro) + " * train." + positions + " " +
               text(length) + " = " + text(micro * length) +
               " is not a multiple of that; legal values of micro_batch_size are auto, " +
               listed(legal, micro));
  }
}

// Beyond these sizes numbers of bytes would overflow, and a plan would not fit in memory.
void check_sizes(const Config& c, const Refuse& refuse) {
  constexpr double kMostActivations = 1e16, kMostMicroBatches = 1e7;
  const ModelConfig& m = c.model;
  const TrainConfig& t = c.train;
  const auto real = [](std::int64_t n) { return static_cast<double>(n); };
  double width = real(std::max(m.vocab_size, m.source_vocab_size));
  for (const auto& [path, layer] : m.kinds_in_use())
    width = std::max({width, real(layer->d_ff), real(layer->n_heads) * real(layer->d_head),
                      real(layer->experts.d_ff) * real(layer->experts.top_k)});
  const double tokens = t.counts_tokens() ? real(std::max(t.micro_batch_tokens, t.seq_len))
                                          : real(t.micro_batch_size) * real(t.seq_len);
  const std::string micro = t.counts_tokens() ? "micro_batch_tokens" : "micro_batch_size";
  if (tokens * width * real(m.total_layers()) > kMostActivations)
    refuse({"train." + micro, "train.seq_len", "model.d_model"},
           "a micro-batch of " + number_text(tokens) + " tokens (train." + micro +
               ", train.seq_len) has more than " + number_text(kMostActivations) +
               " activations in this model; expected less of them, or a smaller model");
  if (!t.counts_tokens() && t.global_batch_tokens == 0 &&
      t.global_batch_size / t.micro_batch_size / c.parallel.data > kMostMicroBatches)
    refuse({"train.global_batch_size", "train.micro_batch_size"},
           "train.global_batch_size " + text(t.global_batch_size) + " makes more than " +
               number_text(kMostMicroBatches) + " micro-batches of train.micro_batch_size " +
               text(t.micro_batch_size) + " on each of the " + text(c.parallel.data) +
               " data-parallel ranks; expected a smaller batch or larger micro-batches");
}

}  // namespace

void resolve_for_ranks(Config& c, int ranks) {
  fill_derived(c);
  if (c.recompute == Recompute::automatic) c.recompute = Recompute::none;
  Problems problems(c.places, "configuration for " + counted(ranks, "rank"));
  const Refuse refuse = [&](const std::vector<std::string>& keys, const std::string& message) {
    problems.add(keys, message);
  };
  const std::int64_t tensor = c.parallel.tensor, stages = c.parallel.pipeline,
                     context = c.parallel.context, others = tensor * stages * context;
  check_tensor(c, ranks, refuse);
  check_pipeline(c, ranks, refuse);
  check_context(c, ranks, refuse);
  if (ranks % others == 0) {
    const std::int64_t replicas = ranks / others, product = c.parallel.data * others;
    if (c.parallel.data != 0 && c.parallel.data != replicas)
      refuse({"parallel.data", "parallel.tensor"},
             "parallel.data " + text(c.parallel.data) + " * parallel.tensor " + text(tensor) +
                 (stages > 1 ? " * parallel.pipeline " + text(stages) : "") +
                 (context > 1 ? " * parallel.context " + text(context) : "") + " = " +
                 text(product) + ", but there are " + text(ranks) +
                 " ranks; expected parallel.data auto or " + text(replicas) + ", or " +
                 text(product) + " ranks");
    c.parallel.data = replicas;
    check_replicas(c, refuse);
    check_expert(c, refuse);
    resolve_micro_batch(c, refuse);
    check_balance(c, refuse);
    check_pairs(c, refuse);
    if (c.train.micro_batch() > 0) check_sizes(c, refuse);
  }
  problems.throw_if_any();
}

}  // namespace tfm::config
