#pragma once
// How evenly the tokens of a step go to experts, and to the ranks that have them.
#include <string>
#include <vector>

#include "train/engine.h"

namespace tfm::train {

class ExpertLoad {
 public:
  struct Layer {
    std::string name;           // "layers.3" or "encoder.layers.3"
    std::vector<double> loads;  // choices of each expert, as a multiple of an even load
    double entropy = 0;         // of a token's probabilities of experts, in nats; the mean
    double busiest_rank = 1;    // most rows that a rank computes, as a multiple of the mean
    double most() const;        // of `loads`
  };

  explicit ExpertLoad(const Engine& engine);
  void gather(const Engine& engine, std::size_t shape);  // collective: of the last step finished

  // The layers of the whole model, as of the last gather(); empty: none has experts.
  const std::vector<Layer>& layers() const { return layers_; }
  double most() const;     // of all layers
  double entropy() const;  // the mean over layers
  double busiest_rank() const;

 private:
  std::vector<Layer> layers_;
  std::vector<std::size_t> own_;  // indices of this rank's
};

}  // namespace tfm::train
