// The stand-in of CUDA's streams, events and captures.
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "fake_runtime.h"

using tfm::emulator::runtime;

namespace {
using Seen =
    std::map<std::shared_ptr<long>, long>;  // kernels of a stream, and how many of them come before
using Covered = std::map<cudaStream_t, long>;  // pieces that streams gave to a capture

struct Capture {
  cudaStream_t origin;
  std::map<cudaStream_t, Covered> members = {
      {origin, {}}};  // and what comes before their next piece
  std::shared_ptr<int> identity = std::make_shared<int>();
};
std::optional<Capture> capture;
thread_local bool captures = false;  // this thread does
std::vector<cudaStream_t> streams;   // in the order of their making
}  // namespace

struct CUstream_st {
  std::deque<std::function<bool()>> work;
  std::shared_ptr<long> kernels = std::make_shared<long>(0);  // so far
  Seen seen;  // of other streams, before what is enqueued now
};

namespace {
// A moment of a stream. Other threads may ask whether it has passed.
struct Mark {
  cudaStream_t on;
  Seen seen;
  std::atomic<bool> passed = false;
};

// While work is done.
class Doing {
 public:
  Doing() {
    if (depth++ == 0) tfm::emulator::let_the_host_touch_device_memory(true);
  }
  ~Doing() {
    if (--depth == 0) tfm::emulator::let_the_host_touch_device_memory(false);
  }

 private:
  static inline int depth = 0;
};

// Whether the stream's next piece of work is done; one that waits for another rank stays the next.
int running = 0;
bool do_next(cudaStream_t s) {
  if (s->work.empty()) return false;
  auto work = std::move(s->work.front());
  s->work.pop_front();
  ++running;
  const std::shared_ptr<void> ran(nullptr, [](void*) { --running; });
  if (work()) return true;
  s->work.push_front(std::move(work));
  return false;
}

bool pass(Mark& mark) {
  while (!mark.passed && do_next(mark.on)) {
  }
  return mark.passed;
}
}  // namespace

struct CUevent_st {
  float time = 0;  // of fake_runtime.h's clock
  std::shared_ptr<Mark> mark;
  std::weak_ptr<int> captured;  // in which it was recorded last
  Covered covers;
};

namespace tfm::emulator {

void enqueue(cudaStream_t s, std::function<bool()> work) { s->work.push_back(std::move(work)); }
std::size_t waiting(cudaStream_t s) { return s->work.size(); }
std::size_t waiting() {
  std::size_t all = 0;
  for (cudaStream_t s : streams) all += s->work.size();
  return all;
}
bool work_on() {
  if (waiting() == 0 || running || runtime.capturing) return false;
  const Doing doing;
  bool moved = false;
  for (std::size_t i = 0; i < streams.size(); ++i)
    while (do_next(streams[i])) moved = true;
  return moved;
}
void wait_until(const std::function<bool()>& done) {
  const Doing doing;
  while (!done())
    if (!work_on()) usleep(20);
}
void finish(cudaStream_t s) {
  if (s->work.empty()) return;
  wait_until([&] {
    while (do_next(s)) {
    }
    return s->work.empty();
  });
}
void finish_all() {
  for (cudaStream_t s : streams) finish(s);
}
bool follows_kernels(cudaStream_t s) {
  const bool all =
      std::ranges::all_of(s->seen, [](const auto& other) { return other.second == *other.first; });
  return *s->kernels > 0 || (all && !s->seen.empty());
}

void record(cudaStream_t s, std::function<void()> work) {
  if (capture) {
    const auto member = capture->members.find(s);
    if (member == capture->members.end())
      throw std::logic_error("work for a stream that is not part of the capture");
    ++member->second[s];
  }
  runtime.recorded.push_back(std::move(work));
}
void refuse_in_capture(const char* call) {
  if (captures) throw std::logic_error(std::string(call) + " while a stream is captured");
}

void submit(cudaStream_t s, std::function<void()> work) {
  if (runtime.capturing) return record(s, [s, work = std::move(work)] { submit(s, work); });
  ++*s->kernels;
  enqueue(s, [work = std::move(work)] { return work(), true; });
  if (runtime.late) return;
  while (do_next(s)) {
  }
}

}  // namespace tfm::emulator

cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  *least = 0, *greatest = -5;
  return cudaSuccess;
}
cudaError_t cudaStreamCreateWithPriority(cudaStream_t* s, unsigned, int) {
  if (tfm::emulator::runtime.full) return cudaErrorMemoryAllocation;
  *s = streams.emplace_back(new CUstream_st);
  return cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t s) {
  std::erase(streams, s);
  delete s;
  return cudaSuccess;
}
cudaError_t cudaStreamSynchronize(cudaStream_t s) {
  tfm::emulator::refuse_in_capture("cudaStreamSynchronize");
  ++runtime.synchronized;
  if (runtime.on_wait) runtime.on_wait();
  tfm::emulator::finish(s);
  return cudaSuccess;
}

cudaError_t cudaStreamBeginCapture(cudaStream_t s, cudaStreamCaptureMode) {
  if (std::exchange(runtime.capturing, true)) return cudaErrorStreamCaptureUnsupported;
  capture = Capture{s};
  captures = true;
  return cudaSuccess;
}
cudaError_t cudaStreamIsCapturing(cudaStream_t s, cudaStreamCaptureStatus* status) {
  *status = runtime.capturing && (!capture || capture->members.contains(s))
                ? cudaStreamCaptureStatusActive
                : cudaStreamCaptureStatusNone;
  return cudaSuccess;
}
cudaError_t cudaStreamEndCapture(cudaStream_t s, cudaGraph_t* graph) {
  runtime.capturing = captures = false;
  const Capture ended = *std::exchange(capture, {});
  *graph = new FakeGraph{std::exchange(runtime.recorded, {}), std::exchange(runtime.kept, {})};
  const Covered& known = ended.members.at(s);
  for (const auto& [member, covered] : ended.members) {
    const auto own = covered.find(member), joined = known.find(member);
    if (own != covered.end() && (joined == known.end() || joined->second < own->second))
      return cudaErrorStreamCaptureUnjoined;
  }
  return s == ended.origin ? cudaSuccess : cudaErrorStreamCaptureUnsupported;
}

cudaError_t cudaEventCreate(cudaEvent_t* e) {
  *e = new CUevent_st;
  return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t e, cudaStream_t s) {
  if (runtime.capturing) {
    tfm::emulator::record(s, [=] { cudaEventRecord(e, s); });
    if (capture) e->captured = capture->identity, e->covers = capture->members.at(s);
    return cudaSuccess;
  }
  e->time = runtime.clock;
  const auto mark = e->mark = std::make_shared<Mark>(s, s->seen);
  mark->seen[s->kernels] = *s->kernels;
  if (s->work.empty())
    mark->passed = true;
  else
    s->work.push_back([mark] { return mark->passed = true; });
  return cudaSuccess;
}
cudaError_t cudaEventQuery(cudaEvent_t e) {
  tfm::emulator::refuse_in_capture("cudaEventQuery");
  return !e->mark || e->mark->passed ? cudaSuccess : cudaErrorNotReady;
}
cudaError_t cudaEventSynchronize(cudaEvent_t e) {
  tfm::emulator::refuse_in_capture("cudaEventSynchronize");
  ++runtime.synchronized;
  if (runtime.on_wait) runtime.on_wait();
  if (e->mark) tfm::emulator::wait_until([mark = e->mark] { return pass(*mark); });
  return cudaSuccess;
}
cudaError_t cudaStreamWaitEvent(cudaStream_t s, cudaEvent_t e, unsigned flags) {
  if (runtime.event_waits++ == runtime.ignored_wait) return cudaSuccess;
  if (capture) {
    const bool inside = e->captured.lock() == capture->identity;
    if (!inside && capture->members.contains(s)) return cudaErrorStreamCaptureIsolation;
    if (inside)
      for (const auto& [other, pieces] : e->covers) {
        long& known = capture->members[s][other];
        known = std::max(known, pieces);
      }
  }
  if (runtime.capturing) {
    tfm::emulator::record(s, [=] { cudaStreamWaitEvent(s, e, flags); });
    return cudaSuccess;
  }
  const auto mark = e->mark;
  if (!mark || mark->on == s) return cudaSuccess;
  for (const auto& [other, kernels] : mark->seen)
    if (other != s->kernels) s->seen[other] = std::max(s->seen[other], kernels);
  if (!mark->passed) s->work.push_back([mark] { return pass(*mark); });
  return cudaSuccess;
}
cudaError_t cudaEventElapsedTime(float* ms, cudaEvent_t before, cudaEvent_t after) {
  tfm::emulator::refuse_in_capture("cudaEventElapsedTime");
  *ms = after->time - before->time;
  return cudaSuccess;
}
cudaError_t cudaEventDestroy(cudaEvent_t e) {
  delete e;
  return cudaSuccess;
}
