#pragma once
// Work that repeats the same launches on the same memory: a CUDA graph after its first run. Values
// that change between runs are in memory (core/step_numbers.h).
#include <functional>
#include <memory>

#include "device/stream.h"

namespace tfm::device {

class Replay {
 public:
  // Runs `work` the first time, so that it can measure and allocate; records and launches it the
  // second, without the host's waiting for anything in it; from then on one launch stands for it.
  // On a CPU it runs every time.
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
