#pragma once
// Several paths of which each has a share of what is drawn.
#include <cstdint>
#include <vector>

namespace tfm::data {

// Weights are shares, rounded to thousandths, none below one (largest remainder), and positions are
// dealt in blocks of 1000: path k, of n_k items, gets c_k of them, spread evenly. Its j-th place in
// block b is its item (b * c_k + j) mod n_k. An epoch has the fewest blocks that show every item of
// every path at least once; a path whose share exceeds its size repeats.
class Mixture {
 public:
  // A weight and a size for each path; sizes are positive. Error(usage) for more than 1000 paths.
  Mixture(const std::vector<double>& weights, std::vector<std::int64_t> sizes);
  std::int64_t samples() const { return samples_; }  // of an epoch
  struct Item {
    std::size_t path;
    std::int64_t index;  // in the path
  };
  Item item(std::int64_t position) const;

 private:
  std::vector<std::int32_t> dealt_, nth_;  // path and place j of each position in a block
  std::vector<std::int32_t> count_;        // c_k
  std::vector<std::int64_t> sizes_;
  std::int64_t samples_ = 0;
};

}  // namespace tfm::data
