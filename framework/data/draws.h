#pragma once
// Random numbers of one sequence of one batch, drawn one after another.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>

#include "core/philox.h"

namespace tfm::data {

class Draws {
 public:
  // `sequence`: its index in the global batch.
  Draws(std::uint64_t seed, const std::string& objective, std::int64_t batch, std::int64_t sequence)
      : key_{seed, Purpose::data, stream_of(objective + "." + std::to_string(sequence)),
             static_cast<std::uint32_t>(batch)} {}

  std::uint32_t word() { return key_.word(at_++); }
  double uniform() { return static_cast<double>(uniform_open(word())); }  // in (0, 1]
  bool happens(double probability) { return probability > 0 && uniform() <= probability; }
  std::int64_t below(std::int64_t n) {
    return static_cast<std::int64_t>(word() % static_cast<std::uint64_t>(n));
  }
  // A number of Poisson's distribution, by its inverse; at most `most`.
  std::int64_t poisson(double mean, std::int64_t most) {
    const double u = uniform();
    double p = std::exp(-mean), sum = p;
    std::int64_t n = 0;
    for (; n < most && u > sum; sum += p) p *= mean / static_cast<double>(++n);
    return n;
  }

 private:
  RandomKey key_;
  std::uint64_t at_ = 0;
};

}  // namespace tfm::data
