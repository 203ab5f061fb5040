#pragma once
// Owns a CUDA event that records no time.
#include <utility>

#include "device/cuda/stream.h"

namespace tfm::cuda {

class Event {
 public:
  Event() { check(cudaEventCreateWithFlags(&event_, cudaEventDisableTiming)); }
  ~Event() {
    if (event_) cudaEventDestroy(event_);
  }
  Event(Event&& other) noexcept : event_(std::exchange(other.event_, nullptr)) {}
  Event& operator=(Event&& other) noexcept { return std::swap(event_, other.event_), *this; }

  void record(cudaStream_t stream) { check(cudaEventRecord(event_, stream)); }
  // Makes later work of the stream wait for the event.
  void hold_back(cudaStream_t stream) const { check(cudaStreamWaitEvent(stream, event_, 0)); }
  bool complete() const { return cudaEventQuery(event_) == cudaSuccess; }
  void wait() const { check(cudaEventSynchronize(event_)); }

 private:
  cudaEvent_t event_ = nullptr;
};

}  // namespace tfm::cuda
