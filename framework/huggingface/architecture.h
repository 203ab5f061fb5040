#pragma once
// A model type of Hugging Face's transformers (versions 4 and 5): how its config.json and its
// tensors are read and written. Each has a file of its own; architecture.cpp lists them.
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "huggingface/label_heads.h"
#include "huggingface/members.h"
#include "huggingface/tensors.h"

namespace tfm::huggingface {

// Whether a directory has the tensor.
using Has = std::function<bool(const std::string& tensor)>;

// What a model must be for a class to compute it, and where it is not.
struct Needs {
  struct Need {
    bool met;
    const char* what;  // "norm: rmsnorm", with keys of the model section
  };
  Needs(std::initializer_list<Need> needs) {
    for (const Need& n : needs)
      if (!n.met) unmet.push_back(n.what);
  }
  friend Needs operator+(Needs a, const Needs& b) {
    a.unmet.insert(a.unmet.end(), b.unmet.begin(), b.unmet.end());
    return a;
  }
  std::vector<const char*> unmet;
};

// What few architectures have, and all others need a model not to have.
enum class Feature : std::uint8_t {
  gemma,  // soft caps, another scale of scores, rounded scales of embeddings
  norm_plus_one,
  norm_eps_outside,
  load_bias,  // of experts, and groups of them
  sinks,
  clamped_gates,
  router_bias,
  expert_capacity,
  partial_rotary,
  longrope,
  sinusoid_offset,
  output_gate,
  global_tokens,
  blocks,
  own_attention,  // keys that no architecture has
  tensor2tensor
};

// Which layers may have windows of attention (attention.window): all alike, or some, of one width;
// or each one of its own.
enum class Windows : std::uint8_t { none, alike, some, any };

struct Architecture {
  const char* name;  // model_type of config.json
  config::Family family;
  // architectures of config.json, for a model without heads for labels
  std::string (*class_name)(const config::ModelConfig& model);

  config::ModelConfig (*read)(const io::JsonNode& config);
  // Sets what is tied and which heads there are, where that depends on the tensors present.
  void (*read_heads)(config::ModelConfig& model, const io::JsonNode& config, const Has& has);
  void (*write)(Json& config, const config::ModelConfig& model);
  Needs (*needs)(const config::ModelConfig& model);

  void (*tensors)(Table& table, const config::ModelConfig& model);
  // Prefix of the base model's tensors, which files of it alone leave out, and of all others.
  const char* base;
  std::vector<const char*> heads;
  // Names under which transformers has one tensor. It writes the first; files may have any.
  std::vector<std::vector<std::string>> (*tied)(const config::ModelConfig& model);
  // Whether the model does not use the tensor.
  bool (*is_buffer)(const std::string& tensor);
  // Whether it is a buffer of sinusoidal positions, which transformers reads and tfm computes.
  bool (*is_sinusoid)(const std::string& tensor) = [](const std::string&) { return false; };
  // A tensor that transformers adds and does not train; if it is all zeros, it counts as absent.
  const char* constant = "";

  Windows windows = Windows::none;
  bool has_experts = false, some_experts = false;  // in all layers; in any
  std::vector<Feature> has = {};
  bool local_rope = false;             // layers with windows have a rope of their own
  bool first_norm = true;              // false: attention of the first layer has no norm before it
  bool mxfp4 = false;                  // files may have weights of this type
  const char* recurrent = nullptr;     // attention.type of some layers instead of attention
  const char* mixer = "softmax";       // attention.type
  const LabelHeads* labels = nullptr;  // its classes that have a head for labels; null: none
  // The class without a head; null: BertModel of BertForMaskedLM, GPT2Model of GPT2LMHeadModel.
  const char* headless = nullptr;

  // The name in this class, as transformers maps it: older names, and names of the base model.
  std::string current_name(std::string tensor) const;
  // The name under which transformers writes it: without `base` where the class is that alone.
  std::string written_name(const config::ModelConfig& model, const std::string& tensor) const;
  std::vector<ExchangedTensor> exchanged(const config::ModelConfig& model) const;
  std::string class_of(const config::ModelConfig& model) const;
  // Whether a tensor is of a head that the model does not have, another one in its place.
  bool of_another_head(const config::ModelConfig& model, const std::string& tensor) const;
  // The first other name of a tied tensor that `has` knows; "" if there is none.
  std::string original_in(const config::ModelConfig& model, const std::string& tensor,
                          const Has& has) const;
};

// The architecture that config.json names; Error(input) if its model_type is unknown.
const Architecture& architecture_of(const io::JsonNode& config);
// An architecture that computes the model: `preferred` if that does, as several may. Error(usage)
// if none does, with what the nearest would need.
const Architecture& architecture_for(const config::ModelConfig& model,
                                     std::string_view preferred = {});

// Whether the output layer is the embedding: as the configuration says; where it does not say,
// `otherwise`, or that the output layer is absent.
bool output_is_tied(const io::JsonNode& config, bool otherwise, const Has& has,
                    const char* output = "lm_head.weight");
bool matches(std::string_view name, std::string_view pattern);  // `#`: one or more digits
// Queries, keys and values have biases as the other layers do, and no norms.
Needs plain_attention(const config::ModelConfig& model);
// Feed-forward networks have biases as the other layers do.
Needs plain_ffn(const config::ModelConfig& model);
// The heads together are as wide as the model and have keys and values of their own.
Needs full_heads(const config::ModelConfig& model);

}  // namespace tfm::huggingface
