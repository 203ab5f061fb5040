#pragma once
// What a parameter is: the names and shapes of its parts, placement, initial values.
//
// A parameter may hold several named parts stacked along its rows (query, key and value; gate and
// up), so that one product serves them all. Users see only the parts (checkpoints, exchange with
// other programs, tests).
#include <string>
#include <vector>

#include "nn/placement.h"

namespace tfm::nn {

struct Init {
  // log_uniform: the logarithm of a number that is drawn evenly from [0.01, value).
  enum class Kind : std::uint8_t { normal, constant, log_uniform } kind = Kind::constant;
  double value = 0;  // standard deviation, constant or limit
};

struct PartSpec {
  std::string name;
  std::int64_t rows = 0;  // of the whole part
  // The part begins with the values of rows from `first_row` on of a part of this name, so that
  // many parts take one random stream; empty: its own.
  std::string initial = {};
  std::int64_t first_row = 0;
  const std::string& drawn_as() const { return initial.empty() ? name : initial; }
};

struct ParameterSpec {
  std::vector<PartSpec> parts;
  std::int64_t cols = 0;   // 0: a vector
  Placements placement{};  // of the weights; never partial
  Init init;
  // false: it gets no gradient and no update, and has no optimizer state (a buffer of PyTorch, or a
  // parameter with requires_grad=False).
  bool trained = true;
  // true: its gradient is the error of the load of experts (kernels::LoadErrorArgs), which is no
  // part of the norm, and optim::make_load_rule() updates it instead of the optimizer's rule.
  bool evens_load = false;
  bool decay = false;   // weight decay applies
  bool hidden = false;  // a matrix between embeddings and head, which Muon updates as a whole
  // Axes along which each rank has only a term of the gradient (from its rows or heads), in
  // addition to kTokenAxes, where this holds for every parameter that all ranks along them have.
  comm::AxisSet partial{};
  // Pipeline rank that owns it, and those that borrow it (ParameterSet::use_at()).
  int stage = 0;
  std::vector<int> borrowers = {};

  std::int64_t elements() const;  // of the whole parameter, without padding
  Placements gradient() const;
  // Axes along which ranks hold the same weights, and the same without those along which ZeRO
  // shards the state that belongs to them.
  comm::AxisSet copies() const { return axes_with(placement, Placement::replicate); }
  comm::AxisSet copies_of_shares(const comm::Layout& layout) const {
    return copies() - layout.shared(axes_with(gradient(), Placement::partial));
  }
};

}  // namespace tfm::nn
