#pragma once
// The configuration of a model, apart from the run that trains it.
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "config/attention_config.h"
#include "config/experts_config.h"
#include "config/head_config.h"
#include "config/position_config.h"

namespace tfm::config {

// A single number in the configuration sets the first four, and `output` if it is not 0.
struct DropoutConfig {
  double embedding = 0, attention = 0, residual = 0, ffn = 0, output = 0;
  bool operator==(const DropoutConfig&) const = default;
};
// One layer: a mixer of positions, a feed-forward network, and their norms.
struct LayerConfig {
  AttentionConfig attention;
  std::int64_t n_heads = 0;
  std::int64_t n_kv_heads = 0;          // 0 when read: filled with n_heads
  std::int64_t d_head = 0;              // filled with d_model / n_heads
  Switch qkv_bias = Switch::automatic;  // automatic: as bias
  QkNorm qk_norm = QkNorm::none;        // of queries and keys, before rotary positions
  bool scale_attention = true;
  Position position = Position::learned;  // learned and sinusoidal: added to the embeddings
  RopeConfig rope;
  std::int64_t d_ff = 0;  // filled with 4 d_model
  Activation activation = Activation::gelu_tanh;
  Switch ffn_bias = Switch::automatic;  // automatic: as bias
  ExpertsConfig experts;
  Norm norm = Norm::layernorm;
  NormPosition norm_position = NormPosition::pre;
  bool attention_norm = true;  // false: attention reads the layer's input itself
  double norm_eps = 1e-5;
  bool norm_plus_one = false;     // norms multiply by 1 + weight
  bool norm_eps_outside = false;  // of the root: norms divide by the deviation plus norm_eps
  bool bias = true;
  DropoutConfig dropout;  // `embedding` and `output` are the stack's: kinds do not differ in them
  bool has_qkv_bias() const {
    return qkv_bias == Switch::automatic ? bias : qkv_bias == Switch::yes;
  }
  bool has_ffn_bias() const {
    return ffn_bias == Switch::automatic ? bias : ffn_bias == Switch::yes;
  }
  std::int64_t query_scalar() const {
    return attention.query_scalar > 0 ? attention.query_scalar : d_head;
  }
  bool gated() const {
    return activation >= Activation::swiglu;  // and those behind it
  }
  bool operator==(const LayerConfig&) const = default;
};
struct LayerKind {
  std::string name;
  LayerConfig layer;
  bool operator==(const LayerKind&) const = default;
};
// The keys of a layer are what all layers have, unless their kind differs.
struct ModelConfig : LayerConfig {
  Family family = Family::unset;
  std::string preset;
  std::string init = "random";
  std::int64_t vocab_size = 0;         // required, here or by the preset
  std::int64_t source_vocab_size = 0;  // encoder_decoder: of the encoder's own table; 0: the same
  std::int64_t d_model = 0, n_layers = 0;
  std::int64_t n_encoder_layers = 0, n_decoder_layers = 0;  // encoder_decoder: filled with n_layers
  std::vector<LayerKind> layer_kinds;
  // Kinds of a stack's layers, repeated until it is full; empty: its layers are all alike.
  std::vector<std::string> layers, encoder_layers, decoder_layers;
  ExpertLayersConfig expert_layers;
  RouterLossConfig router_loss;
  std::int64_t max_seq_len = 0;      // filled with train.seq_len
  std::int64_t position_offset = 0;  // learned: row of the first position
  Sinusoid sinusoid = Sinusoid::interleaved;
  RelativeConfig relative;  // of all layers with position relative: a stack has one table
  LongRopeConfig longrope;
  TieEmbeddings tie_embeddings = TieEmbeddings::yes;
  ScaleEmbeddings scale_embeddings = ScaleEmbeddings::no;
  bool embedding_norm = false;
  std::int64_t decoder_start = -1;  // id that begins a target; -1: the tokenizer's
  // Id whose embedding gets no gradient as an input; -1: none.
  std::int64_t padding_idx = -1;
  std::int64_t type_vocab_size = 0;  // encoder: number of segment types; 0: no table
  bool head_transform = false;       // encoder: dense, activation and norm before the head
  std::vector<HeadConfig> heads{{}};
  HeadBias head_bias = HeadBias::automatic;  // automatic: as bias unless the head is tied
  bool scale_logits = false;
  double softcap = 0;  // of the logits of tokens; 0: none
  double init_std = 0.02;
  bool random_init() const { return init == "random"; }
  bool encodes() const { return family != Family::decoder; }
  bool decodes() const { return family != Family::encoder; }
  bool translates() const { return family == Family::encoder_decoder; }
  // Rows of the embedding that reads source_ids.
  std::int64_t source_vocabulary() const {
    return source_vocab_size > 0 ? source_vocab_size : vocab_size;
  }
  std::int64_t total_layers() const {
    return translates() ? n_encoder_layers + n_decoder_layers : n_layers;
  }
  // Null: there is none of this name, or of this type besides that of `next_sentence`.
  const HeadConfig* head(std::string_view name) const;
  const HeadConfig* head_of_type(std::string_view type) const;
  // Those that learn columns of labelled data.
  std::vector<const HeadConfig*> labelled_heads() const;
  bool embeds() const { return head_of_type("embed") != nullptr; }
  bool next_sentence() const { return head(kNextSentence) != nullptr; }
  void set_next_sentence(bool on);
  bool tied_head() const {
    using enum TieEmbeddings;
    return tie_embeddings == yes || tie_embeddings == all || tie_embeddings == decoder;
  }
  // The layers of each stack in order, an encoder_decoder's encoder first.
  std::vector<std::vector<LayerConfig>> stacks() const;
  // Reduces a stack to these of its layers, in ascending order.
  void keep_layers(std::size_t stack, const std::vector<std::size_t>& kept);
  // Reduces every stack to its first layers: `least` of them or more, all that it has where it has
  // fewer, with one of each kind.
  void shorten(std::int64_t least);
  // The configurations that layers have, each once, with the paths of their keys ("model.").
  std::vector<std::pair<std::string, const LayerConfig*>> kinds_in_use() const;
  std::int64_t layers_with_experts() const;
  bool uniform() const;        // all layers have the model's own keys
  bool drops() const;          // some dropout or jitter is on
  bool sees_prefixes() const;  // some layer has attention.prefix
  void set_dropout(const DropoutConfig& everywhere);
  // Calls f(layer) for the model's own keys of a layer and for each kind.
  template <class F>
  void for_each_kind(F&& f) {
    f(static_cast<LayerConfig&>(*this));
    for (LayerKind& k : layer_kinds) f(k.layer);
  }
  bool has_head_bias() const {
    return head_bias == HeadBias::automatic ? bias && !tied_head() : head_bias != HeadBias::no;
  }
  bool operator==(const ModelConfig&) const = default;

 private:
  std::vector<std::string>& pattern_of(std::size_t stack);
  // Describes the same layers by a kind for each that differs, and their patterns.
  void name_all_kinds();
};

// Reports a broken rule: the dotted keys involved ("model.n_heads"), the likeliest culprit first;
// what is wrong, with the arithmetic and the legal values; help.
using Report = std::function<void(const std::vector<std::string>& keys, const std::string& message,
                                  const std::string& help)>;

// Fills the values that are derived from others: n_kv_heads, d_head, d_ff, the layers of each
// stack, and max_seq_len from `seq_len`.
void fill_derived(ModelConfig& model, std::int64_t seq_len);
// Checks the range of each value and every rule between values, whatever trains the model.
void check_model(const ModelConfig& model, const Report& report);

}  // namespace tfm::config
