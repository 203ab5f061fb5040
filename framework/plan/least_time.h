#pragma once
// Lower bounds of a layout's step time without planning it: for searches.
#include <array>
#include <map>
#include <tuple>

#include "plan/prediction.h"

namespace tfm::plan {

class LeastTime {
 public:
  // Seconds of a micro-batch on one stage that has all blocks, whatever the ZeRO stage and
  // recomputation.
  struct Layers {
    double all = 0, head = 0;  // `head`: after the last block
    std::vector<double> blocks;
  };
  struct MicroBatch {
    Layers first, later;  // the first one of a step, the others
    bool known() const { return first.all > 0; }
  };
  // What a grid of ranks and a micro-batch size contribute, with any recomputation.
  struct Sizes {
    // Least seconds of a micro-batch's products and attention on a stage.
    double ideal = 0;
    const MicroBatch* layers = nullptr;
    const std::vector<int>* rank_of_block = nullptr;  // place along the pipeline, by block
    double micro_batches = 0, stages = 0;
    double pieces = 0;  // micro-batches times a rank's chunks of layers
    double sums = 0;    // seconds of the sums of labels, losses and the norm
    // Seconds of collectives by ZeRO stage: in the first micro-batch, in each, and in the last one.
    struct Exchanges {
      double first = 0, each = 0, last = 0;
    };
    std::array<Exchanges, 4> exchanges{};
  };

  explicit LeastTime(const DeviceModel& device) : device_(device) {}

  // `resolved`: a configuration resolved for its ranks.
  Sizes sizes_of(const config::Config& resolved);
  std::array<double, 4> seconds(const Sizes& sizes) const;  // least seconds of a step by ZeRO stage
  // Plans a micro-batch; all layouts with the same layers then know their times.
  void learn(const config::Config& resolved);

 private:
  using ModelKey = std::tuple<std::int64_t, std::int64_t, bool, config::ContextExchange,
                              std::int64_t, std::int64_t>;
  using StagesKey = std::tuple<std::int64_t, int, std::vector<std::int64_t>>;
  static ModelKey key_of(const config::Config& c, const ShapePlan& shape) {
    return {c.parallel.tensor,           c.parallel.context,    c.parallel.sequence,
            c.parallel.context_exchange, shape.shape.sequences, c.parallel.expert};
  }
  void calibrate(const StepPlan& plan);
  const std::vector<int>& rank_of_block(const config::Config& c, const comm::Layout& layout);

  const DeviceModel& device_;
  double ideal_ = 0;              // seconds of a sequence on one rank; 0: no plan yet
  std::vector<double> elements_;  // of each parameter of the model
  double gradient_size_ = 0, parameter_size_ = 0;  // bytes of an element
  std::map<ModelKey, MicroBatch> layers_;
  std::map<StagesKey, std::vector<int>> stages_;
};

}  // namespace tfm::plan
