#include "cases.h"

namespace tfm::test {
namespace {

using kernels::Activation;

OpCase attention_case(const std::string& name, std::int64_t heads, std::int64_t kv, bool causal, double dropout, bool alibi) {
  const std::int64_t D = 4, T = 4;
  return {"attention", name, {{8, (heads + 2 * kv) * D}}, [=](Recorder& r, const std::vector<Value>& in) {
            ops::AttentionOptions o{.heads = heads, .kv_heads = kv, .head_size = D, .sequence_length = T, .scale = 0.5, .causal = causal,
                                    .dropout = dropout, .heads_total = heads};
            if (alibi) o.alibi_slopes = {0.5, 0.25};
            return ops::attention(r, in[0], o);
          }};
}

OpCase activation_case(const std::string& name, Activation kind, bool gated) {
  return {"activation", name, {{8, 10}},
          [=](Recorder& r, const std::vector<Value>& in) { return ops::activation(r, in[0], kind, gated); }};
}

OpCase cross_entropy_case(const std::string& name, bool bias, double smoothing, std::int64_t chunk) {
  std::vector<Shape> inputs{{8, 5}, {7, 5}};
  if (bias) inputs.push_back({7});
  return {"cross_entropy", name, inputs, [=](Recorder& r, const std::vector<Value>& in) {
            return ops::linear_cross_entropy(r, in[0], in[1], bias ? in[2] : Value{}, r.input("ids", {8}, DType::i32),
                                             {.vocab_size = 7, .vocab_begin = 0, .vocab_end = 7, .smoothing = smoothing, .chunk_rows = chunk});
          }};
}

const ops::Place kPlace{.sequence_length = 4, .cols_total = 5};

}  // namespace

const std::vector<OpCase>& op_cases() {
  static const std::vector<OpCase> cases{
      {"linear", "bias", {{8, 5}, {3, 5}, {3}}, [](Recorder& r, const auto& in) { return ops::linear(r, in[0], in[1], in[2]); }},
      {"linear", "plain", {{8, 5}, {3, 5}}, [](Recorder& r, const auto& in) { return ops::linear(r, in[0], in[1]); }},
      {"norm", "layernorm", {{8, 5}, {5}, {5}}, [](Recorder& r, const auto& in) { return ops::norm(r, in[0], {}, in[1], in[2]); }},
      {"norm", "layernorm_no_shift", {{8, 5}, {5}}, [](Recorder& r, const auto& in) { return ops::norm(r, in[0], {}, in[1]); }},
      {"norm", "rmsnorm", {{8, 5}, {5}}, [](Recorder& r, const auto& in) { return ops::norm(r, in[0], {1e-6, true}, in[1]); }},
      activation_case("relu", Activation::relu, false),
      activation_case("gelu", Activation::gelu, false),
      activation_case("gelu_tanh", Activation::gelu_tanh, false),
      activation_case("silu", Activation::silu, false),
      activation_case("swiglu", Activation::silu, true),
      activation_case("geglu", Activation::gelu_tanh, true),
      {"residual", "plain", {{8, 5}, {8, 5}}, [](Recorder& r, const auto& in) { return ops::dropout_add(r, in[0], in[1], 0, kPlace); }},
      {"residual", "dropout", {{8, 5}, {8, 5}}, [](Recorder& r, const auto& in) { return ops::dropout_add(r, in[0], in[1], 0.4, kPlace); }},
      {"residual", "same_input_twice", {{8, 5}}, [](Recorder& r, const auto& in) { return ops::dropout_add(r, in[0], in[0], 0.4, kPlace); }},
      {"dropout", "dropout", {{8, 5}}, [](Recorder& r, const auto& in) { return ops::dropout_add(r, in[0], {}, 0.4, kPlace); }},
      {"embedding", "scaled", {{7, 5}},
       [](Recorder& r, const auto& in) { return ops::embedding(r, r.input("ids", {8}, DType::i32), in[0], {0, 7, 1.5}); }},
      {"embedding", "part_of_vocabulary", {{4, 5}},
       [](Recorder& r, const auto& in) { return ops::embedding(r, r.input("ids", {8}, DType::i32), in[0], {2, 5, 1}); }},
      {"position", "learned", {{8, 5}, {6, 5}}, [](Recorder& r, const auto& in) { return ops::add_position(r, in[0], in[1], kPlace); }},
      {"rotary", "two_heads", {{8, 18}},
       [](Recorder& r, const auto& in) { return ops::rotary(r, in[0], {2, 6, {1.0, 0.3, 0.01}, 4}); }},
      attention_case("causal", 2, 2, true, 0, false),
      attention_case("full", 2, 2, false, 0, false),
      attention_case("grouped", 4, 2, true, 0, false),
      attention_case("multi_query_dropout", 3, 1, true, 0.3, false),
      attention_case("alibi", 2, 2, true, 0, true),
      cross_entropy_case("plain", false, 0, 0),
      cross_entropy_case("bias_smoothing", true, 0.1, 0),
      cross_entropy_case("chunks", true, 0.1, 3),
      {"copy_to_tensor", "one_rank", {{8, 5}}, [](Recorder& r, const auto& in) { return ops::copy_to_tensor(r, in[0]); }},
      {"reduce_from_tensor", "bias", {{8, 5}, {5}}, [](Recorder& r, const auto& in) { return ops::reduce_from_tensor(r, in[0], in[1]); }},
      {"gather_sequence", "one_rank", {{8, 5}}, [](Recorder& r, const auto& in) { return ops::gather_sequence(r, in[0], 1); }},
      {"scatter_sequence", "bias", {{8, 5}, {5}}, [](Recorder& r, const auto& in) { return ops::scatter_sequence(r, in[0], 1, in[1]); }},
  };
  return cases;
}

}  // namespace tfm::test
