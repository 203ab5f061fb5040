#pragma once
// What BART, M2M-100 and MarianMT share.
#include "huggingface/architecture.h"

namespace tfm::huggingface::bart_like {

// The defaults of vocab_size, pad_token_id and decoder_start_token_id.
config::ModelConfig read(const io::JsonNode& c, std::int64_t vocab_size, std::int64_t pad,
                         std::int64_t start);
// `shared`: tied tables are one table of both stacks, otherwise one each.
void read_heads(config::ModelConfig& m, const io::JsonNode& c, const Has& has, bool shared);
void write(Json& j, const config::ModelConfig& m);
// Except positions; before: with norms before sublayers, and of what stacks return.
Needs needs(const config::ModelConfig& m, bool before = false);
// `unshared`: whether the file may have a table of both stacks in addition to one of each.
void tensors(Table& t, const config::ModelConfig& m, bool unshared);
bool is_version(const std::string& tensor);  // a number that fairseq's models have
// Both stacks share one table where it is tied.
Architecture architecture(const char* name, decltype(Architecture::class_name) class_name,
                          decltype(Architecture::read) read, decltype(Architecture::needs) needs);

}  // namespace tfm::huggingface::bart_like
