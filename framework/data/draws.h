#pragma once
// Random numbers of one sequence of one batch, drawn one after another.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <string>
#include <vector>

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
  // `count` of the numbers below n, all choices and orders equally likely.
  std::vector<std::int64_t> chosen(std::int64_t n, std::int64_t count) {
    std::vector<std::int64_t> all(static_cast<std::size_t>(n));
    std::iota(all.begin(), all.end(), std::int64_t{0});
    for (std::int64_t i = 0; i < count; ++i)
      std::swap(all[static_cast<std::size_t>(i)], all[static_cast<std::size_t>(i + below(n - i))]);
    all.resize(static_cast<std::size_t>(count));
    return all;
  }

 private:
  RandomKey key_;
  std::uint64_t at_ = 0;
};

}  // namespace tfm::data
