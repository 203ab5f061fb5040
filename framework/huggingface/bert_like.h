#pragma once
// What BERT and RoBERTa share, and DistilBERT in part.
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

}  // namespace tfm::huggingface::bert_like
