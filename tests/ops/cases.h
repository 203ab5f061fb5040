#pragma once
// One case for every op and option that changes its arithmetic. The harness derives all checks from
// this list.
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "core/batch.h"
#include "ops/experts.h"
#include "ops/gated_delta.h"
#include "ops/head_shares.h"
#include "ops/latent.h"
#include "ops/linear_attention.h"
#include "ops/losses.h"
#include "ops/ops.h"

namespace tfm::test {

struct OpCase {
  std::string kind;  // Op::kind() of the op under test
  std::string name;
  std::vector<Shape> inputs;  // differentiable inputs, filled with random numbers
  std::function<graph::Value(graph::Recorder&, const std::vector<graph::Value>&)> build;
  std::size_t activations = 1;  // of the inputs, the first ones; the others are parameters
  // Gradients are sums that cancel of what outputs rounded to 16 bits say: as precise as those.
  bool cancels = false;
};

// What int32 inputs of the cases hold, by their name, as far as their shape reaches.
inline const std::map<std::string, std::vector<std::int32_t>> kIntegers{
    {"few", {-1, 3, -1, -1, -1, -1, 6, 0}},
    {"ids", {3, 0, 6, 3, -1, 5, 2, 1}},  // and labels
    {"numbers",
     {number_element(0.5f), kNoNumber, number_element(-1.25f), number_element(2), kNoNumber,
      number_element(-3), number_element(0), number_element(0.1f)}},
    {"documents", {1, -1, 0, -1, -1, -1, 2, -1}},
    {"next_of_pairs", {0, -1, 1, -1, 0, -1, 1, -1}},
    {"of_triples", {2, -1, -1, 0, -1, -1}},
    {"prefixes", {3, 2}},
    {"padding", {-1, 0, 0, -1, 0, 0, -1, 0, 0, -1, 0, 0, 0, -1}},
    {"segments", {1, 1, 3, 1, -1, 3, 7, 3, 1, 7, 7, 1, 1, -1, 7, 1}},
};

const std::vector<OpCase>& op_cases();

}  // namespace tfm::test
