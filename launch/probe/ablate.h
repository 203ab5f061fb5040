#pragma once
// Hidden units of feed-forward networks and heads of attention that are put to zero. Nothing but a
// projection reads them, so what is put to zero are the columns of its weight.
#include <string>
#include <vector>

#include "config/config.h"
#include "train/engine.h"

namespace tfm::launch {

struct Ablation {
  std::string part;                   // "layers.3.ffn"
  std::string weight;                 // "layers.3.ffn.down.weight"
  std::int64_t width = 1, count = 0;  // columns of each; units or heads of the part
  std::vector<std::int64_t> which;    // empty: each of them on its own
};
// From "PART:unit=I,..." and "PART:head=I,...", or `all` of them. Error(usage) for a part, a unit
// or a head that is not there, with the nearest part.
Ablation ablation_of(const std::string& text, const config::Config& config);

// The columns [first, first + count) of a weight are zero in its lifetime. On all ranks, each of
// which has its part of them.
class ZeroColumns {
 public:
  ZeroColumns(train::Engine& engine, const std::string& weight, std::int64_t first,
              std::int64_t count);
  ~ZeroColumns();
  ZeroColumns(const ZeroColumns&) = delete;
  ZeroColumns& operator=(const ZeroColumns&) = delete;

 private:
  train::Engine& engine_;
  const nn::PartSlice* slice_ = nullptr;  // null: other ranks have the weight
  std::vector<float> before_;
};

}  // namespace tfm::launch
