// The stand-in of CUDA's streams and events.
#include <algorithm>
#include <atomic>
#include <deque>
#include <map>
#include <memory>

#include "fake_runtime.h"

using tfm::executor::runtime;

namespace {
using Seen = std::map<std::shared_ptr<long>, long>;  // kernels of a stream, and how many of them come before
}

struct CUstream_st {
  std::deque<std::function<void()>> work;
  std::shared_ptr<long> kernels = std::make_shared<long>(0);  // so far
  Seen seen;                                                  // of other streams, before what is enqueued now
};

namespace {
// A moment of a stream. Other threads may ask whether it has passed.
struct Mark {
  cudaStream_t on;
  Seen seen;
  std::atomic<bool> passed = false;
};

void do_next(cudaStream_t s) {
  const auto work = std::move(s->work.front());
  s->work.pop_front();
  work();
}
}  // namespace

struct CUevent_st {
  float time = 0;  // of fake_runtime.h's clock
  std::shared_ptr<Mark> mark;
};

namespace tfm::executor {

void enqueue(cudaStream_t s, std::function<void()> work) { s->work.push_back(std::move(work)); }
void reach(cudaStream_t s) {
  ++*s->kernels;
  while (!s->work.empty()) do_next(s);
}
std::size_t waiting(cudaStream_t s) { return s->work.size(); }
bool follows_kernels(cudaStream_t s) {
  const bool all = std::ranges::all_of(s->seen, [](const auto& other) { return other.second == *other.first; });
  return *s->kernels > 0 || (all && !s->seen.empty());
}

}  // namespace tfm::executor

cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  *least = 0, *greatest = -5;
  return cudaSuccess;
}
cudaError_t cudaStreamCreateWithPriority(cudaStream_t* s, unsigned, int) {
  *s = new CUstream_st;
  return cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t s) {
  delete s;
  return cudaSuccess;
}
cudaError_t cudaStreamSynchronize(cudaStream_t s) {
  if (runtime.capturing) return cudaErrorStreamCaptureUnsupported;
  ++runtime.synchronized;
  if (runtime.on_wait) runtime.on_wait();
  while (!s->work.empty()) do_next(s);
  return cudaSuccess;
}
cudaError_t cudaStreamIsCapturing(cudaStream_t, cudaStreamCaptureStatus* status) {
  *status = runtime.capturing ? cudaStreamCaptureStatusActive : cudaStreamCaptureStatusNone;
  return cudaSuccess;
}

cudaError_t cudaEventCreate(cudaEvent_t* e) {
  *e = new CUevent_st;
  return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t e, cudaStream_t s) {
  if (runtime.capturing) {
    runtime.recorded.emplace_back([=] { cudaEventRecord(e, s); });
    return cudaSuccess;
  }
  e->time = runtime.clock;
  const auto mark = e->mark = std::make_shared<Mark>(s, s->seen);
  mark->seen[s->kernels] = *s->kernels;
  if (s->work.empty())
    mark->passed = true;
  else
    s->work.push_back([mark] { mark->passed = true; });
  return cudaSuccess;
}
cudaError_t cudaEventQuery(cudaEvent_t e) { return !e->mark || e->mark->passed ? cudaSuccess : cudaErrorNotReady; }
cudaError_t cudaStreamWaitEvent(cudaStream_t s, cudaEvent_t e, unsigned flags) {
  if (runtime.capturing) {
    runtime.recorded.emplace_back([=] { cudaStreamWaitEvent(s, e, flags); });
    return cudaSuccess;
  }
  const auto mark = e->mark;
  if (!mark || mark->on == s) return cudaSuccess;
  for (const auto& [other, kernels] : mark->seen)
    if (other != s->kernels) s->seen[other] = std::max(s->seen[other], kernels);
  if (!mark->passed)
    s->work.push_back([mark] {
      while (!mark->passed) do_next(mark->on);
    });
  return cudaSuccess;
}
cudaError_t cudaEventElapsedTime(float* ms, cudaEvent_t before, cudaEvent_t after) {
  *ms = after->time - before->time;
  return cudaSuccess;
}
cudaError_t cudaEventDestroy(cudaEvent_t e) {
  delete e;
  return cudaSuccess;
}
