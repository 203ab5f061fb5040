#include "models/layer_parts.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "models/rope.h"
#include "nn/attention.h"
#include "nn/experts.h"
#include "nn/feed_forward.h"
#include "nn/gated_delta.h"
#include "nn/latent_attention.h"
#include "nn/linear_attention.h"
#include "nn/mamba.h"

namespace tfm::models {
namespace {

// GPT-2's rule: projections into a residual stream without norms start smaller, by sqrt of their
// number.
double output_std(const nn::Context& c, const config::LayerConfig& l, const StackInfo& stack) {
  const std::int64_t sublayers = stack.layers * (stack.cross ? 3 : 2);
  return l.norm_position == config::NormPosition::pre
             ? c.init_std / std::sqrt(static_cast<double>(sublayers))
             : c.init_std;
}

std::optional<nn::HeadNorm::Options> qk_norm_of(const config::LayerConfig& l) {
  if (l.qk_norm == config::QkNorm::none) return std::nullopt;
  return nn::HeadNorm::Options{norm_of(l), l.qk_norm == config::QkNorm::whole};
}

nn::AttentionOptions attention_options(const nn::Context& c, const config::LayerConfig& l,
                                       const StackInfo& stack) {
  return {.width = stack.d_model,
          .heads = l.n_heads,
          .kv_heads = l.n_kv_heads,
          .head_size = l.d_head,
          .qkv_bias = l.has_qkv_bias(),
          .bias = l.bias,
          .qk_norm = qk_norm_of(l),
          .sinks = l.attention.sinks,
          .scale = l.scale_attention ? 1 / std::sqrt(static_cast<double>(l.query_scalar())) : 1.0,
          .softcap = l.attention.softcap,
          .dropout = l.dropout.attention,
          .output_std = output_std(c, l, stack)};
}

// The keys that a query of self-attention sees; `name` is that of the layer's attention.
Visibility visible_keys(const config::LayerConfig& l, const StackInfo& stack,
                        const std::string& name) {
  const std::int64_t window = l.attention.window;
  Visibility v = stack.causal ? Visibility::causal() : Visibility{};
  if (window > 0) v.left = std::min(stack.causal ? window - 1 : window / 2, v.left);
  if (window > 0 && !stack.causal) v.right = v.left;
  const config::BlocksConfig& blocks = l.attention.blocks;
  const config::StridedConfig& strided = l.attention.strided;
  using Landmarks = decltype(v.beyond);
  if (blocks.size > 0) v.left = 1, v.right = stack.causal ? 0 : 1;
  if (blocks.size > 0 || window > 0)  // else all see all
    v.beyond = {.causal = stack.causal,
                .first = std::max(l.attention.global_tokens, blocks.size),
                .step = strided.step,
                .steps = strided.reach > 0 ? strided.reach / strided.step : Landmarks::kNever,
                .block = blocks.size,
                .random = blocks.random,
                .repeats = blocks.others == config::OtherBlocks::first,
                .key = {static_cast<std::uint64_t>(blocks.seed), Purpose::init,
                        stream_of(name + ".blocks")}};
  return v;
}

std::unique_ptr<nn::Mixer> make_attention(nn::Context& c, const std::string& name,
                                          const config::LayerConfig& l, const StackInfo& stack) {
  return std::make_unique<nn::SelfAttention>(
      c, name,
      nn::SelfAttention::Options{
          attention_options(c, l, stack), visible_keys(l, stack, name),
          rotary_of(l, stack.longrope, l.d_head), l.position == config::Position::alibi,
          l.position == config::Position::relative, l.attention.output_gate,
          l.attention.global_projections ? l.attention.global_tokens : 0, l.attention.prefix});
}

std::unique_ptr<nn::Mixer> make_latent(nn::Context& c, const std::string& name,
                                       const config::LayerConfig& l, const StackInfo& stack) {
  const config::AttentionConfig& a = l.attention;
  nn::AttentionOptions options = attention_options(c, l, stack);
  options.scale *= latent_score_factor(l.rope);
  return std::make_unique<nn::LatentAttention>(
      c, name,
      nn::LatentAttention::Options{options, visible_keys(l, stack, name), a.q_rank, a.kv_rank,
                                   a.rope_size, a.value_size,
                                   rotary_of(l, stack.longrope, a.rope_size)});
}

template <class RecurrentMixer>
std::unique_ptr<nn::Mixer> make_recurrence(nn::Context& c, const std::string& name,
                                           const config::LayerConfig& l, const StackInfo& stack) {
  const config::AttentionConfig& a = l.attention;
  TFM_CHECK(stack.causal, "states pass from position to position");
  return std::make_unique<RecurrentMixer>(
      c, name,
      nn::Recurrence::Options{.width = stack.d_model,
                              .sizes = {a.key_heads, l.n_heads, l.d_head, a.value_size},
                              .convolution = a.convolution,
                              .qkv_bias = l.has_qkv_bias(),
                              .bias = l.bias,
                              .norm_eps = l.norm_eps,
                              .output_std = output_std(c, l, stack)});
}

std::unique_ptr<nn::Mixer> make_linear(nn::Context& c, const std::string& name,
                                       const config::LayerConfig& l, const StackInfo& stack) {
  return std::make_unique<nn::LinearAttention>(
      c, name,
      nn::LinearAttention::Options{.width = stack.d_model,
                                   .sizes = {l.n_heads, l.d_head, stack.causal},
                                   .qkv_bias = l.has_qkv_bias(),
                                   .bias = l.bias,
                                   .output_std = output_std(c, l, stack)});
}

std::map<std::string_view, MakeMixer>& mixers() {
  static std::map<std::string_view, MakeMixer> all{{"softmax", make_attention},
                                                   {"latent", make_latent},
                                                   {"linear", make_linear},
                                                   {"gated_delta", make_recurrence<nn::GatedDelta>},
                                                   {"mamba2", make_recurrence<nn::Mamba>}};
  return all;
}

}  // namespace

kernels::Activation activation_of(config::Activation activation) {
  switch (activation) {
    case config::Activation::relu:
      return kernels::Activation::relu;
    case config::Activation::gelu:
    case config::Activation::geglu_exact:
      return kernels::Activation::gelu;
    case config::Activation::gelu_tanh:
    case config::Activation::geglu:
      return kernels::Activation::gelu_tanh;
    case config::Activation::silu:
    case config::Activation::swiglu:
      return kernels::Activation::silu;
    case config::Activation::clamped_swiglu:
      return kernels::Activation::clamped;
  }
  internal_error("unhandled enum value");
}

nn::Norm::Options norm_of(const config::LayerConfig& l) {
  return {l.norm == config::Norm::rmsnorm, l.bias, l.norm_eps, l.norm_plus_one, l.norm_eps_outside};
}

void add_mixer(std::string_view type, MakeMixer make) {
  TFM_CHECK(mixers().emplace(type, make).second, "two mixers are " + std::string(type));
  config::mixer_types().push_back(type);
}

std::unique_ptr<nn::Mixer> make_mixer(nn::Context& c, const std::string& name,
                                      const config::LayerConfig& l, const StackInfo& stack) {
  return mixers().at(l.attention.type)(c, name, l, stack);
}

std::unique_ptr<nn::Mixer> make_cross_attention(nn::Context& c, const std::string& name,
                                                const config::LayerConfig& l,
                                                const StackInfo& stack) {
  return std::make_unique<nn::CrossAttention>(
      c, name, nn::CrossAttention::Options{attention_options(c, l, stack), stack.d_model});
}

std::unique_ptr<nn::Ffn> make_ffn(nn::Context& c, const std::string& name,
                                  const config::LayerConfig& l, const StackInfo& stack) {
  nn::FeedForward::Options network{.width = stack.d_model,
                                   .hidden = l.d_ff,
                                   .activation = activation_of(l.activation),
                                   .gated = l.gated(),
                                   .bias = l.has_ffn_bias(),
                                   .dropout = l.dropout.ffn,
                                   .output_std = output_std(c, l, stack)};
  const config::ExpertsConfig& e = l.experts;
  if (e.count == 0) return std::make_unique<nn::FeedForward>(c, name, network);
  network.hidden = e.d_ff;
  return std::make_unique<nn::Experts>(
      c, name,
      nn::Experts::Options{.router = {.experts = e.count,
                                      .top_k = e.top_k,
                                      .sigmoid = e.router == config::Router::sigmoid,
                                      .normalize = e.normalize,
                                      .scale = e.scale,
                                      .rows = {},
                                      .capacity = e.capacity,
                                      .groups = e.groups,
                                      .top_groups = e.top_groups},
                           .router_bias = e.router_bias,
                           .load_bias = stack.biased_routers,
                           .jitter = e.jitter,
                           .expert = network,
                           .shared_hidden = e.shared_d_ff,
                           .shared_gate = e.shared_gate,
                           .capacity_factor = e.capacity_factor});
}

}  // namespace tfm::models
