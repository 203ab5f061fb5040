#pragma once
// Collectives over GPU tensors by NCCL, enqueued on streams: the host waits only where it
// synchronizes a stream. NCCL chooses the order of a sum: the same in every run of one layout, but
// not rank order. 16-bit sums may be rounded at intermediate steps; a maximum may ignore NaN.
//
// all_reduce, reduce_scatter, all_gather, ring_shift, all_to_all and broadcast are enqueued on the
// kernel stream and may be captured in a CUDA graph. start() enqueues a collective on a side
// stream, after the kernels enqueued so far, and finish() makes the following kernels wait for it.
// A capture must contain both and should follow an uncaptured step, which makes the connections.
// The flight recorder does not see replays of captured collectives. A barrier is performed by the
// host.
//
// Pipeline messages have one NCCL communicator per channel, because the operations of one
// communicator run in order. What a rank enqueues to different communicators begins in order
// (NCCL_LAUNCH_ORDER_IMPLICIT), side by side from CUDA 12.3 on; older drivers are refused. A send
// that waits for its receiver thus holds back only the next send of its channel, and that one,
// until it can begin, everything enqueued after it. Two neighbours may each have a send that waits
// for the other's receive, so streams must progress independently, which CUDA does not promise: as
// many queues as a GPU has are asked for (mpi_state.h), and a side stream is made only for a
// communicator that uses it. send() copies on the kernel stream and sends on the channel's stream;
// receive() runs on the kernel stream. Messages cannot be captured.
#include <set>

#include "comm/mesh.h"
#include "comm/messages.h"
#include "device/stream.h"

namespace tfm::comm {

// Whether a job runs on one node, and whether each of its ranks has a GPU of its own.
struct GpuSharing {
  bool one_node = true, own_gpus = true;
};

// Collective over `mesh`: its groups for tensors written by kernels on the stream `kernels`, which
// must outlive the result. Each connection may take `timeout` seconds, then Error(retryable). If
// ranks share a GPU, NCCL is told that each is on a node of its own. `channels`: the channels on
// which this rank sends or receives; both ends must name them. Not defined in builds without NCCL.
Mesh nccl_mesh(const Mesh& mesh, cuda::Stream& kernels, const GpuSharing& sharing, double timeout,
               const std::set<Channel>& channels);

}  // namespace tfm::comm
