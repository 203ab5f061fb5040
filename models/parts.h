#pragma once
// What the model families have before their stacks of layers, made from a configuration:
// parameters, vocabularies and embeddings.
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
  struct Inputs {
    graph::Value ids;
    graph::Value types = {};      // may be absent
    graph::Value positions = {};  // absent: those of the sequence
  };
  // The inputs of an encoder or decoder; empty if another stage has the embeddings.
  Inputs inputs(nn::Recording& rec, bool here) const;
  // The result is outside the tensor-parallel region. In record_decode, positions start at
  // StepState::first_position.
  graph::Value operator()(nn::Recording& rec, const Vocabulary& tokens, const Inputs& in,
                          const Rows& rows, bool training) const;

 private:
  graph::Value record(nn::Recording& rec, const Vocabulary& tokens, const Inputs& in,
                      const Rows& rows, bool training) const;
  bool has_table() const;  // of positions
  // x plus positions, which may be absent.
  graph::Value add_positions(nn::Recording& rec, graph::Value x, graph::Value positions,
                             const ops::ActivationRegion& place) const;
  double token_scale(DType dtype) const;  // of token embeddings

  nn::Context context_;
  config::ModelConfig config_;
  std::string prefix_;
  int position_ = -1;
  std::optional<Vocabulary> types_;
  std::optional<nn::Norm> norm_;
};

}  // namespace tfm::models
