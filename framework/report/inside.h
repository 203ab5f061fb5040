#pragma once
// The inside of a model, from the tensors that tfm-probe writes.
#include <string>

#include "tokenizer/tokenizer.h"

namespace tfm::report {

// Pictures of the first sequence: the weights of attention of each head, tensors attention.* (B, H,
// T, S), and the norm of the residual stream by layer, of layers.*.output (B, T, C). Queries are
// named by the ids in the file or, with a tokenizer, by their texts. Error(input) if the file has
// neither.
std::string inside(const std::string& path, const tokenizer::Tokenizer* tokenizer);

}  // namespace tfm::report
