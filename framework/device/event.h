#pragma once
// A moment of a stream's work that the host can wait for.
#include <memory>

#include "device/stream.h"

namespace tfm::cuda {
class Event;  // device/cuda/event.h
}

namespace tfm::device {

class Event {
 public:
  // Now: behind all that was put on the stream so far. On a CPU that is done already.
  void record(cpu::Stream&) {}
  void record(cuda::Stream& stream);
  void record(AnyStream stream) {
    on(stream, [&](auto& s) { record(s); });
  }
  // Until the last moment that was recorded, if there was one.
  void wait(cpu::Stream&) const {}
  void wait(cuda::Stream& stream) const;
  void wait(AnyStream stream) const {
    on(stream, [&](auto& s) { wait(s); });
  }

 private:
  std::shared_ptr<cuda::Event> event_;
};

}  // namespace tfm::device
