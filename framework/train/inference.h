#pragma once
// Logits of a model outside training: generation, evaluation from outside, tests.
#include "device/arena.h"
#include "graph/planner.h"
#include "nn/model.h"

namespace tfm {

class Inference {
 public:
  // `flat`: this rank's parameters, laid out by model.parameters(); must outlive this. All ranks of the mesh call alike.
  Inference(const Model& model, const Mesh& mesh, void* flat, const BatchShape& shape, std::int64_t vocab_size, int threads,
            DType real = DType::f32);

  // Runs on fields of the shape; masks that are absent are all real, other fields zero.
  void run(const Fields& fields);
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
