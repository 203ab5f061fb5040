#pragma once
// Internals of the NCCL transport.
#include <nccl.h>

#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "comm/flight_recorder.h"
#include "comm/mesh.h"
#include "comm/messages.h"
#include "device/cuda/event.h"

namespace tfm::comm {

void check_nccl(ncclResult_t status, ncclComm_t comm, const std::string& call);

// State shared by the groups of a mesh: streams, NCCL communicators, and a thread that reports to
// the flight recorder what the device has completed. The thread is neither the rank's main thread
// nor the watchdog's, because a CUDA call may block as long as the work that it asks about.
class NcclQueue {
 public:
  NcclQueue(cuda::Stream& kernels, std::shared_ptr<FlightRecorder> recorder)
      : kernels_(kernels), recorder_(std::move(recorder)) {}
  ~NcclQueue();
  NcclQueue(const NcclQueue&) = delete;
  NcclQueue& operator=(const NcclQueue&) = delete;

  cuda::Stream& kernels() { return kernels_; }

  // Makes a communicator. All ranks must make theirs in the same order, in which they are also
  // destroyed. `what` names the group in errors; Error(retryable) after `timeout` seconds.
  ncclComm_t connect(const ncclUniqueId& id, int rank, int size, AxisSet axes,
                     const std::string& what, double timeout);
  // The side stream of `comm`, for operations that overlap kernels; made when first asked for.
  cudaStream_t beside(ncclComm_t comm);
  void start();

  // Enqueues call(elements, type) for `whole`, the longest tensor of the collective; nothing if it
  // is empty. The flight recorder sees it unless it is captured. `peer`: a message's other rank in
  // the job.
  using Call = std::function<ncclResult_t(std::size_t, ncclDataType_t)>;
  void run(Collective op, AxisSet axes, const Tensor& whole, ncclComm_t comm, cudaStream_t stream,
           const Call& call, int peer = -1);

 private:
  struct Connection {
    ncclComm_t comm;
    AxisSet axes;
    std::unique_ptr<cuda::Stream> beside;
  };
  struct Pending {
    Event event;
    cuda::Event done;
  };

  void enqueued(const Event& event, cudaStream_t stream);
  cuda::Event take();
  void watch();
  void settle();
  void look_for_errors();

  cuda::Stream& kernels_;
  std::shared_ptr<FlightRecorder> recorder_;
  std::vector<Connection> connections_;
  std::mutex mutex_;
  std::condition_variable wake_;
  bool stop_ = false;
  std::deque<Pending> pending_;
  std::vector<cuda::Event> spare_;
  std::thread thread_;
};

std::shared_ptr<Messages> nccl_messages(const Mesh& mesh, std::shared_ptr<NcclQueue> queue,
                                        const std::set<Channel>& channels, double timeout);

}  // namespace tfm::comm
