#pragma once
// Building blocks of the model families, made from a configuration: embeddings, stacks of blocks
// and the output layer.
#include <optional>

#include "config/config.h"
#include "models/stages.h"
#include "nn/model.h"

namespace tfm::models {

// An empty parameter set of a model. Under ZeRO 2 and 3, and with numerics: deterministic, its
// segments end with layers, so that gradients and parameters are exchanged layer by layer.
nn::ParameterSet parameter_set(const config::Config& config, const comm::Mesh& mesh);

// An embedding table whose rows are sharded over tensor ranks.
class Vocabulary {
 public:
  Vocabulary(nn::Context& c, const std::string& name, std::int64_t size, std::int64_t width,
             double std, std::int64_t padding_idx = -1);
  graph::Value weight(graph::Recorder& r) const { return parameters_->record(r, index_); }
  // Scaled table rows of the ids; zero for ids of other tensor ranks, so the result must be
  // reduced.
  graph::Value partial(graph::Recorder& r, graph::Value ids, double scale) const;
  void use_at(nn::Context& c, int stage) const { c.parameters.use_at(index_, stage); }
  std::int64_t size() const { return size_; }
  std::int64_t begin() const { return begin_; }
  std::int64_t end() const { return end_; }

 private:
  const nn::ParameterSet* parameters_;
  int index_;
  std::int64_t size_, begin_, end_, padding_idx_;
};

// Sum of token, segment and position embeddings, then norm and dropout. Owns all tables except that
// of tokens.
class Embeddings {
 public:
  Embeddings(nn::Context& c, const config::ModelConfig& m, const std::string& prefix);
  // The result is outside the tensor-parallel region. `types` may be absent. In record_decode,
  // positions start at StepState::first_position.
  graph::Value operator()(nn::Recording& rec, const Vocabulary& tokens, graph::Value ids,
                          graph::Value types, const Rows& rows, bool training) const;

 private:
  graph::Value positions(nn::Recording& rec, graph::Value x,
                         const ops::ActivationRegion& place) const;

  nn::Context context_;
  config::ModelConfig config_;
  std::string prefix_;
  int position_ = -1;
  std::optional<Vocabulary> types_;
  std::optional<nn::Norm> norm_;
};

// The encoder output that the blocks of a decoder read.
struct EncoderOutput {
  graph::Value hidden;        // (B S, C), outside the tensor-parallel region
  graph::Value states;        // `hidden` inside the tensor-parallel region, on stages that read it
  graph::Value segments;      // (B S), negative: padding
  bool right_padded = false;  // padding comes after all real tokens
  Rows rows;
  std::vector<graph::Value> keys_values;  // of each block; if given, `states` is not read
};

// Blocks of self-attention, optional cross-attention and a feed-forward network; a final norm
// follows pre-norm blocks.
class Stack {
 public:
  // `first`: index of its first block among the blocks of all stacks.
  Stack(nn::Context& c, const Stages& stages, const config::ModelConfig& m,
        const std::string& prefix, std::int64_t first, std::int64_t layers, bool causal,
        bool cross);
  // x is on the stage of the first block, the result on that of the last one, both outside the
  // tensor-parallel region.
  graph::Value operator()(graph::Recorder& r, Relay& relay, graph::Value x, const Rows& rows,
                          const nn::AttentionContext& attention, EncoderOutput* encoder_output,
                          bool training) const;
  int first_stage() const { return stages_.of(first_); }
  bool here() const { return stages_.has(first_, std::ssize(blocks_)); }
  // One step of generation for new tokens; adds the caches to `rec`. Reads
  // encoder_output->keys_values.
  graph::Value step(nn::Recording& rec, graph::Value x, const EncoderOutput* encoder_output) const;
  // Keys and values of each block's cross-attention.
  std::vector<graph::Value> keys_values(graph::Recorder& r, graph::Value states) const;
  // Width of a block's keys and values on this rank.
  std::int64_t kv_width() const {
    return 2 * config_.n_kv_heads * config_.d_head / context_.shards;
  }

 private:
  struct Block {
    nn::Norm attention_norm;
    nn::SelfAttention attention;
    std::optional<nn::Norm> cross_norm;
    std::optional<nn::CrossAttention> cross;
    nn::Norm ffn_norm;
    nn::FeedForward ffn;
  };
  Block make_block(nn::Context& c, const std::string& name,
                   const std::vector<double>& rotary_frequency, std::int64_t layers, bool causal,
                   bool cross);
  nn::AttentionContext visible(graph::Recorder& r, nn::AttentionContext v, std::int64_t queries,
                               std::int64_t keys) const;
  graph::Value block(graph::Recorder& r, std::size_t l, graph::Value x, const Rows& rows,
                     const nn::AttentionContext& visible, const EncoderOutput* encoder_output,
                     bool training) const;

  nn::Context context_;
  Stages stages_;
  config::ModelConfig config_;
  std::string prefix_;
  std::int64_t first_;
  bool causal_;
  int relative_bias_ = -1;
  std::vector<Block> blocks_;
  std::optional<nn::Norm> final_norm_;
};

// Adds a cross-entropy loss to `rec`, whose input `field` is `labels`.
void record_cross_entropy(nn::Recording& rec, graph::Value x, graph::Value weight,
                          graph::Value bias, graph::Value labels, Field field, bool training,
                          ops::CrossEntropyOptions options);

// Output layer: logits of hidden states, or their loss.
class Head {
 public:
  Head(nn::Context& c, const Stages& stages, const config::ModelConfig& m, const Vocabulary* tied);
  // x: absent if another stage has the head. labelled: expected fraction of rows with a label.
  void record_loss(nn::Recording& rec, graph::Value x, graph::Value labels,
                   const config::LossConfig& loss, bool training, double labelled = 1) const;
  graph::Value logits(graph::Recorder& r, graph::Value x) const;
  const Vocabulary& vocabulary() const { return own_ ? *own_ : *tied_; }

 private:
  // Applies the transform, if any, and enters the tensor-parallel region.
  graph::Value ready(graph::Recorder& r, graph::Value x) const;
  graph::Value bias(graph::Recorder& r) const {
    return bias_ < 0 ? graph::Value{} : context_.parameters.record(r, bias_);
  }

  nn::Context context_;
  config::ModelConfig config_;
  const Vocabulary* tied_;
  std::optional<Vocabulary> own_;
  std::optional<nn::Linear> transform_;
  std::optional<nn::Norm> norm_;
  int bias_ = -1;
};

}  // namespace tfm::models
