#include "cases.h"

namespace tfm::test {
namespace {

using kernels::Activation;

// An identity before op inputs whose gradient has one writer, so that gradients of the case's
// inputs may be added to.
graph::Value own(graph::Recorder& r, graph::Value x) { return ops::copy_to_tp_region(r, x); }

enum class Position { none, alibi, relative };
struct AttentionCase {
  std::int64_t heads = 2, kv = 2;
  Visibility visible = Visibility::causal();
  double dropout = 0;
  Position position = Position::none;
  std::int64_t keys = 0;  // of cross-attention
  bool padding = false, documents = false;
  SequenceShare share = {};
  bool ring = false;
  double softcap = 0;
  bool sinks = false;
  bool prefix = false;
};

// Two sequences of four queries of this rank; attention over themselves, or over two sequences of
// other rows.
OpCase attention_case(const std::string& name, const AttentionCase& c) {
  const std::int64_t D = 4, T = 4 * c.share.ranks, S = c.keys ? c.keys : T;
  std::vector<Shape> inputs{{8, (c.heads + (c.keys ? 0 : 2 * c.kv)) * D}};
  if (c.keys) inputs.push_back({2 * S / c.share.ranks, 2 * c.kv * D});
  if (c.position == Position::relative) inputs.push_back({c.heads, 3});
  if (c.sinks) inputs.push_back({c.heads});
  return {"attention", name, inputs,
          [=](graph::Recorder& r, const std::vector<graph::Value>& in) {
            ops::AttentionOptions o{.heads = c.heads,
                                    .kv_heads = c.kv,
                                    .head_size = D,
                                    .queries = T,
                                    .keys = S,
                                    .scale = 0.5,
                                    .softcap = c.softcap,
                                    .visible = c.visible,
                                    .dropout = c.dropout,
                                    .heads_total = c.heads,
                                    .share = c.share,
                                    .ring = c.ring};
            if (c.position == Position::alibi) o.alibi_slopes = {0.5, 0.25};
            if (c.position == Position::relative)
              for (std::int64_t i = 0; i < T + S - 1; ++i)
                o.buckets.push_back(static_cast<std::int32_t>(i * i % 3));
            ops::AttentionInputs a{.q = own(r, in[0])};
            if (c.keys) a.kv = own(r, in[1]);
            if (c.padding || c.documents)
              a.k_segments = r.input(c.documents ? "segments" : "padding", {2 * S}, DType::i32);
            if (c.documents)
              a.q_segments = S == T ? a.k_segments : r.input("segments", {2 * T}, DType::i32);
            if (c.prefix) a.prefixes = r.input("prefixes", {2}, DType::i32);
            if (c.position == Position::relative) a.relative_bias = in[c.keys ? 2 : 1];
            if (c.sinks) a.sinks = in.back();
            return ops::attention(r, a, o);
          },
          c.keys ? 2u : 1u};
}

// What queries see beyond a window, with all that may be added to scores.
std::vector<std::pair<std::string, AttentionCase>> beyond_windows() {
  const RandomKey key{3, Purpose::init, 1};
  return {{"global", {.visible = {1, 1, {.first = 1}}}},
          {"global_without_first_queries", {.visible = {1, 1, {.from = 1, .first = 1}}}},
          {"first_queries_padding",
           {.visible = {.beyond = {.to = 1}}, .dropout = 0.3, .padding = true, .sinks = true}},
          {"strided_alibi_padding",
           {.visible = {1, 1, {.first = 1, .step = 2}},
            .position = Position::alibi,
            .padding = true,
            .sinks = true}},
          {"dilated_causal_documents",
           {.visible = {0, 0, {.causal = true, .step = 2, .steps = 1}},
            .dropout = 0.3,
            .documents = true}},
          {"global_causal_documents",
           {.heads = 4,
            .visible = {1, 0, {.causal = true, .first = 2}},
            .dropout = 0.3,
            .position = Position::relative,
            .documents = true}},
          {"blocks_alibi_padding",
           {.visible = {1, 1, {.first = 1, .block = 1, .random = 1, .key = key}},
            .position = Position::alibi,
            .padding = true,
            .sinks = true}},
          {"blocks_causal_capped",
           {.visible = {1, 0, {.causal = true, .first = 1, .block = 1, .random = 1, .key = key}},
            .softcap = 0.7}},
          {"blocks_of_repeats_dropout",
           {.visible = {1, 1, {.first = 1, .block = 1, .random = 1, .repeats = true}},
            .dropout = 0.3}}};
}

// Also attention of ranks that share out sequences, and gather keys and values or pass them round.
std::vector<OpCase> with_shared_attention(std::vector<OpCase> all) {
  for (const auto& [name, c] : beyond_windows()) {
    all.push_back(attention_case(name, c));
    all.back().cancels = c.position == Position::relative;
  }
  all.push_back(attention_case("prefix_documents", {.documents = true, .prefix = true}));
  const auto add = [&](const std::string& name, AttentionCase c) {
    for (const bool ring : {false, true}) {
      c.ring = ring;
      all.push_back(attention_case((ring ? "ring_" : "gather_") + name, c));
      all.back().cancels = c.position == Position::relative || c.sinks;
    }
  };
  add("causal", {.share = {2, 0}});
  add("grouped_alibi_dropout",
      {.heads = 2, .kv = 1, .dropout = 0.3, .position = Position::alibi, .share = {2, 1}});
  add("documents_relative", {.heads = 4,
                             .dropout = 0.3,
                             .position = Position::relative,
                             .documents = true,
                             .share = {2, 1}});
  add("of_four", {.dropout = 0.3, .share = {4, 1}});
  add("cross_padding", {.visible = {}, .keys = 4, .padding = true, .share = {2, 1}});
  add("cross_of_four",
      {.visible = {}, .dropout = 0.3, .position = Position::relative, .keys = 8, .share = {4, 2}});
  add("cross_causal_rows_without_keys", {.keys = 4, .share = {2, 1}});
  add("prefix", {.share = {2, 0}, .prefix = true});
  add("prefix_window", {.visible = {1, 0}, .dropout = 0.3, .share = {4, 1}, .prefix = true});
  add("window", {.visible = {2, 0}, .share = {2, 0}});
  add("window_of_four", {.visible = {1, 0}, .dropout = 0.3, .share = {4, 2}});
  add("window_both_ways_relative",
      {.visible = {3, 2}, .position = Position::relative, .padding = true, .share = {4, 1}});
  add("capped", {.share = {2, 1}, .softcap = 0.7});
  add("capped_documents_relative", {.heads = 4,
                                    .dropout = 0.3,
                                    .position = Position::relative,
                                    .documents = true,
                                    .share = {2, 0},
                                    .softcap = 0.7});
  add("sinks", {.share = {2, 1}, .sinks = true});
  add("sinks_window_documents_relative", {.heads = 4,
                                          .visible = {2, 0},
                                          .dropout = 0.3,
                                          .position = Position::relative,
                                          .documents = true,
                                          .share = {4, 1},
                                          .sinks = true});
  for (const auto& [name, c] : beyond_windows())
    for (const int ranks : {2, 4}) {
      AttentionCase of = c;
      of.share = {ranks, ranks / 2};
      add(name + (ranks == 4 ? "_of_four" : ""), of);
    }
  add("cross_window", {.visible = {1, 1}, .keys = 4, .share = {2, 1}});
  return all;
}

OpCase activation_case(const std::string& name, Activation kind, bool gated) {
  return {
      "activation", name, {{8, 10}}, [=](graph::Recorder& r, const std::vector<graph::Value>& in) {
        return ops::activation(r, in[0], kind, gated);
      }};
}

graph::Value class_weights(graph::Recorder& r) {
  return r.constant("class_weights", {7}, DType::f64, [](Tensor t) {
    for (int i = 0; i < 7; ++i) t.ptr<double>()[i] = 0.5 * i;
  });
}

OpCase cross_entropy_case(const std::string& name, bool bias, double smoothing, std::int64_t chunk,
                          const std::string& labels = "ids", double softcap = 0,
                          bool weighted = false) {
  std::vector<Shape> inputs{{8, 5}, {7, 5}};
  if (bias) inputs.push_back({7});
  return {"cross_entropy", name, inputs,
          [=](graph::Recorder& r, const std::vector<graph::Value>& in) {
            return ops::linear_cross_entropy(
                r, in[0], in[1], bias ? in[2] : graph::Value{}, r.input(labels, {8}, DType::i32),
                {.vocab_size = 7,
                 .vocab_begin = 0,
                 .vocab_end = 7,
                 .smoothing = smoothing,
                 .class_weights = weighted ? class_weights(r) : graph::Value{},
                 .scale = bias ? 0.7 : 1.0,
                 .softcap = softcap,
                 .chunk_rows = chunk});
          }};
}

OpCase contrastive_case(const std::string& name, std::int64_t rows, const std::string& labels,
                        const ops::ContrastiveOptions& options) {
  return {"contrastive",
          name,
          {{rows, 5}},
          [=](graph::Recorder& r, const std::vector<graph::Value>& in) {
            return ops::contrastive(r, in[0], r.input(labels, {rows}, DType::i32), options);
          }};
}

OpCase pool_case(const std::string& name, kernels::Pool kind, const Rows& rows,
                 const std::string& mask) {
  return {"pool", name, {{8, 5}}, [=](graph::Recorder& r, const std::vector<graph::Value>& in) {
            const Shape all{rows.sequences * rows.sequence_length};
            return ops::pool(r, own(r, in[0]), kind, rows,
                             mask.empty() ? graph::Value{} : r.input(mask, all, DType::i32));
          }};
}

// Eight tokens, of which each takes some of four experts that are scored by the second input.
struct ExpertsCase {
  std::int64_t top_k = 2;
  bool sigmoid = false, normalize = true;
  double scale = 1;
  std::string mask = {};
  Rows rows = {2, 4};
  std::int64_t capacity = 0, groups = 1;
  bool biased = false;

  kernels::RouterOptions options() const {
    return {4, top_k, sigmoid, normalize, scale, rows, capacity, groups, 1};
  }
  ops::Routing route(graph::Recorder& r, graph::Value x, graph::Value weight) const {
    const Shape all{rows.sequences * rows.sequence_length};
    const auto bias = [&] {  // not differentiable
      return r.constant("bias", {4}, r.dtype(), [](Tensor t) {
        with_float(t.dtype, [&]<class T>() {
          for (int e = 0; e < 4; ++e) t.ptr<T>()[e] = T(e % 2 - 0.5F);
        });
      });
    };
    return ops::route(r, ops::router_logits(r, x, weight),
                      mask.empty() ? graph::Value{} : r.input(mask, all, DType::i32),
                      biased ? bias() : graph::Value{}, options());
  }
};

// Experts of three hidden columns.
OpCase experts_case(const std::string& kind, const std::string& name, const ExpertsCase& c,
                    bool bias, bool adds_bias = true) {
  std::vector<Shape> inputs{{8, 5}, {4, 5}, {12, 5}, {20, 3}};
  if (bias) inputs.insert(inputs.end(), {{12}, {20}});
  return {kind, name, inputs, [=](graph::Recorder& r, const std::vector<graph::Value>& in) {
            const ops::Routing routing = c.route(r, in[0], in[1]);
            const graph::Value h =
                ops::experts_up(r, in[0], routing, in[2], bias ? in[4] : graph::Value{});
            return ops::experts_down(r, h, routing, in[3], bias ? in[5] : graph::Value{},
                                     adds_bias);
          }};
}

// The middle of three ranks, which here exchanges with itself.
OpCase shares_case(const std::string& kind, const Rows& rows,
                   const kernels::HeadSections& sections) {
  const bool to_heads = kind == "share_heads";
  const std::int64_t n = rows.tokens(), cols = sections.cols();
  return {kind,
          "of_three",
          {to_heads ? Shape{n, cols} : Shape{3 * n, cols / 3}},
          [=](graph::Recorder& r, const auto& in) {
            return to_heads ? ops::share_heads(r, in[0], sections, rows)
                            : ops::share_positions(r, in[0], sections, rows);
          }};
}

// Experts of two ranks, two on each.
OpCase exchange_case(const std::string& kind, const std::string& name, const ExpertsCase& c,
                     std::int64_t room) {
  return {kind, name, {{8, 5}, {4, 5}, {6, 5}, {10, 3}}, [=](graph::Recorder& r, const auto& in) {
            const ops::Sent sent =
                ops::dispatch(r, c.route(r, in[0], in[1]), {2, room, true, c.rows, {}});
            const graph::Value x = ops::send_slots(r, in[0], sent),
                               h = ops::experts_up(r, x, sent.here, in[2], {});
            return ops::return_slots(r, ops::experts_down(r, h, sent.here, in[3], {}), sent, 8);
          }};
}

OpCase router_case(const std::string& kind, const std::string& name, const ExpertsCase& c,
                   kernels::RouterTerm term) {
  return {kind, name, {{8, 5}, {4, 5}}, [=](graph::Recorder& r, const auto& in) {
            return ops::router_term(r, term, c.route(r, in[0], in[1]), c.options(), {}, 0);
          }};
}

// The balance of two layers.
OpCase batch_balance_case(const std::string& kind, const std::string& name, const ExpertsCase& c) {
  return {kind, name, {{8, 5}, {4, 5}, {4, 5}}, [=](graph::Recorder& r, const auto& in) {
            graph::Value sums;
            for (const std::size_t layer : {1u, 2u})
              sums = ops::sum_routing(r, c.route(r, in[0], in[layer]), c.options(), sums);
            const bool shared = c.rows.share.ranks > 1;
            return ops::batch_balance(
                r, sums, shared ? comm::AxisSet(comm::Axis::context) : comm::AxisSet{}, 0, true);
          }};
}

// Two heads of 4 plain and 4 turning columns, with values of 5.
ops::LatentOptions latent(const Rows& rows) { return {{2, 4, 4, 5}, {1.0, 0.1}, 1.25, rows}; }

// Two query heads for four heads of values, in sequences of four.
constexpr kernels::DeltaSizes kDelta{2, 4, 3, 5};
OpCase delta_case(const std::string& kind, const std::string& name, bool documents) {
  return {kind,
          name,
          {{8, kDelta.width()}, {8, 2 * kDelta.heads}, {kDelta.heads}, {kDelta.heads}},
          [=](graph::Recorder& r, const auto& in) {
            return ops::gated_delta(
                r, in[0], ops::delta_gates(r, in[1], in[2], in[3]), {}, kDelta, {2, 4},
                documents ? r.input("segments", {8}, DType::i32) : graph::Value{});
          },
          2};
}
// The same heads with states that are not corrected.
OpCase space_case(const std::string& name, bool documents) {
  kernels::DeltaSizes sizes = kDelta;
  sizes.corrects = false;
  const std::int64_t heads = sizes.heads;
  return {"state_space",
          name,
          {{8, sizes.width()}, {8, heads}, {heads}, {heads}, {heads}},
          [=](graph::Recorder& r, const auto& in) {
            return ops::gated_delta(
                r, in[0], ops::delta_gates(r, in[1], in[2], in[3]), in[4], sizes, {2, 4},
                documents ? r.input("segments", {8}, DType::i32) : graph::Value{});
          },
          2};
}
// Three heads of five columns.
OpCase linear_case(const std::string& name, bool causal, bool documents) {
  const kernels::LinearSizes sizes{3, 5, causal};
  return {
      "linear_attention", name, {{8, 3 * sizes.width()}}, [=](graph::Recorder& r, const auto& in) {
        return ops::linear_attention(
            r, in[0], sizes, {2, 4},
            documents ? r.input("segments", {8}, DType::i32) : graph::Value{});
      }};
}
// The convolution of documents has a bias.
OpCase convolution_case(const std::string& name, std::int64_t kernel, bool documents) {
  std::vector<Shape> inputs{{8, 5}, {5, kernel}};
  if (documents) inputs.push_back({5});
  return {"short_convolution", name, inputs, [=](graph::Recorder& r, const auto& in) {
            return ops::short_convolution(
                r, in[0], in[1], documents ? in[2] : graph::Value{}, {2, 4},
                documents ? r.input("segments", {8}, DType::i32) : graph::Value{});
          }};
}
OpCase gate_case(const std::string& name, kernels::Gate kind) {
  return {"gate",
          name,
          {{8, 5}, {8, 5}},
          [=](graph::Recorder& r, const auto& in) { return ops::gate(r, in[0], in[1], kind); },
          2};
}

const ops::ActivationRegion kPlace{.rows = {.sequence_length = 4}, .cols_total = 5};
// Rows 3 to 10 of a rank's chunks of four, of which a sequence has six.
const ops::ActivationRegion kSharedPlace{
    .rows = {.sequences = 2, .sequence_length = 24, .share = {3, 1}},
    .row_offset = 3,
    .cols_total = 5};

}  // namespace

const std::vector<OpCase>& op_cases() {
  static const std::vector<OpCase> cases = with_shared_attention({
      {"linear",
       "bias",
       {{8, 5}, {3, 5}, {3}},
       [](graph::Recorder& r, const auto& in) { return ops::linear(r, in[0], in[1], in[2]); }},
      {"linear",
       "plain",
       {{8, 5}, {3, 5}},
       [](graph::Recorder& r, const auto& in) { return ops::linear(r, in[0], in[1]); }},
      {"linear",
       "scaled",
       {{8, 5}, {3, 5}, {3}},
       [](graph::Recorder& r, const auto& in) { return ops::linear(r, in[0], in[1], in[2], 0.3); }},
      pool_case("first", kernels::Pool::first, {2, 4}, ""),
      pool_case("first_of_a_share", kernels::Pool::first, {2, 8, {2, 0}}, "segments"),
      pool_case("mean", kernels::Pool::mean, {2, 4}, ""),
      pool_case("mean_of_padded", kernels::Pool::mean, {2, 4}, "padding"),
      pool_case("mean_of_some_without_rows", kernels::Pool::mean, {8, 1}, "padding"),
      pool_case("mean_of_a_share", kernels::Pool::mean, {2, 8, {2, 1}}, "padding"),
      pool_case("last", kernels::Pool::last, {2, 4}, ""),
      pool_case("last_of_padded", kernels::Pool::last, {2, 4}, "few"),
      pool_case("last_of_a_share", kernels::Pool::last, {2, 8, {2, 0}}, ""),
      {"norm",
       "layernorm",
       {{8, 5}, {5}, {5}},
       [](graph::Recorder& r, const auto& in) { return ops::norm(r, in[0], {}, in[1], in[2]); }},
      {"norm",
       "layernorm_no_shift",
       {{8, 5}, {5}},
       [](graph::Recorder& r, const auto& in) { return ops::norm(r, in[0], {}, in[1]); }},
      {"norm",
       "rmsnorm",
       {{8, 5}, {5}},
       [](graph::Recorder& r, const auto& in) {
         return ops::norm(r, in[0], {1e-6, true}, in[1]);
       }},
      {"norm",
       "rmsnorm_plus_one",
       {{8, 5}, {5}},
       [](graph::Recorder& r, const auto& in) {
         return ops::norm(r, in[0], {1e-6, true, true}, in[1]);
       }},
      {"norm",
       "layernorm_eps_outside",
       {{8, 5}, {5}, {5}},
       [](graph::Recorder& r, const auto& in) {
         return ops::norm(r, in[0], {0.3, false, false, true}, in[1], in[2]);
       }},
      {"norm",
       "rmsnorm_eps_outside",
       {{8, 5}, {5}},
       [](graph::Recorder& r, const auto& in) {
         return ops::norm(r, in[0], {0.3, true, true, true}, in[1]);
       }},
      {"head_norm",
       "eps_outside",
       {{8, 18}, {6}},
       [](graph::Recorder& r, const auto& in) {
         return ops::head_norm(r, in[0], {{0.3, true, false, true}, 3, {3, 1}}, in[1]);
       }},
      {"norm",
       "layernorm_plus_one",
       {{8, 5}, {5}, {5}},
       [](graph::Recorder& r, const auto& in) {
         return ops::norm(r, in[0], {1e-5, false, true}, in[1], in[2]);
       }},
      {"head_norm",
       "plus_one",
       {{8, 18}, {6}},
       [](graph::Recorder& r, const auto& in) {
         return ops::head_norm(r, in[0], {{1e-6, true, true}, 3, {3, 1}}, in[1]);
       }},
      {"head_norm",
       "two_groups_and_a_rest",
       {{8, 18}, {6}},
       [](graph::Recorder& r, const auto& in) {
         return ops::head_norm(r, in[0], {{1e-6, true}, 3, {3, 1}}, in[1]);
       }},
      {"head_norm",
       "layernorm",
       {{8, 18}, {6}, {6}},
       [](graph::Recorder& r, const auto& in) {
         return ops::head_norm(r, in[0], {{}, 3, {3, 1}}, in[1], in[2]);
       }},
      {"head_norm",
       "one_group",
       {{8, 12}, {4}},
       [](graph::Recorder& r, const auto& in) {
         return ops::head_norm(r, in[0], {{}, 4, {3}}, in[1]);
       }},
      {"width_norm",
       "two_groups_and_a_rest",
       {{8, 18}, {12}},
       [](graph::Recorder& r, const auto& in) {
         return ops::width_norm(r, in[0], {1e-6, {9, 3}}, in[1]);
       }},
      {"width_norm",
       "one_group",
       {{8, 12}, {12}},
       [](graph::Recorder& r, const auto& in) {
         return ops::width_norm(r, in[0], {1e-6, {12}}, in[1]);
       }},
      activation_case("relu", Activation::relu, false),
      activation_case("gelu", Activation::gelu, false),
      activation_case("gelu_tanh", Activation::gelu_tanh, false),
      activation_case("silu", Activation::silu, false),
      activation_case("tanh", Activation::tanh, false),
      activation_case("swiglu", Activation::silu, true),
      activation_case("geglu", Activation::gelu_tanh, true),
      activation_case("clamped", Activation::clamped, true),
      {"jitter",
       "of_a_share",
       {{8, 5}},
       [](graph::Recorder& r, const auto& in) {
         return ops::jitter(r, in[0], 0.2, kSharedPlace);
       }},
      {"residual",
       "plain",
       {{8, 5}, {8, 5}},
       [](graph::Recorder& r, const auto& in) {
         return ops::dropout_add(r, in[0], in[1], 0, kPlace);
       },
       2},
      {"residual",
       "dropout",
       {{8, 5}, {8, 5}},
       [](graph::Recorder& r, const auto& in) {
         return ops::dropout_add(r, in[0], in[1], 0.4, kPlace);
       },
       2},
      {"residual",
       "same_input_twice",
       {{8, 5}},
       [](graph::Recorder& r, const auto& in) {
         return ops::dropout_add(r, in[0], in[0], 0.4, kPlace);
       }},
      {"dropout",
       "of_a_share",
       {{8, 5}},
       [](graph::Recorder& r, const auto& in) {
         return ops::dropout_add(r, in[0], {}, 0.4, kSharedPlace);
       }},
      {"dropout",
       "dropout",
       {{8, 5}},
       [](graph::Recorder& r, const auto& in) {
         return ops::dropout_add(r, in[0], {}, 0.4, kPlace);
       }},
      {"embedding",
       "scaled",
       {{7, 5}},
       [](graph::Recorder& r, const auto& in) {
         return ops::embedding(r, r.input("ids", {8}, DType::i32), in[0], {0, 7, 1.5});
       },
       0},
      {"embedding",
       "part_of_vocabulary",
       {{4, 5}},
       [](graph::Recorder& r,
          const auto&
              in) { return ops::embedding(r, r.input("ids", {8}, DType::i32), in[0], {2, 5, 1}); },
       0},
      {"embedding",
       "some_rows",
       {{7, 5}},
       [](graph::Recorder& r, const auto& in) {
         return ops::embedding(r, r.input("ids", {8}, DType::i32), in[0],
                               {.vocab_end = 7, .first_row = 3, .rows = 4});
       },
       0},
      {"position",
       "learned",
       {{8, 5}, {6, 5}},
       [](graph::Recorder& r,
          const auto& in) { return ops::add_position(r, in[0], in[1], kPlace); }},
      {"position",
       "from_the_second_row",
       {{8, 5}, {6, 5}},
       [](graph::Recorder& r,
          const auto& in) { return ops::add_position(r, in[0], in[1], kPlace, 2); }},
      {"position",
       "of_a_share",
       {{8, 5}, {26, 5}},
       [](graph::Recorder& r,
          const auto& in) { return ops::add_position(r, in[0], in[1], kSharedPlace, 2); }},
      {"rotary",
       "two_heads",
       {{8, 18}},
       [](graph::Recorder& r,
          const auto& in) { return ops::rotary(r, in[0], {2, 6, {1.0, 0.3, 0.01}, 1, {2, 4}}); }},
      {"rotary",
       "of_a_part",
       {{8, 18}},
       [](graph::Recorder& r,
          const auto& in) { return ops::rotary(r, in[0], {2, 6, {1.0, 0.3}, 1.25, {2, 4}}); }},
      {"rotary",
       "of_a_share",
       {{8, 18}},
       [](graph::Recorder& r,
          const auto&
              in) { return ops::rotary(r, in[0], {2, 6, {1.0, 0.3, 0.01}, 1, {2, 8, {2, 1}}}); }},
      attention_case("causal", {}),
      attention_case("sinks", {.sinks = true}),
      attention_case("sinks_grouped_window_dropout",
                     {.heads = 4, .visible = {1, 0}, .dropout = 0.3, .sinks = true}),
      attention_case("sinks_relative_padding", {.visible = {},
                                                .position = Position::relative,
                                                .padding = true,
                                                .sinks = true}),
      attention_case("sinks_cross_capped", {.visible = {}, .keys = 7, .softcap = 0.7, .sinks = true}),
      attention_case("full", {.visible = {}}),
      attention_case("window", {.visible = {1, 0}}),
      attention_case("window_both_ways", {.visible = {1, 1}, .position = Position::relative}),
      attention_case("grouped", {.heads = 4}),
      attention_case("capped", {.heads = 4, .softcap = 0.7}),
      attention_case("capped_window_dropout",
                     {.visible = {1, 0}, .dropout = 0.3, .padding = true, .softcap = 0.7}),
      attention_case("capped_alibi", {.position = Position::alibi, .softcap = 0.7}),
      attention_case("capped_relative",
                     {.visible = {}, .position = Position::relative, .keys = 7, .softcap = 0.7}),
      attention_case("multi_query_dropout", {.heads = 3, .kv = 1, .dropout = 0.3}),
      attention_case("alibi", {.position = Position::alibi}),
      attention_case("alibi_both_ways",
                     {.visible = {}, .position = Position::alibi, .padding = true}),
      attention_case("padding", {.visible = {}, .padding = true}),
      attention_case("documents", {.dropout = 0.3, .documents = true}),
      attention_case("relative", {.heads = 4, .visible = {}, .position = Position::relative}),
      attention_case("relative_padding_dropout",
                     {.dropout = 0.3, .position = Position::relative, .padding = true}),
      attention_case("cross", {.visible = {}, .keys = 7}),
      attention_case("cross_padding", {.heads = 4, .visible = {}, .keys = 7, .padding = true}),
      attention_case("cross_causal_fewer_keys", {.position = Position::alibi, .keys = 3}),
      attention_case("cross_everything", {.heads = 4,
                                          .visible = {},
                                          .dropout = 0.3,
                                          .position = Position::relative,
                                          .keys = 5,
                                          .documents = true}),
      experts_case("experts_up", "softmax", {}, false),
      experts_case("experts_down", "biases", {.scale = 1.5}, true),
      experts_case("experts_down", "bias_of_another_rank", {}, true, false),
      experts_case("experts_down", "sigmoid_of_padded", {.sigmoid = true, .mask = "padding"}, true),
      experts_case("experts_down", "of_a_share", {.rows = {2, 8, {2, 1}}}, false),
      experts_case("experts_down", "of_limited_slots", {.capacity = 1}, true),
      experts_case("experts_up", "of_limited_slots_of_padded",
                   {.top_k = 3, .sigmoid = true, .mask = "padding", .capacity = 2}, false),
      exchange_case("dispatch", "all", {}, 16),
      shares_case("share_heads", {2, 6, {3, 1}}, {{3, 6, 9}}),
      shares_case("share_positions", {1, 12, {3, 1}}, {{6}}),
      {"share_of",
       "two_sections",
       {{9, 2}},
       [](graph::Recorder& r,
          const auto& in) { return ops::share_of(r, in[0], {{3, 6}}, {3, 2}); }},
      exchange_case("send_slots", "top_3", {.top_k = 3, .normalize = false}, 16),
      exchange_case("return_slots", "without_room_for_all", {.sigmoid = true}, 3),
      experts_case("router_logits", "top_1", {.top_k = 1, .normalize = false}, false),
      experts_case("router_logits", "all", {.top_k = 4, .normalize = false, .mask = "few"}, false),
      experts_case("route", "sigmoid_of_some",
                   {.top_k = 3, .sigmoid = true, .normalize = false, .scale = 2}, false),
      experts_case("route", "biased_groups",
                   {.sigmoid = true, .scale = 2.5, .groups = 2, .biased = true}, false),
      {"router_logits",
       "biased",
       {{8, 5}, {4, 5}, {4}},
       [](graph::Recorder& r, const auto& in) {
         const kernels::RouterOptions o = ExpertsCase{}.options();
         const graph::Value logits = ops::router_logits(r, in[0], in[1], in[2]);
         return ops::router_term(r, kernels::RouterTerm::z, ops::route(r, logits, {}, {}, o), o, {},
                                 0);
       }},
      router_case("route", "balance", {}, kernels::RouterTerm::balance),
      {"latent_heads",
       "of_sequences",
       {{8, 16}, {8, 18}, {8, 4}},
       [](graph::Recorder& r, const auto& in) {
         return ops::latent_heads(r, in[0], in[1], in[2], latent({2, 4}));
       },
       3},
      {"latent_heads",
       "of_a_share",
       {{8, 16}, {8, 18}, {8, 4}},
       [](graph::Recorder& r, const auto& in) {
         return ops::latent_heads(r, in[0], in[1], in[2], latent({2, 8, {2, 1}}));
       },
       3},
      {"latent_values",
       "of_heads",
       {{8, 16}},
       [](graph::Recorder& r, const auto& in) {
         return ops::latent_values(r, own(r, in[0]), latent({2, 4}).sizes);
       }},
      delta_case("gated_delta", "of_sequences", false),
      delta_case("delta_gates", "of_documents", true),
      space_case("of_sequences", false),
      space_case("of_documents", true),
      linear_case("causal", true, false),
      linear_case("causal_of_documents", true, true),
      linear_case("of_both_sides", false, false),
      linear_case("of_both_sides_of_documents", false, true),
      convolution_case("of_sequences", 4, false),
      convolution_case("of_documents", 3, true),
      gate_case("sigmoid", kernels::Gate::sigmoid),
      gate_case("silu", kernels::Gate::silu),
      {"router_load",
       "beside",
       {{8, 5}, {4, 5}},
       [](graph::Recorder& r, const auto& in) {
         const ExpertsCase c{.mask = "padding"};
         const ops::Routing routing = c.route(r, in[0], in[1]);
         ops::router_load(r, routing, routing, c.options());
         return ops::router_term(r, kernels::RouterTerm::z, routing, c.options(), {}, 0);
       }},
      router_case("route", "balance_of_sigmoids", {.sigmoid = true},
                  kernels::RouterTerm::balance),
      router_case("router_term", "balance_of_padded", {.top_k = 1, .mask = "padding"},
                  kernels::RouterTerm::balance),
      router_case("router_term", "balance_of_a_share", {.rows = {2, 8, {2, 0}}},
                  kernels::RouterTerm::balance),
      router_case("router_term", "z", {.mask = "segments"}, kernels::RouterTerm::z),
      router_case("router_term", "z_of_sigmoids", {.sigmoid = true}, kernels::RouterTerm::z),
      batch_balance_case("sum_routing", "of_layers", {.mask = "padding"}),
      batch_balance_case("batch_balance", "of_a_share", {.rows = {2, 8, {2, 1}}}),
      {"gated_add",
       "sum",
       {{8, 5}, {8, 5}, {1, 5}},
       [](graph::Recorder& r, const auto& in) {
         return ops::gated_add(r, own(r, in[0]), ops::router_logits(r, in[0], in[2]),
                               own(r, in[1]));
       },
       2},
      cross_entropy_case("plain", false, 0, 0),
      cross_entropy_case("bias_smoothing", true, 0.1, 0),
      cross_entropy_case("chunks", true, 0.1, 3),
      cross_entropy_case("few_labels", true, 0.1, 4, "few"),
      cross_entropy_case("few_labels_in_one_chunk", false, 0, 0, "few"),
      cross_entropy_case("few_labels_in_chunks", true, 0.1, 2, "few"),
      cross_entropy_case("class_weights", true, 0.1, 3, "few", 0, true),
      contrastive_case("pairs", 8, "documents", {.texts = 2, .scale = 0.7}),
      contrastive_case("groups", 8, "next_of_pairs", {.texts = 2, .group = 2}),
      contrastive_case("triples", 6, "of_triples", {.texts = 3, .scale = 1.5}),
      contrastive_case("both_at_once", 7, "ids", {.texts = 1, .scale = 0.5}),
      {"contrastive",
       "of_another_rank",
       {{8, 5}, {8, 5}},
       [](graph::Recorder& r, const auto& in) {
         const graph::Value labels = r.input("documents", {8}, DType::i32);
         ops::contrastive(r, in[0], labels, {.texts = 2, .makes_gradient = false});
         return ops::contrastive(r, in[1], labels, {.texts = 2});
       },
       2},
      {"squared_error",
       "of_some",
       {{8, 1}},
       [](graph::Recorder& r, const auto& in) {
         return ops::squared_error(r, in[0], r.input("numbers", {8}, DType::i32), {});
       }},
      {"squared_error",
       "of_another_rank",
       {{8, 1}, {8, 1}},
       [](graph::Recorder& r, const auto& in) {
         const graph::Value numbers = r.input("numbers", {8}, DType::i32);
         ops::squared_error(r, in[0], numbers, {.makes_gradient = false});
         return ops::squared_error(r, in[1], numbers, {});
       },
       2},
      cross_entropy_case("capped", false, 0, 0, "ids", 0.9),
      cross_entropy_case("capped_everything", true, 0.1, 3, "few", 0.9),
      {"softcap",
       "in_the_middle",
       {{8, 5}},
       [](graph::Recorder& r, const auto& in) { return ops::softcap(r, in[0], 0.8); }},
      {"copy_to_tp_region",
       "one_rank",
       {{8, 5}},
       [](graph::Recorder& r, const auto& in) { return ops::copy_to_tp_region(r, in[0]); }},
      {"reduce_from_tp_region",
       "bias",
       {{8, 5}, {5}},
       [](graph::Recorder& r,
          const auto& in) { return ops::reduce_from_tp_region(r, in[0], in[1]); }},
      {"gather_sequence",
       "one_rank",
       {{8, 5}},
       [](graph::Recorder& r, const auto& in) { return ops::gather_sequence(r, in[0], 1); }},
      {"scatter_sequence",
       "bias",
       {{8, 5}, {5}},
       [](graph::Recorder& r,
          const auto& in) { return ops::scatter_sequence(r, in[0], 1, in[1]); }},
  });
  return cases;
}

}  // namespace tfm::test
