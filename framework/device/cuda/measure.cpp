#include "device/cuda/measure.h"

#include <algorithm>
#include <cctype>
#include <cstdio>
#include <limits>

#include "device/cuda/stream.h"
#include "device/memory.h"

namespace tfm::cuda {
namespace {

struct StopWatch {
  cudaEvent_t before = nullptr, after = nullptr;
  StopWatch() { check(cudaEventCreate(&before)), check(cudaEventCreate(&after)); }
  ~StopWatch() { cudaEventDestroy(before), cudaEventDestroy(after); }
  StopWatch(const StopWatch&) = delete;
  StopWatch& operator=(const StopWatch&) = delete;
};

}  // namespace

std::filesystem::path algorithm_path(const std::filesystem::path& folder,
                                     const std::string& library, int device) {
  if (folder.empty()) return {};
  cudaDeviceProp properties;
  check(cudaGetDeviceProperties(&properties, device));
  std::string name = properties.name;
  std::replace_if(
      name.begin(), name.end(), [](unsigned char c) { return !std::isalnum(c); }, '_');
  return folder / (library + "-" + name + ".txt");
}

std::vector<float> milliseconds(Stream& stream, std::size_t ways,
                                const std::function<bool(std::size_t)>& start) {
  constexpr int kRounds = 3;
  constexpr float kHopeless = 1.5f, kNever = std::numeric_limits<float>::infinity();
  const StopWatch watch;
  std::vector<float> shortest(ways, kNever);
  std::vector<bool> runs(ways, true);
  for (int round = 0; round < kRounds; ++round) {
    const float best = *std::min_element(shortest.begin(), shortest.end());
    for (std::size_t i = 0; i < ways; ++i) {
      if (round == 0) runs[i] = start(i);
      if (!runs[i] || (round == kRounds - 1 && shortest[i] > kHopeless * best)) continue;
      check(cudaEventRecord(watch.before, stream.get()));
      runs[i] = start(i);
      check(cudaEventRecord(watch.after, stream.get()));
      check(cudaEventSynchronize(watch.after));
      float ms = 0;
      check(cudaEventElapsedTime(&ms, watch.before, watch.after));
      shortest[i] = runs[i] ? std::min(shortest[i], ms) : kNever;
    }
  }
  return shortest;
}

Choices::Choices(Stream& stream, const std::string& library, const std::filesystem::path& folder)
    : stream_(stream), file_(algorithm_path(folder, library, stream.device())) {}

int Choices::fastest(const std::string& key, std::initializer_list<std::function<bool()>> ways) {
  if (stream_.numerics().deterministic) return 0;
  if (const auto known = known_.find(key); known != known_.end()) return known->second;
  const auto of_file = [&](const Algorithm& a) {
    return known_[key] = static_cast<int>(a[0] < ways.size() ? a[0] : 0);
  };
  if (const auto known = file_.find(key)) return of_file(*known);
  if (stream_.capturing()) return 0;
  Algorithm fastest{};
  try {
    const std::vector<float> times =
        milliseconds(stream_, ways.size(), [&](std::size_t i) { return ways.begin()[i](); });
    fastest[0] =
        static_cast<std::uint64_t>(std::min_element(times.begin(), times.end()) - times.begin());
  } catch (const device::OutOfMemory& e) {
    std::fprintf(stderr, "warning: algorithms are not timed, the default is used: %s\n", e.what());
    return known_[key] = 0;
  }
  return of_file(file_.add(key, fastest).value_or(Algorithm{}));
}

}  // namespace tfm::cuda
