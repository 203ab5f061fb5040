#pragma once
// What the files of the NCCL transport share.
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
#include "comm/messages.h"
#include "device/cuda/event.h"

namespace tfm::comm {

void check_nccl(ncclResult_t status, ncclComm_t comm, const std::string& call);

// What the groups of a mesh share: streams, NCCL's communicators, and a thread that tells the
// flight recorder what the device has completed. The thread is neither the rank's own nor the
// watchdog's, because a call of CUDA may last as long as what it asks about.
class NcclQueue {
 public:
  NcclQueue(cuda::Stream& kernels, std::shared_ptr<FlightRecorder> recorder)
      : kernels_(kernels), recorder_(std::move(recorder)) {}
  ~NcclQueue();
  NcclQueue(const NcclQueue&) = delete;
  NcclQueue& operator=(const NcclQueue&) = delete;

  cuda::Stream& kernels() { return kernels_; }

  // Makes the communicator; of all ranks in one order. An Error tells the ranks of `what`. They are
  // torn down in the order of their making, which must be one for all ranks.
  ncclComm_t connect(const ncclUniqueId& id, int rank, int size, AxisSet axes,
                     const std::string& what, double timeout);
  // For what this communicator does beside the kernels.
  cudaStream_t beside(ncclComm_t comm) const;
  void start();

  // Enqueues call(elements, type) for the longest of its tensors, `whole`; nothing where that is
  // empty. The recorder sees it, unless it is captured. `peer`: of a message, a rank of the job.
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

// Messages of `channels` between the ranks along the pipeline's axis.
std::shared_ptr<Communicator> nccl_messages(Mesh mesh, std::shared_ptr<NcclQueue> queue,
                                            const std::set<Channel>& channels, double timeout);

}  // namespace tfm::comm
