#pragma once
// A forward pass of tfm-probe that keeps what is asked for, at any layout.
#include "inference/forward.h"
#include "launch/probe/batch.h"
#include "launch/probe/contents.h"
#include "train/engine.h"

namespace tfm::launch {

// A tensor of the output file, the same on every rank.
struct OutputTensor {
  std::string name;
  std::vector<std::int64_t> shape;
  std::vector<float> data;
};

// What takes the place of an activation once it is computed: (B, T, width) of the batch.
struct Patch {
  Activation of;
  std::vector<float> data;
};

class InsidePass final : graph::Hooks {
 public:
  // `given`: the batch; `padded`: the same as the ranks compute it (padded()).
  InsidePass(train::Engine& engine, const ProbeBatch& given, const ProbeBatch& padded, Asked asked,
             std::vector<Patch> patches);
  // Collective: a pass with the engine's weights. Returns the loss.
  double run();
  // Collective: what was asked for, of the last run: activations (B, T, width), then maps
  // (B, H, T, S).
  std::vector<OutputTensor> asked() const;

 private:
  void after(const graph::Instruction& step) override;
  // Where a row of this rank lies in the batch that was given.
  struct Place {
    std::int64_t row, sequence, position;
  };
  // Calls f(Place) for this rank's rows [first, first + count) of `rows` that are in the batch.
  template <class F>
  void each_place(const Rows& rows, std::int64_t first, std::int64_t count, std::int64_t length,
                  F&& f) const;
  void apply(const Patch& p) const;
  Tensor tensor(graph::Value v) const;
  template <class T = float>
  std::vector<T> host(graph::Value v) const;  // empty if there is no value
  OutputTensor whole(const Activation& a) const;
  OutputTensor whole(const AttentionMap& m) const;
  void add_rows(const AttentionMap& m, const graph::Node& node, OutputTensor& to) const;
  std::vector<float> keys_of(const graph::Node& node) const;

  train::Engine& engine_;
  const ProbeBatch& given_;
  Asked asked_;
  std::vector<Patch> patches_;
  inference::ForwardPass pass_;
  device::Arena arena_;
  data::DataLoader loader_;
  std::map<const graph::Instruction*, std::vector<const Patch*>> patched_after_;
  std::int64_t first_ = 0, sequences_ = 0;  // of the batch, on this rank
};

}  // namespace tfm::launch
