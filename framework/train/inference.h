#pragma once
// Logits of a model outside training: generation, evaluation from outside, tests.
#include "device/arena.h"
#include "graph/planner.h"
#include "nn/model.h"

namespace tfm {

class Inference {
 public:
  // `flat`: this rank's parameters, laid out by model.parameters(); must outlive this. All ranks of the mesh call alike.
  Inference(const Model& model, const Mesh& mesh, void* flat, const nn::Rows& rows, std::int64_t vocab_size, int threads,
            DType real = DType::f32);

  // Runs on ids (rows.tokens()).
  void run(std::span<const std::int32_t> ids);
  // Logits of one row over the whole vocabulary, gathered from all tensor ranks.
  std::vector<double> row(std::int64_t index) const;

 private:
  Mesh mesh_;
  cpu::Stream stream_;
  Recording recording_;
  Program program_;
  Arena arena_;
  std::int64_t vocab_size_;
};

}  // namespace tfm
