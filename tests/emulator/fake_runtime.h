#pragma once
// What tests may set and see of the stand-ins of the CUDA runtime and cuBLASLt.
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "cuda_runtime.h"

namespace tfm::emulator {

struct Runtime {
  int devices = 1;                                // 0: no driver that can be used
  int driver = 13000;                             // its version; 0: there is none
  std::vector<int> capability = {90};             // of each device
  std::size_t free_bytes = std::size_t{1} << 40;  // an allocation of more fails
  std::size_t held_bytes = 1000;                  // by all programs
  bool full = false;                              // no program can start on the device
  bool late = false;  // nothing is done before somebody waits for it, and the host cannot touch the
                      // device's memory
  bool capturing = false;  // work of streams is recorded instead of done
  std::vector<std::function<void()>> recorded;
  std::vector<void*> kept;  // memory that recorded work uses
  long graph_launches = 0, scratch_allocations = 0;
  long event_waits = 0,
       ignored_wait = -1;  // of streams for events, so far; the one that does nothing
  std::string bus_id = "0000:00:00.0";
  long synchronized = 0;          // times that the host waited for a stream or an event
  std::function<void()> on_wait;  // called when it begins to
  float clock = 0;                // milliseconds
  std::vector<float> cost = {3, 1,
                             2};  // milliseconds a product takes by algorithm; 0: it is refused
  float epilogue_cost =
      0.75f;  // of a gradient: times that of the product alone; 0: no algorithm has that epilogue
  long gradient_epilogues = 0;            // products with one
  bool bias_epilogue = true;              // false: no algorithm has it
  std::size_t unproposed = 0;             // of the last algorithms, for a product with a bias
  std::vector<std::uint64_t> algorithms;  // used by the products so far
  double product_flops = 0;               // of them, those that measure among them
};
extern Runtime runtime;

// Kernels, products and copies are done in the call that gives them to a stream, unless `late`;
// other work as late as possible: before the stream's next kernel, or when somebody waits for it.
// `work` returns whether it is done; what waits for another rank is not, and is asked again, while
// other streams go on.
void enqueue(cudaStream_t, std::function<bool()> work);
std::size_t waiting(cudaStream_t);  // pieces of work that are not done
std::size_t waiting();              // of all streams
void finish(cudaStream_t);          // does them
void finish_all();                  // of all streams
bool work_on();                     // what need not wait for another rank, of all streams
void wait_until(const std::function<bool()>& done);  // the host; the device works on
void let_the_host_touch_device_memory(
    bool);  // which it cannot where `late` was set when the memory was made
// Whether work enqueued now is ordered after all kernels so far of the streams that this one ever
// waited for, of which there is one; or kernels run on the stream itself.
bool follows_kernels(cudaStream_t);

// A kernel, a product or a copy: done now, late, or when a graph is launched that is being
// captured. It owns all that it reads but memory of the device and page-locked memory.
void submit(cudaStream_t, std::function<void()> work);

// Into the graph that is being captured. Throws std::logic_error for a stream that no event ties to
// the capture: its work would be done once, at once.
void record(cudaStream_t, std::function<void()> work);
// Throws std::logic_error in the thread that captures: the call cannot be captured, and invalidates
// the capture.
void refuse_in_capture(const char* call);

}  // namespace tfm::emulator

struct FakeGraph {
  std::vector<std::function<void()>> work;
  std::vector<void*> kept;
};
