#pragma once
// Collectives over tensors of GPUs by NCCL, enqueued on streams: the host waits only where it
// synchronizes one. The order in which NCCL sums is its own: the same on every run of the same
// layout, another one than rank order; 16-bit sums may round on the way; a maximum may ignore NaN.
//
// all_reduce, reduce_scatter, all_gather, ring_shift and broadcast are enqueued on the stream of
// the kernels, and may be captured in a CUDA graph. start puts a collective on a stream beside it,
// after the kernels so far, and finish makes the kernels that follow wait for it; a capture has to
// contain both, and should follow a step that was not captured, which makes the connections. The
// flight recorder does not see the replay of what was captured. A barrier is the host's.
//
// Messages between the stages of a pipeline have a communicator for each channel, because what one
// communicator was given is done in order, and what a rank gave to all of them begins in order
// (NCCL_LAUNCH_ORDER_IMPLICIT; side by side from CUDA 12.3 on): a send that waits for its receiver
// holds back nothing but the next one of its channel, and that, until it can begin, all behind it.
// send copies on the stream of the kernels and sends on a stream of the channel; receive is on the
// stream of the kernels. They are not captured.
#include <set>

#include "comm/mesh.h"
#include "comm/messages.h"
#include "device/stream.h"

namespace tfm::comm {

// Where the ranks of a job compute.
struct Placement {
  bool one_node = true, own_gpus = true;
};

// The same groups for tensors that kernels of `kernels` write; all ranks of the mesh call it. Their
// first connection may take `timeout` seconds, then Error(retryable). Where ranks share a GPU, NCCL
// is told that each has a node of its own. `channels`: those of the messages that this rank sends
// or receives, which both ends name. `kernels` must outlive the result. Where NCCL is not built in,
// there is no definition.
Mesh nccl_mesh(const Mesh& mesh, cuda::Stream& kernels, const Placement& placement, double timeout,
               const std::set<Channel>& channels);

}  // namespace tfm::comm
