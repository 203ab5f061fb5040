#pragma once
// What BERT, BigBird, RoBERTa and Longformer share, and DistilBERT in part.
#include "huggingface/architecture.h"

namespace tfm::huggingface::bert_like {

struct Names {
  const char *base, *head;   // prefixes of tensors
  const char *dense, *norm;  // of the head
};

config::ModelConfig plain();  // what all of them are
config::ModelConfig read(const io::JsonNode& c, std::int64_t vocab_size, std::int64_t pad);
void write(Json& j, const config::ModelConfig& m);
Needs plain_needs(const config::ModelConfig& m);  // except positions and segments
Needs needs(const config::ModelConfig& m);        // except positions
void tensors(Table& t, const config::ModelConfig& m, const Names& names);
std::vector<std::vector<std::string>> tied(const config::ModelConfig& m, const std::string& base,
                                           const std::string& head);

// The heads of BERT's pretraining: masked tokens and, where a file has it, the next sentence.
// `pooler`: its tensor.
void read_pretraining_heads(config::ModelConfig& m, const io::JsonNode& c, const Has& has);
void pretraining_tensors(Table& t, const config::ModelConfig& m, const char* pooler);
std::vector<std::vector<std::string>> pretraining_tied(const config::ModelConfig& m);

}  // namespace tfm::huggingface::bert_like
