#pragma once
// What a verification finds, and the numbers of a run that it compares.
#include <cstdint>
#include <string>
#include <vector>

namespace tfm::verify {

struct Finding {
  std::string check;            // "gradient", "parameters after 5 steps", ...
  std::string worst;            // the tensor that differs most
  double error = 0;             // relative: norm of the difference over the norm of the reference
  double bound = 0;             // 0: must be bit-equal
  std::vector<int> ranks = {};  // on which `worst` exceeds the bound, where that is known
  bool ok() const { return error <= bound; }
};

// What a run of some steps leaves behind: this rank's slices, in the order of its parameters'
// slices().
struct Trace {
  std::vector<std::vector<double>> initial, gradients, parameters;
  std::vector<double> losses, norms;
  std::int64_t planned = 0, taken = 0;  // bytes of memory
  bool fixed_order = true;              // sums over ranks have a fixed order
};

}  // namespace tfm::verify
