#pragma once
// What no layout of some sizes is faster than, without a plan of it: for searches.
#include <array>
#include <map>
#include <tuple>

#include "plan/prediction.h"

namespace tfm::plan {

class LeastTime {
 public:
  // Seconds of a micro-batch on the ranks of one stage that has all blocks, whatever the ZeRO stage
  // and what is recomputed.
  struct Layers {
    double all = 0, head = 0;  // `head`: behind the last block
    std::vector<double> blocks;
  };
  struct MicroBatch {
    Layers first, later;  // of a step
    bool known() const { return first.all > 0; }
  };
  // Of ranks along each axis and a size of a micro-batch, with any recomputation.
  struct Sizes {
    double ideal = 0;  // seconds of a micro-batch's products and attention on a stage, at best
    const MicroBatch* layers = nullptr;
    const std::vector<int>* rank_of_block = nullptr;  // along the pipeline
    double micro_batches = 0, stages = 0;
    double pieces = 0;  // micro-batches of a rank's chunks of layers
    double sums = 0;    // seconds in which ranks sum up labels, losses and the norm
    // Seconds of collectives in the first micro-batch, in each and in the last one, by ZeRO stage.
    struct Exchanges {
      double first = 0, each = 0, last = 0;
    };
    std::array<Exchanges, 4> exchanges{};
  };

  explicit LeastTime(const DeviceModel& device) : device_(device) {}

  // `resolved`: for its ranks.
  Sizes sizes_of(const config::Config& resolved);
  std::array<double, 4> seconds(const Sizes& sizes) const;  // by ZeRO stage
  // Makes a plan of a micro-batch, so that its layers are known to all layouts that have the same.
  void learn(const config::Config& resolved);

 private:
  using ModelKey =
      std::tuple<std::int64_t, std::int64_t, bool, config::ContextExchange, std::int64_t>;
  using StagesKey = std::tuple<std::int64_t, int, std::vector<std::int64_t>>;
  static ModelKey key_of(const config::Config& c, const ShapePlan& shape) {
    return {c.parallel.tensor, c.parallel.context, c.parallel.sequence, c.parallel.context_exchange,
            shape.shape.sequences};
  }
  void calibrate(const StepPlan& plan);
  const std::vector<int>& rank_of_block(const config::Config& c, const comm::Layout& layout);

  const DeviceModel& device_;
  double ideal_ = 0;                               // of a sequence, on one rank; 0: no plan yet
  std::vector<double> elements_;                   // of the model's parameters
  double gradient_size_ = 0, parameter_size_ = 0;  // bytes of an element
  std::map<ModelKey, MicroBatch> layers_;
  std::map<StagesKey, std::vector<int>> stages_;
};

}  // namespace tfm::plan
