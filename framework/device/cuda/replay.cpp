// CUDA implementation of device/replay.h.
#include "device/replay.h"

#include <utility>

#include "device/cuda/stream.h"

namespace tfm::device {
namespace {

struct Graph {
  cudaGraph_t recorded = nullptr;
  cudaGraphExec_t executable = nullptr;
  ~Graph() {
    if (executable) cudaGraphExecDestroy(executable);
    if (recorded) cudaGraphDestroy(recorded);
  }
};

// Captures a graph. Ends the capture, too, when the work throws, and then drops the graph.
class Recording {
 public:
  Recording(cudaStream_t stream, cudaGraph_t& graph) : stream_(stream), graph_(graph) {
    cuda::check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  }
  ~Recording() {
    if (open_ && cudaStreamEndCapture(stream_, &graph_) != cudaSuccess) cudaGetLastError();
  }
  Recording(const Recording&) = delete;
  Recording& operator=(const Recording&) = delete;
  void end() {
    open_ = false;
    cuda::check(cudaStreamEndCapture(stream_, &graph_));
  }

 private:
  cudaStream_t stream_;
  cudaGraph_t& graph_;
  bool open_ = true;
};

}  // namespace

void Replay::run(cuda::Stream& stream, const std::function<void()>& work) {
  if (!std::exchange(ran_, true)) return work();
  if (!graph_) {
    auto graph = std::make_shared<Graph>();
    // Returns to the device what the first run allocated to choose algorithms.
    cudaMemPool_t pool = nullptr;
    stream.wait();
    cuda::check(cudaDeviceGetDefaultMemPool(&pool, stream.device()));
    cuda::check(cudaMemPoolTrimTo(pool, 0));
    {
      Recording recording(stream.get(), graph->recorded);
      work();
      recording.end();
    }
    cuda::check(cudaGraphInstantiate(&graph->executable, graph->recorded, 0));
    graph_ = std::move(graph);
  }
  cuda::check(cudaGraphLaunch(static_cast<Graph*>(graph_.get())->executable, stream.get()));
}

}  // namespace tfm::device
