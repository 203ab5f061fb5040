#pragma once
// What BART and MarianMT share.
#include "huggingface/architecture.h"

namespace tfm::huggingface::bart_like {

config::ModelConfig read(const io::JsonNode& c, std::int64_t vocab_size, std::int64_t pad);
// `shared`: tied tables are one table of both stacks, otherwise one each. `decoder_may_tie`: the
// output may be tied to the decoder's own table.
void read_heads(config::ModelConfig& m, const io::JsonNode& c, const Has& has, bool shared,
                bool decoder_may_tie);
void write(Json& j, const config::ModelConfig& m);
Needs needs(const config::ModelConfig& m);  // except positions
// `unshared`: whether the file may have a table of both stacks in addition to one of each.
void tensors(Table& t, const config::ModelConfig& m, bool unshared);
std::string original_of(const std::string& tensor);

}  // namespace tfm::huggingface::bart_like
