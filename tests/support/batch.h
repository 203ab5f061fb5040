#pragma once
// Batches that a test fills itself, through the loader that an engine's own data takes.
#include <functional>
#include <utility>

#include "train/engine.h"

namespace tfm::test {

// Fills sequences [first, first + count) of the global batch.
using FillBatch =
    std::function<void(std::int64_t first, std::int64_t count, const BatchFields& fields)>;

// Every batch is the same.
class FilledData final : public data::Dataset {
 public:
  FilledData(FillBatch fill, std::int64_t sequences, std::size_t shape = 0)
      : fill_(std::move(fill)), sequences_(sequences), shape_(shape) {}
  GlobalBatch batch(std::int64_t) const override { return {shape_, sequences_}; }
  std::int64_t batches() const override { return 1; }
  void fill(std::int64_t, std::int64_t first, std::int64_t count,
            const BatchFields& fields) const override {
    fill_(first, count, fields);
  }

 private:
  FillBatch fill_;
  std::int64_t sequences_;
  std::size_t shape_;
};

inline train::StepResult train_step(train::Engine& engine, std::int64_t step, double lr,
                                    const FillBatch& fill, std::size_t shape = 0) {
  const FilledData data(fill, engine.plan().shapes[shape].batch, shape);
  data::DataLoader loader = engine.training_loader(data);
  return engine.train_step(step, lr, loader.load(0));
}

inline train::StepResult compute_gradients(train::Engine& engine, std::int64_t step,
                                           const FillBatch& fill) {
  const FilledData data(fill, engine.plan().shapes[0].batch);
  data::DataLoader loader = engine.training_loader(data);
  return engine.compute_gradients(step, loader.load(0));
}

inline inference::Totals evaluate(train::Engine& engine, std::int64_t sequences,
                                  const FillBatch& fill, std::size_t shape = 0) {
  const FilledData data(fill, sequences, shape);
  data::DataLoader loader = engine.evaluation_loader(data, 1);
  return engine.evaluate(loader, 1);
}

}  // namespace tfm::test
