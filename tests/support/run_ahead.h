#pragma once
// Training whose steps are launched before the step before them is finished, beside the same one
// step after the other, with steps of which nothing is finite in between.
#include <bit>
#include <limits>
#include <set>

#include "data/loader.h"
#include "support/weights.h"

namespace tfm::test {

inline constexpr std::int32_t kPoison = 36;  // an id whose embedding is no number

// Another batch for each step; those of the steps (from 1) in `bad` have kPoison once.
class PoisonedData final : public data::Dataset {
 public:
  PoisonedData(std::int64_t sequences, std::set<std::int64_t> bad)
      : sequences_(sequences), bad_(std::move(bad)) {}
  GlobalBatch batch(std::int64_t) const override { return {0, sequences_}; }
  std::int64_t batches() const override { return 100; }
  void fill(std::int64_t index, std::int64_t first, std::int64_t count,
            const BatchFields& fields) const override {
    for (const auto& [field, values] : fields) {
      const auto width = static_cast<std::int64_t>(values.size()) / count;
      for (std::int64_t i = 0; i < count * width; ++i)
        values[static_cast<std::size_t>(i)] =
            info_of(field).kind == FieldKind::mask
                ? 0
                : static_cast<std::int32_t>(((first * width + i) * 7 + index * 11) % kPoison);
      if (field == Field::ids && first == 0 && bad_.contains(index + 1)) values[1] = kPoison;
    }
  }

 private:
  std::int64_t sequences_;
  std::set<std::int64_t> bad_;
};

// Needs embeddings that are not tied.
inline void initialize_poisoned(train::Engine& e) {
  const nn::ParameterSet& parameters = e.model().parameters();
  e.set_weights([&](const nn::PartSlice& p, std::int64_t first, std::int64_t count, void* to) {
    auto* const out = static_cast<float*>(to);
    parameters.initialize(3, p, first, count, out, 1);
    if (p.name != "embedding.weight") return;
    nn::each_run(p, first, count, [&](std::int64_t whole, std::int64_t at, std::int64_t n) {
      for (std::int64_t i = 0; i < n; ++i)
        if ((whole + i) / p.full[1] == kPoison)
          out[at - first + i] = std::numeric_limits<float>::quiet_NaN();
    });
  });
}

struct TrainedSteps {
  std::vector<double> loss_scales;
  std::vector<bool> applied;
  std::vector<std::uint64_t> bits;  // of all results, and of weights and their average at the end
};

// `launched`: called behind each launch of a step before the one before it is finished.
inline TrainedSteps train_steps(
    train::Engine& e, const data::Dataset& data, std::int64_t steps, bool ahead,
    const std::function<void()>& launched = [] {}) {
  TrainedSteps t;
  data::DataLoader loader = e.training_loader(data);
  const auto launch = [&](std::int64_t s) {
    e.launch(s, 1e-2 / static_cast<double>(s), loader.load(s - 1));
  };
  for (std::int64_t s = 1; s <= steps; ++s) {
    if (!ahead || s == 1) launch(s);
    if (ahead && s < steps) launch(s + 1), launched();
    const train::StepResult r = e.finish();
    t.loss_scales.push_back(r.loss_scale);
    t.applied.push_back(r.applied);
    for (const double figure : {r.loss, r.grad_norm, r.loss_scale, static_cast<double>(r.tokens),
                                static_cast<double>(e.updates()), e.loss_scale().value})
      t.bits.push_back(std::bit_cast<std::uint64_t>(figure));
  }
  e.gather_parameters();
  for (int which = 0; which < 2; ++which, e.swap_average())
    for (const auto& part : weights_of(e))
      for (const float x : part) t.bits.push_back(std::bit_cast<std::uint32_t>(x));
  device::wait(e.device().stream());
  return t;
}

}  // namespace tfm::test
