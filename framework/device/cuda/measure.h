#pragma once
// Picks the fastest of several equivalent algorithms by timing them.
#include <functional>
#include <initializer_list>
#include <map>
#include <string>
#include <vector>

#include "device/cuda/algorithm_file.h"

namespace tfm::cuda {

class Stream;

// folder/LIBRARY-DEVICE.txt, named after the device's model; empty if the folder is.
std::filesystem::path algorithm_path(const std::filesystem::path& folder,
                                     const std::string& library, int device);

// The shortest time of each of `ways` to do some work; start(i) enqueues it on the stream, and
// returns false where it cannot, which takes infinitely long. All run in turn, since a GPU that
// grows hot grows slow: three times, of which the first is not timed, and once more those that took
// less than 1.5 times as long as the fastest.
std::vector<float> milliseconds(Stream& stream, std::size_t ways,
                                const std::function<bool(std::size_t)>& start);

class Choices {
 public:
  // Choices are kept for other ranks and later runs in algorithm_path() (algorithm_file.h).
  Choices(Stream& stream, const std::string& library,
          const std::filesystem::path& folder = cache_folder());

  // Index of the fastest of several ways to compute the same: the known one for `key`, or the one
  // found now by timing all of them. 0 with Numerics::deterministic, and if none is known and a
  // graph is being captured, memory runs out or the choice cannot be kept for other ranks.
  int fastest(const std::string& key, std::initializer_list<std::function<bool()>> ways);

 private:
  Stream& stream_;
  AlgorithmFile file_;
  std::map<std::string, int> known_;
};

}  // namespace tfm::cuda
