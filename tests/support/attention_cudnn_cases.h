#pragma once
// Shapes of attention that cuDNN computes, for the test without a GPU and for the one with it.
#include <cstdint>
#include <sstream>
#include <string>
#include <vector>

#include "kernels/cuda/attention_cudnn.h"

namespace tfm::test {

struct CudnnCase {
  std::int64_t batch, heads, kv_heads, queries, keys, size;
  bool causal, padded = false;  // by keys behind the real ones
};

inline std::string describe(const CudnnCase& c) {
  std::ostringstream text;
  text << "B " << c.batch << " H " << c.heads << "/" << c.kv_heads << " T " << c.queries << " S "
       << c.keys << " D " << c.size << (c.causal ? " causal" : "") << (c.padded ? ", padding" : "");
  return text.str();
}

inline std::vector<CudnnCase> cudnn_cases() {
  std::vector<CudnnCase> all;
  for (std::int64_t size :
       {8, 32, 40, 64, 96, 128, 192, 256})  // self-attention, queries that share keys
    for (bool causal : {false, true}) all.push_back({2, 4, causal ? 4 : 2, 128, 128, size, causal});
  for (std::int64_t size : {64, 128}) {
    for (std::int64_t length : {64, 77, 200, 1000})
      all.push_back({1, 4, 1, length, length, size, true});
    for (bool causal :
         {false, true})  // more keys than queries; causal: the last query sees them all
      for (const auto& [queries, keys] : {std::pair{64, 200}, {77, 333}, {128, 1000}})
        all.push_back({2, 2, 2, queries, keys, size, causal});
    all.push_back({3, 4, 2, 128, 128, size, false, true});
    all.push_back({3, 2, 2, 77, 333, size, false, true});
    all.push_back({5, 2, 1, 200, 64, size, false, true});
    all.push_back({2, 4, 2, 333, 77, size, false});
    all.push_back({1, 2, 1, 1000, 128, size, false});
  }
  return all;
}

}  // namespace tfm::test
