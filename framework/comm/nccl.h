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
#include "comm/mesh.h"
#include "device/stream.h"

namespace tfm::comm {

// Where the ranks of a job compute.
struct Placement {
  bool one_node = true, own_gpus = true;
};

// The same groups for tensors that kernels of `kernels` write; all ranks of the mesh call it. Their
// first connection may take `timeout` seconds, then Error(retryable). Where ranks share a GPU, NCCL
// is told that each has a node of its own. `kernels` must outlive the result. Where NCCL is not
// built in, there is no definition.
Mesh nccl_mesh(const Mesh& mesh, cuda::Stream& kernels, const Placement& placement, double timeout);

}  // namespace tfm::comm
