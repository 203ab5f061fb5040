#include "plan/traffic.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "models/stages.h"
#include "plan/device_model.h"

namespace tfm::plan {
namespace {

using Calls = std::vector<comm::CollectiveCall>;

// The axes to whose traffic a call counts: those that share out sequences or experts, if it is over
// no others, then those that share out tokens, if they have several ranks in it, then those that
// share out layers.
comm::AxisSet family_of(const comm::CollectiveCall& c, const comm::Layout& layout) {
  if (c.axes == nn::kSequenceAxes || c.axes == nn::kExpertAxes) return c.axes;
  for (const comm::AxisSet axes : {nn::kTokenAxes, nn::kModelAxes})
    if (layout.size(c.axes & axes) > 1) return axes;
  return nn::kStageAxes;
}

// Of the calls of one family.
double sent(const Calls& calls, const comm::Layout& layout, comm::AxisSet family) {
  double bytes = 0;
  for (const comm::CollectiveCall& c : calls)
    if (family_of(c, layout) == family) bytes += ring_bytes(c, layout);
  return bytes;
}

class Comparison {
 public:
  Comparison(const StepPlan& p, comm::AxisSet axes)
      : plan_(p), axes_(axes), micro_batches_(static_cast<double>(p.largest().micro_batches)) {
    const int ranks = p.mesh.layout.size(axes);
    share_ = static_cast<double>(ranks - 1) / ranks;
    result_.axes = comm::name_of(p.mesh.layout.group_of(axes));
    calls_ = p.collectives();
    result_.sent = sent(calls_, p.mesh.layout, axes);
  }

  TextbookTraffic finish() {
    differ("collectives of the optimizer", sent_for({comm::Purpose::optimizer}));
    double rest = result_.sent - result_.textbook;
    for (const auto& d : result_.differences) rest -= d.bytes;
    differ("other", rest);
    return std::move(result_);
  }

  void data() {
    const StepPlan& p = plan_;
    const comm::Layout& layout = p.mesh.layout;
    std::int64_t parameters = 0;
    for (const nn::PartSlice& s : p.model().parameters().slices()) parameters += s.elements();
    const int zero = optimizer_of(p).zero;
    const double element = bytes_of_element();
    result_.formula = zero == 0 ? "2 P: all-reduce of gradients"
                      : zero < 3
                          ? "2 P: reduce-scatter of gradients, all-gather of parameters"
                          : "3 P: reduce-scatter of gradients, two all-gathers of parameters";
    result_.textbook = element * share_ * static_cast<double>(parameters);
    differ("parameters and shares padded to whole blocks",
           element * share_ *
               static_cast<double>(p.model().parameters().flat_elements() - parameters));
    double around = 0, once = 0, lent = 0;
    for (std::size_t b = 0; b < p.buckets().size(); ++b) {
      const graph::BucketUse& use = p.largest().train_program.buckets()[b];
      const double reduced = ring_bytes(use.reduce, layout) + ring_bytes(use.across, layout),
                   gathered = ring_bytes({comm::Collective::all_gather, p.buckets()[b].shared,
                                          use.elements * size_of(p.dtype)},
                                         layout);
      around += reduced +
                (zero == 0  ? 0
                 : zero < 3 ? 1
                            : 2) *
                    gathered -
                element * share_ * static_cast<double>(use.elements);
      if (zero > 2) once += (gathers_of(static_cast<int>(b)) - 2) * gathered;
      if (zero > 2 && optim::lends(p.buckets()[b], p.model().parameters())) lent += gathered;
    }
    differ(layout.size(nn::kExpertAxes) > 1
               ? "experts: summed and gathered over the ranks that have the same"
           : layout.size(nn::kTokenAxes) > layout.size(layout.shared(nn::kTokenAxes))
               ? "replicas: rings of their own, and the sums of their shares"
               : "norms, biases and positions under sequence parallelism: summed over all ranks",
           around);
    differ("gathered once: what backward does not read, or reads right behind forward", once);
    differ("parameters that several stages use: gathered after the update", lent);
    differ("again for each further micro-batch",
           (micro_batches_ - 1) *
               sent(p.largest().train_program.collectives({.first = false, .last = false}), layout,
                    axes_));
    numbers();
  }

  void layers() {
    result_.formula = "4 all-reduces of a layer's rows in each micro-batch, or their halves";
    result_.textbook = 4 * 2 * share_ * micro_batches_ * rows_of_layers() *
                       static_cast<double>(plan_.config.model.d_model) *
                       static_cast<double>(size_of(plan_.dtype));
    std::map<std::string, double> parts = beside_layers();
    for (const optim::Bucket& b : plan_.buckets())
      if (const auto axes = b.axes - nn::kTokenAxes; token_ranks() == 1 && !axes.empty())
        parts["norms, biases and positions under sequence parallelism"] +=
            bytes_of_element() * share_ * static_cast<double>(b.end - b.begin);
    for (const auto& [why, bytes] : parts) differ(why, bytes);
    numbers();
  }

  void sequences() {
    const config::ModelConfig& m = plan_.config.model;
    const int ranks = plan_.mesh.layout.size(axes_);
    const auto element = static_cast<double>(size_of(plan_.dtype)),
               sum = static_cast<double>(size_of(accum_type(plan_.dtype)));
    const bool ring = plan_.config.parallel.context_exchange == config::ContextExchange::ring;
    result_.formula =
        ring ? "a layer's keys and values to all ranks but one in forward and in backward, sums of "
               "their gradients to all and home"
             : "a layer's keys and values gathered in forward and in backward, their gradients "
               "scattered";
    result_.textbook =
        (ring ? 2 * (ranks - 1) * element + ranks * sum : 3 * share_ * ranks * element) *
        micro_batches_ * rows_of_layers() * static_cast<double>(2 * m.n_kv_heads * m.d_head) /
        plan_.mesh.layout.size(nn::kModelAxes);
    for (const auto& [why, bytes] : beside_layers()) differ(why, bytes);
  }

  void experts() {
    const config::ModelConfig& m = plan_.config.model;
    const models::Stages stages(plan_.config, plan_.mesh);
    std::vector<config::LayerConfig> layers;
    for (const auto& stack : m.stacks()) std::ranges::copy(stack, std::back_inserter(layers));
    double slots = 0;  // of a token
    for (std::int64_t b = 0; b < stages.blocks(); ++b)
      if (stages.own(stages.of(b)))
        slots += layers[static_cast<std::size_t>(b)].experts.count == 0
                     ? 0
                     : static_cast<double>(layers[static_cast<std::size_t>(b)].experts.top_k) *
                           rows_of_layer(b);
    result_.formula = "a token to each of its experts and back, in forward and in backward";
    result_.textbook = 4 * share_ * micro_batches_ * slots * static_cast<double>(m.d_model) *
                       static_cast<double>(size_of(plan_.dtype));
    differ("room for an uneven load, and what tells rows apart",
           sent(calls_, plan_.mesh.layout, axes_) - result_.textbook);
  }

  void stages() {
    const models::Stages stages(plan_.config, plan_.mesh);
    int neighbours = 0;
    for (int s = 0; s < stages.count(); ++s)
      if (stages.own(s)) neighbours += (s > 0) + (s + 1 < stages.count());
    const config::ModelConfig& m = plan_.config.model;
    const nn::BatchShape& shape = plan_.largest().shape;
    const int shards = plan_.config.parallel.sequence ? plan_.mesh.layout.size(nn::kModelAxes) : 1;
    result_.formula = "a layer's rows to the next stage, their gradients to the one before";
    result_.textbook = neighbours * micro_batches_ * static_cast<double>(shape.rows().tokens()) /
                       shards * static_cast<double>(m.d_model) *
                       static_cast<double>(size_of(plan_.dtype));
    double rows = -result_.textbook, lent = 0;
    for (const comm::CollectiveCall& c : calls_)
      if (c.kind == comm::Collective::send)
        (c.purpose == comm::Purpose::activations ? rows : lent) += static_cast<double>(c.bytes);
    differ("the encoder's output and its gradient, and other lengths of its rows", rows);
    differ("parameters that several stages use: weights one way, gradients the other", lent);
    numbers();
  }

 private:
  // Of this rank, a micro-batch's rows once for each of its layers.
  double rows_of_layers() const {
    const models::Stages stages(plan_.config, plan_.mesh);
    double rows = 0;
    for (std::int64_t b = 0; b < stages.blocks(); ++b)
      if (stages.own(stages.of(b))) rows += rows_of_layer(b);
    return rows;
  }
  double rows_of_layer(std::int64_t block) const {
    const config::ModelConfig& m = plan_.config.model;
    const nn::BatchShape& shape = plan_.largest().shape;
    return static_cast<double>(m.translates() && block < m.n_encoder_layers
                                   ? shape.source_rows().tokens()
                                   : shape.rows().tokens());
  }
  // What passes exchange along these axes, by what it is for, beside what the formula counts.
  std::map<std::string, double> beside_layers() const {
    const graph::Program& program = plan_.largest().train_program;
    std::map<std::string, double> parts;
    for (const graph::Exchange& x : program.exchanges())
      if (x.bucket < 0 && family_of(x.call, plan_.mesh.layout) == axes_)
        parts[part_of(program, x)] += micro_batches_ * ring_bytes(x.call, plan_.mesh.layout);
    parts[kLayers] -= result_.textbook;
    return parts;
  }
  int gathers_of(int bucket) const {  // in a micro-batch
    return static_cast<int>(
        std::ranges::count_if(plan_.largest().train_program.exchanges(), [&](const auto& x) {
          return x.of == graph::Exchange::Of::parameters && x.bucket == bucket;
        }));
  }
  double sent_for(std::initializer_list<comm::Purpose> purposes) const {
    Calls some = calls_;
    std::erase_if(some, [&](const comm::CollectiveCall& c) {
      return std::ranges::count(purposes, c.purpose) == 0;
    });
    return sent(some, plan_.mesh.layout, axes_);
  }
  int token_ranks() const { return plan_.mesh.layout.size(nn::kTokenAxes); }
  // Counts of labels, losses and the norm.
  void numbers() {
    differ("labels, losses and the norm", sent_for({comm::Purpose::totals, comm::Purpose::norm}));
  }
  // Of an element of the parameters, for its gradient and itself, times the ring's share.
  double bytes_of_element() const {
    const int zero = optimizer_of(plan_).zero;
    const auto wide = static_cast<double>(size_of(accum_type(plan_.dtype))),
               own = static_cast<double>(size_of(plan_.dtype));
    return zero == 0 ? 2 * wide : wide + (zero < 3 ? 1 : 2) * own;
  }

  static constexpr const char* kLayers = "layers exchange more";

  static std::string part_of(const graph::Program& program, const graph::Exchange& x) {
    using enum comm::Purpose;
    const graph::Instruction& s = program.instructions()[static_cast<std::size_t>(x.start)];
    if (x.call.purpose == softmax) return "statistics of the split vocabulary's softmax";
    if (s.phase == graph::Phase::recompute) return "recompute: exchanges of forward again";
    switch (x.call.purpose) {
      case cross_attention:
        return "cross-attention";
      case layers:
        return kLayers;
      case embedding:
        return "embedding: sums over the split vocabulary";
      case head:
        return "head: gradient of what enters it, or its gathers";
      default:
        return "between encoder and decoder";
    }
  }

  void differ(const std::string& why, double bytes) {
    if (std::abs(bytes) > 1e-9 * result_.sent) result_.differences.push_back({why, bytes});
  }

  const StepPlan& plan_;
  comm::AxisSet axes_;
  Calls calls_;  // of a step
  double micro_batches_, share_ = 0;
  TextbookTraffic result_;
};

}  // namespace

std::vector<Traffic> traffic(const StepPlan& plan) {
  std::vector<Traffic> all;
  for (const comm::CollectiveCall& c : plan.collectives()) {
    auto at = std::ranges::find_if(
        all, [&](const Traffic& t) { return t.kind == c.kind && t.axes == c.axes; });
    if (at == all.end()) at = all.insert(at, {.kind = c.kind, .axes = c.axes});
    ++at->count;
    at->bytes += c.bytes;
    at->sent += ring_bytes(c, plan.mesh.layout);
  }
  std::ranges::stable_sort(all, {}, [](const Traffic& t) { return t.axes.bits(); });
  return all;
}

std::vector<TextbookTraffic> textbook_traffic(const StepPlan& plan) {
  std::vector<TextbookTraffic> all;
  const auto compare = [&](comm::AxisSet axes, void (Comparison::*formula)()) {
    if (plan.mesh.layout.size(axes) == 1) return;
    Comparison c(plan, axes);
    (c.*formula)();
    all.push_back(c.finish());
  };
  compare(nn::kTokenAxes, &Comparison::data);
  compare(nn::kModelAxes, &Comparison::layers);
  compare(nn::kSequenceAxes, &Comparison::sequences);
  compare(nn::kExpertAxes, &Comparison::experts);
  compare(nn::kStageAxes, &Comparison::stages);
  return all;
}

}  // namespace tfm::plan
