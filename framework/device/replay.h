#pragma once
// Runs work that repeats the same launches on the same memory, as a CUDA graph after the first run.
// Values that change between runs must be read from memory (core/step_numbers.h).
#include <functional>
#include <memory>

#include "device/stream.h"

namespace tfm::device {

class Replay {
 public:
  // First call: runs `work`, which may time algorithms and allocate. Second call: captures `work`
  // into a graph, in which the host must not wait, and launches the graph. Later calls: only launch
  // the graph. On a CPU, every call runs `work`.
  void run(cpu::Stream&, const std::function<void()>& work) { work(); }
  void run(cuda::Stream& stream, const std::function<void()>& work);
  void run(AnyStream stream, const std::function<void()>& work) {
    on(stream, [&](auto& s) { run(s, work); });
  }
  bool recorded() const { return static_cast<bool>(graph_); }

 private:
  bool ran_ = false;
  std::shared_ptr<void> graph_;
};

}  // namespace tfm::device
