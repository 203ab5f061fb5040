#pragma once
// Picks the fastest of several equivalent algorithms by timing them.
#include <functional>
#include <initializer_list>
#include <limits>
#include <map>
#include <string>

#include "device/cuda/algorithm_file.h"

namespace tfm::cuda {

class Stream;

// folder/LIBRARY-DEVICE.txt by the device's name; empty where the folder is.
std::filesystem::path algorithm_path(const std::filesystem::path& folder,
                                     const std::string& library, int device);

// The shortest of some runs of what `start` puts on the stream, after one that warms up; infinite
// where it returns false. One that takes longer than `hopeless` is not repeated.
float milliseconds(Stream& stream, const std::function<bool()>& start,
                   float hopeless = std::numeric_limits<float>::infinity());

class Choices {
 public:
  // Kept under the library's and the device's name for ranks and later runs
  // (device/cuda/algorithm_file.h).
  Choices(Stream& stream, const std::string& library,
          const std::filesystem::path& folder = cache_folder());

  // Number of the way that is known to be the fastest, or is found so now: each is run, and they
  // compute the same. 0 where nothing is known and a graph is captured, there is no memory to run
  // them all, or it cannot be kept for other ranks.
  int fastest(const std::string& key, std::initializer_list<std::function<bool()>> ways);

 private:
  Stream& stream_;
  AlgorithmFile file_;
  std::map<std::string, int> known_;
};

}  // namespace tfm::cuda
