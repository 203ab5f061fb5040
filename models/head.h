#pragma once
// Heads: what a model predicts from the hidden states of its last layer, and their terms of the
// loss. All are on the last stage.
#include <map>
#include <memory>
#include <string>

#include "models/parts.h"
#include "models/stages.h"
#include "ops/losses.h"

namespace tfm::models {

class Head {
 public:
  virtual ~Head() = default;
  // Adds a term of the loss to `rec`. x: hidden states (tokens, C) outside the tensor-parallel
  // region; absent if another stage has the heads.
  virtual void record_loss(nn::Recording& rec, graph::Value x, bool training) const = 0;
  // Logits of what it predicts, (rows, this tensor rank's share of the classes); of one number
  // (rows, 1), and of a vector (rows, C), on each.
  virtual graph::Value logits(nn::Recording& rec, graph::Value x) const = 0;
};

// What a head is made from.
struct HeadSpec {
  nn::Context& context;
  const config::ModelConfig& model;
  const config::HeadConfig& head;
  const config::LossConfig& loss;
  const Vocabulary* tied;         // the embedding that is the output layer, too; null: none
  comm::AxisSet batch_axes = {};  // of the ranks that have other sequences of a batch
  int batch_ranks = 1;
};
using MakeHead = std::unique_ptr<Head> (*)(const HeadSpec& spec);
// The table of heads by type.
std::map<std::string_view, MakeHead>& heads();
// A further type of model.heads, to be added before a configuration is read. `type` must live as
// long as the program.
void add_head(std::string_view type, MakeHead make);
std::unique_ptr<Head> make_lm_head(const HeadSpec& spec);
std::unique_ptr<Head> make_classifier(const HeadSpec& spec);  // types classify and tag
std::unique_ptr<Head> make_regression(const HeadSpec& spec);
std::unique_ptr<Head> make_embedding(const HeadSpec& spec);

// Adds a cross-entropy term to `rec`, whose input `field` is `labels`.
void record_cross_entropy(nn::Recording& rec, const config::HeadConfig& head, graph::Value x,
                          graph::Value weight, graph::Value bias, graph::Value labels, Field field,
                          bool training, ops::CrossEntropyOptions options);

}  // namespace tfm::models
