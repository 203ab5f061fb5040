// The stand-in of NCCL: collectives over MPI, done when their turn on their stream comes. Sums are
// added as the host adds them.
#include <mpi.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "core/dtype.h"
#include "fake_nccl.h"
#include "fake_runtime.h"

namespace tfm::emulator {
Nccl nccl;
}

struct FakeNcclComm {
  MPI_Comm group = MPI_COMM_NULL;
  int rank = 0, size = 1;
  bool aborted = false;  // and never freed: work that was enqueued sees it
};

namespace {
using tfm::emulator::nccl;
using Bytes = std::vector<char>;

std::string last_error;

// What was asked for since the group began.
struct Messages {
  const void* in = nullptr;
  void* out = nullptr;
  std::size_t bytes = 0;
  int to = 0, from = 0;
  ncclComm_t comm = nullptr;
  cudaStream_t stream = nullptr;
};
std::optional<Messages> group;

struct Id {
  int root, tag;
};

template <class F>
void typed(ncclDataType_t t, F&& f) {
  switch (t) {
    case ncclInt32:
      return f(std::int32_t{});
    case ncclInt64:
      return f(std::int64_t{});
    case ncclFloat16:
      return f(tfm::f16{});
    case ncclFloat32:
      return f(float{});
    case ncclFloat64:
      return f(double{});
    case ncclBfloat16:
      return f(tfm::bf16{});
  }
}

std::size_t width(ncclDataType_t t) {
  std::size_t bytes = 0;
  typed(t, [&](auto v) { bytes = sizeof v; });
  return bytes;
}

// `bytes` of every rank.
Bytes everything(const FakeNcclComm& c, const void* in, std::size_t bytes) {
  Bytes all(bytes * static_cast<std::size_t>(c.size));
  MPI_Allgather(in, static_cast<int>(bytes), MPI_BYTE, all.data(), static_cast<int>(bytes),
                MPI_BYTE, c.group);
  return all;
}

// Elements [first, first + n) of what ranks gave, `each` elements a rank.
void fold(const Bytes& all, std::size_t each, std::size_t first, std::size_t n, ncclDataType_t type,
          ncclRedOp_t op, void* out) {
  typed(type, [&]<class T>(T) {
    using W = tfm::Accum<T>;
    const T* from = reinterpret_cast<const T*>(all.data());
    const auto both = [&](W a, W b) {
      if constexpr (std::is_floating_point_v<W>)
        return op == ncclSum ? a + b : std::fmax(a, b);
      else
        return op == ncclSum ? static_cast<W>(static_cast<std::make_unsigned_t<W>>(a) +
                                              static_cast<std::make_unsigned_t<W>>(b))
                             : std::max(a, b);
    };
    const auto sum = [&](const auto& self, std::size_t rank, std::size_t ranks,
                         std::size_t i) -> W {
      if (ranks == 1) return static_cast<W>(from[rank * each + i]);
      const std::size_t half = ranks / 2;
      return both(self(self, rank, half, i), self(self, rank + half, ranks - half, i));
    };
    for (std::size_t i = 0; i < n; ++i)
      static_cast<T*>(out)[i] =
          static_cast<T>(sum(sum, 0, all.size() / sizeof(T) / each, first + i));
  });
}

template <class F>
ncclResult_t collective(ncclComm_t c, cudaStream_t stream, F work) {
  if (tfm::emulator::runtime.capturing) {
    tfm::emulator::record(stream, [=] {
      if (collective(c, stream, work) != ncclSuccess) throw std::runtime_error(last_error);
    });
    return ncclSuccess;
  }
  ++nccl.calls;
  if (!tfm::emulator::follows_kernels(stream)) {
    last_error = "kernels that were given to another stream before may run at the same time";
    return ncclInvalidUsage;
  }
  tfm::emulator::enqueue(stream, [c, work] {
    if (!c->aborted) work();
  });
  return ncclSuccess;
}
}  // namespace

// The host asks for messages that have come: meanwhile a device works on.
int MPI_Testall(int count, MPI_Request* requests, int* done, MPI_Status* statuses) {
  if (!tfm::emulator::runtime.capturing) tfm::emulator::finish_all();
  return PMPI_Testall(count, requests, done, statuses);
}

const char* ncclGetErrorString(ncclResult_t r) {
  return r == ncclInvalidUsage  ? "invalid usage"
         : r == ncclRemoteError ? "remote error"
                                : "no error";
}
const char* ncclGetLastError(ncclComm_t) { return last_error.c_str(); }

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  static int tag = 1000;
  Id made{0, ++tag};
  MPI_Comm_rank(MPI_COMM_WORLD, &made.root);
  std::memcpy(id->internal, &made, sizeof made);
  return ncclSuccess;
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int ranks, ncclUniqueId id, int rank,
                                    ncclConfig_t* config) {
  if (config->blocking != 1) return ncclInvalidUsage;
  Id made;
  std::memcpy(&made, id.internal, sizeof made);
  int world = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &world);
  std::vector<int> members(static_cast<std::size_t>(ranks));
  const int mine[2] = {rank, world};
  MPI_Request sent;
  MPI_Isend(mine, 2, MPI_INT, made.root, made.tag, MPI_COMM_WORLD, &sent);
  if (world == made.root) {
    for (int i = 0; i < ranks; ++i) {
      int other[2];
      MPI_Recv(other, 2, MPI_INT, MPI_ANY_SOURCE, made.tag, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
      members[static_cast<std::size_t>(other[0])] = other[1];
    }
    for (const int to : members)
      if (to != world) MPI_Send(members.data(), ranks, MPI_INT, to, made.tag, MPI_COMM_WORLD);
  } else {
    MPI_Recv(members.data(), ranks, MPI_INT, made.root, made.tag, MPI_COMM_WORLD,
             MPI_STATUS_IGNORE);
  }
  MPI_Wait(&sent, MPI_STATUS_IGNORE);
  *comm = new FakeNcclComm{.rank = rank, .size = ranks};
  MPI_Group all, group;
  MPI_Comm_group(MPI_COMM_WORLD, &all);
  MPI_Group_incl(all, ranks, members.data(), &group);
  MPI_Comm_create_group(MPI_COMM_WORLD, group, made.tag, &(*comm)->group);
  MPI_Group_free(&group);
  MPI_Group_free(&all);
  ++nccl.communicators;
  return ncclSuccess;
}
ncclResult_t ncclCommGetAsyncError(ncclComm_t, ncclResult_t* status) {
  *status = nccl.async_error;
  return ncclSuccess;
}
ncclResult_t ncclCommDestroy(ncclComm_t c) {
  ++nccl.destroyed;
  MPI_Comm_free(&c->group);
  delete c;
  return ncclSuccess;
}
ncclResult_t ncclCommAbort(ncclComm_t c) {
  ++nccl.aborted;
  c->aborted = true;
  return ncclSuccess;
}

ncclResult_t ncclAllReduce(const void* in, void* out, std::size_t n, ncclDataType_t t,
                           ncclRedOp_t op, ncclComm_t c, cudaStream_t s) {
  return collective(c, s, [=] { fold(everything(*c, in, n * width(t)), n, 0, n, t, op, out); });
}
ncclResult_t ncclReduceScatter(const void* in, void* out, std::size_t n, ncclDataType_t t,
                               ncclRedOp_t op, ncclComm_t c, cudaStream_t s) {
  return collective(c, s, [=] {
    const auto ranks = static_cast<std::size_t>(c->size);
    fold(everything(*c, in, ranks * n * width(t)), ranks * n, static_cast<std::size_t>(c->rank) * n,
         n, t, op, out);
  });
}
ncclResult_t ncclAllGather(const void* in, void* out, std::size_t n, ncclDataType_t t, ncclComm_t c,
                           cudaStream_t s) {
  return collective(c, s, [=] {
    const Bytes all = everything(*c, in, n * width(t));
    std::memcpy(out, all.data(), all.size());
  });
}
ncclResult_t ncclGroupStart() {
  group.emplace();
  return ncclSuccess;
}
ncclResult_t ncclSend(const void* in, std::size_t n, ncclDataType_t t, int peer, ncclComm_t c,
                      cudaStream_t s) {
  if (!group || group->in) return ncclInvalidUsage;
  group->in = in, group->bytes = n * width(t), group->to = peer, group->comm = c, group->stream = s;
  return ncclSuccess;
}
ncclResult_t ncclRecv(void* out, std::size_t n, ncclDataType_t t, int peer, ncclComm_t c,
                      cudaStream_t s) {
  if (!group || group->out || group->comm != c || group->stream != s ||
      group->bytes != n * width(t))
    return ncclInvalidUsage;
  group->out = out, group->from = peer;
  return ncclSuccess;
}
ncclResult_t ncclGroupEnd() {
  const Messages m = *std::exchange(group, std::nullopt);
  if (!m.in) return ncclSuccess;
  return collective(m.comm, m.stream, [=] {
    MPI_Request sent;
    MPI_Isend(m.in, static_cast<int>(m.bytes), MPI_BYTE, m.to, 0, m.comm->group, &sent);
    MPI_Recv(m.out, static_cast<int>(m.bytes), MPI_BYTE, m.from, 0, m.comm->group,
             MPI_STATUS_IGNORE);
    MPI_Wait(&sent, MPI_STATUS_IGNORE);
  });
}
ncclResult_t ncclBroadcast(const void* in, void* out, std::size_t n, ncclDataType_t t, int root,
                           ncclComm_t c, cudaStream_t s) {
  return collective(c, s, [=] {
    if (c->rank == root && in != out) std::memcpy(out, in, n * width(t));
    MPI_Bcast(out, static_cast<int>(n * width(t)), MPI_BYTE, root, c->group);
  });
}
