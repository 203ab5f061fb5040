#pragma once
// A point in a stream's work that the host can wait for.
#include <memory>

#include "device/stream.h"

namespace tfm::cuda {
class Event;  // device/cuda/event.h
}

namespace tfm::device {

class Event {
 public:
  // Records the point after all work enqueued on the stream so far. On a CPU that work is complete.
  void record(cpu::Stream&) {}
  void record(cuda::Stream& stream);
  void record(AnyStream stream) {
    on(stream, [&](auto& s) { record(s); });
  }
  // Blocks until the work before the last recorded point, if any, is complete.
  void wait(cpu::Stream&) const {}
  void wait(cuda::Stream& stream) const;
  void wait(AnyStream stream) const {
    on(stream, [&](auto& s) { wait(s); });
  }

 private:
  std::shared_ptr<cuda::Event> event_;
};

}  // namespace tfm::device
