// The stand-in of NCCL: collectives and messages over MPI, begun when their turn on their stream
// comes. Sums are added as the host adds them. It waits wherever NCCL may:
// - a send is done when its receiver has come, no matter how short it is;
// - what one communicator was given is done in the order of the calls, on whichever stream;
// - what a rank gave to all of its communicators begins in the order of the calls
//   (NCCL_LAUNCH_ORDER_IMPLICIT);
// - the first message between two ranks of a communicator holds up their hosts until both have
//   asked for it, which makes the connection.
#include <dlfcn.h>
#include <linux/futex.h>
#include <mpi.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdarg>
#include <cstring>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <stdexcept>
#include <string>
#include <thread>
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
  bool aborted = false;                     // and never freed: work that was enqueued sees it
  std::set<std::pair<int, int>> connected;  // to whom, to send (1) or to receive (2)
};

namespace {
using tfm::emulator::nccl;
using Bytes = std::vector<char>;

std::string last_error;
const std::thread::id main_thread = std::this_thread::get_id();

// What was asked for since the group began, or alone.
struct Messages {
  const void* in = nullptr;
  void* out = nullptr;
  std::size_t in_bytes = 0, out_bytes = 0;
  int to = -1, from = -1;
  ncclComm_t comm = nullptr;
  cudaStream_t stream = nullptr;
};
std::optional<std::vector<Messages>> group;  // a message out and one in, of each peer in turn

// In the order in which the host made them.
struct Call {
  ncclComm_t comm;
  std::size_t stage = 0;  // the next one
  bool done = false;
  std::vector<MPI_Request> requests;
};
std::deque<std::shared_ptr<Call>> calls;

bool may_begin(const Call& call) {
  while (!calls.empty() && (calls.front()->done || calls.front()->comm->aborted)) calls.pop_front();
  for (const auto& before : calls) {
    if (before.get() == &call) return true;
    if (before->done || before->comm->aborted) continue;
    if (before->stage == 0 || before->comm == call.comm) return false;
  }
  return true;
}

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

MPI_Request gather(const FakeNcclComm& c, const void* in, std::size_t bytes, Bytes& all) {
  MPI_Request request;
  all.resize(bytes * static_cast<std::size_t>(c.size));
  std::memcpy(all.data() + bytes * static_cast<std::size_t>(c.rank), in, bytes);
  MPI_Iallgather(MPI_IN_PLACE, 0, MPI_BYTE, all.data(), static_cast<int>(bytes), MPI_BYTE, c.group,
                 &request);
  return request;
}

bool all_done(std::vector<MPI_Request>& requests) {
  int done = 0;
  PMPI_Testall(static_cast<int>(requests.size()), requests.data(), &done, MPI_STATUSES_IGNORE);
  return done != 0;
}

// One after the other; each gives what has to be waited for before the next.
using Stages = std::vector<std::function<std::vector<MPI_Request>()>>;

ncclResult_t submit(int tfm::emulator::Nccl::*count, ncclComm_t c, cudaStream_t stream,
                    const Stages& stages) {
  if (tfm::emulator::runtime.capturing) {
    tfm::emulator::record(stream, [=] {
      if (submit(count, c, stream, stages) != ncclSuccess) throw std::runtime_error(last_error);
    });
    return ncclSuccess;
  }
  ++(nccl.*count);
  if (!tfm::emulator::follows_kernels(stream)) {
    last_error = "kernels that were given to another stream before may run at the same time";
    return ncclInvalidUsage;
  }
  const auto call = calls.emplace_back(new Call{c});
  tfm::emulator::enqueue(stream, [=] {
    if (c->aborted) return true;
    if (call->stage == 0 && !may_begin(*call)) return false;
    while (all_done(call->requests)) {
      if (call->stage == stages.size()) return call->done = true;
      call->requests = stages[call->stage++]();
    }
    return false;
  });
  return ncclSuccess;
}

template <class F>
ncclResult_t collective(ncclComm_t c, cudaStream_t stream, const void* in, std::size_t bytes,
                        F end) {
  const auto all = std::make_shared<Bytes>();
  return submit(&tfm::emulator::Nccl::calls, c, stream,
                {[=] { return std::vector{gather(*c, in, bytes, *all)}; },
                 [=] { return end(*all), std::vector<MPI_Request>(); }});
}

// Both hosts come to the first message between them.
void connect(const Messages& m) {
  char sent[2] = {}, received[2] = {};
  std::vector<MPI_Request> requests;
  for (const auto& [peer, kind] : {std::pair{m.to, 1}, std::pair{m.from, 2}}) {
    if (peer < 0 || !m.comm->connected.insert({peer, kind}).second) continue;
    MPI_Isend(&sent[kind - 1], 1, MPI_BYTE, peer, kind, m.comm->group, &requests.emplace_back());
    MPI_Irecv(&received[kind - 1], 1, MPI_BYTE, peer, 3 - kind, m.comm->group,
              &requests.emplace_back());
  }
  tfm::emulator::wait_until([&] { return all_done(requests); });
}

// What is sent is read once its receiver has come, and not before, as it may be by NCCL.
ncclResult_t exchange(const std::vector<Messages>& all) {
  constexpr int kReady = 3, kData = 4;  // tags
  struct Copies {
    Bytes sent, received;
  };
  const auto copies = std::make_shared<std::vector<Copies>>();
  for (const Messages& m : all) {
    if (!tfm::emulator::runtime.capturing) connect(m);
    copies->push_back({Bytes(m.in_bytes), Bytes(m.out_bytes)});
  }
  const auto bytes = [](const Bytes& b) { return static_cast<int>(b.size()); };
  const auto meet = [=] {
    std::vector<MPI_Request> requests;
    for (const Messages& m : all) {
      if (m.in)
        MPI_Issend(nullptr, 0, MPI_BYTE, m.to, kReady, m.comm->group, &requests.emplace_back());
      if (m.out)
        MPI_Irecv(nullptr, 0, MPI_BYTE, m.from, kReady, m.comm->group, &requests.emplace_back());
    }
    return requests;
  };
  const auto transfer = [=] {
    std::vector<MPI_Request> requests;
    for (std::size_t i = 0; i < all.size(); ++i) {
      const Messages& m = all[i];
      auto& [sent, received] = (*copies)[i];
      if (m.in) {
        std::memcpy(sent.data(), m.in, m.in_bytes);
        MPI_Isend(sent.data(), bytes(sent), MPI_BYTE, m.to, kData, m.comm->group,
                  &requests.emplace_back());
      }
      if (m.out)
        MPI_Irecv(received.data(), bytes(received), MPI_BYTE, m.from, kData, m.comm->group,
                  &requests.emplace_back());
    }
    return requests;
  };
  const auto deliver = [=] {
    for (std::size_t i = 0; i < all.size(); ++i)
      if (all[i].out) std::memcpy(all[i].out, (*copies)[i].received.data(), all[i].out_bytes);
    return std::vector<MPI_Request>();
  };
  const Messages& first = all.front();
  return submit(
      first.in && first.out ? &tfm::emulator::Nccl::calls : &tfm::emulator::Nccl::messages,
      first.comm, first.stream, {meet, transfer, deliver});
}
}  // namespace

// The host asks for messages that have come, or sleeps until another process wakes it: meanwhile a
// device works on.
int MPI_Testall(int count, MPI_Request* requests, int* done, MPI_Status* statuses) {
  tfm::emulator::work_on();
  return PMPI_Testall(count, requests, done, statuses);
}
extern "C" long syscall(long number, ...) noexcept {
  long a[6];
  va_list arguments;
  va_start(arguments, number);
  for (long& x : a) x = va_arg(arguments, long);
  va_end(arguments);
  const bool sleeps = number == SYS_futex && (a[1] & FUTEX_CMD_MASK) == FUTEX_WAIT;
  if (sleeps && std::this_thread::get_id() == main_thread) {
    tfm::emulator::work_on();
    if (tfm::emulator::waiting() > 0) return usleep(50);
  }
  using Syscall = long (*)(long, ...);
  static const auto real = reinterpret_cast<Syscall>(dlsym(RTLD_NEXT, "syscall"));
  return real(number, a[0], a[1], a[2], a[3], a[4], a[5]);
}

const char* ncclGetErrorString(ncclResult_t r) {
  return r == ncclInvalidUsage  ? "invalid usage"
         : r == ncclRemoteError ? "remote error"
                                : "no error";
}
const char* ncclGetLastError(ncclComm_t) { return last_error.c_str(); }

ncclResult_t ncclGetVersion(int* version) {
  *version = nccl.version;
  return ncclSuccess;
}
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
  std::erase_if(calls, [&](const auto& call) { return call->comm == c; });
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
  return collective(c, s, in, n * width(t),
                    [=](const Bytes& all) { fold(all, n, 0, n, t, op, out); });
}
ncclResult_t ncclReduceScatter(const void* in, void* out, std::size_t n, ncclDataType_t t,
                               ncclRedOp_t op, ncclComm_t c, cudaStream_t s) {
  const auto ranks = static_cast<std::size_t>(c->size), rank = static_cast<std::size_t>(c->rank);
  return collective(c, s, in, ranks * n * width(t),
                    [=](const Bytes& all) { fold(all, ranks * n, rank * n, n, t, op, out); });
}
ncclResult_t ncclAllGather(const void* in, void* out, std::size_t n, ncclDataType_t t, ncclComm_t c,
                           cudaStream_t s) {
  return collective(c, s, in, n * width(t),
                    [=](const Bytes& all) { std::memcpy(out, all.data(), all.size()); });
}
ncclResult_t ncclGroupStart() {
  group.emplace();
  return ncclSuccess;
}
ncclResult_t ncclSend(const void* in, std::size_t n, ncclDataType_t t, int peer, ncclComm_t c,
                      cudaStream_t s) {
  const Messages m{.in = in, .in_bytes = n * width(t), .to = peer, .comm = c, .stream = s};
  if (!group) return exchange({m});
  group->push_back(m);
  return ncclSuccess;
}
ncclResult_t ncclRecv(void* out, std::size_t n, ncclDataType_t t, int peer, ncclComm_t c,
                      cudaStream_t s) {
  const Messages m{.out = out, .out_bytes = n * width(t), .from = peer, .comm = c, .stream = s};
  if (!group) return exchange({m});
  if (group->empty()) return ncclInvalidUsage;
  Messages& last = group->back();
  if (last.out || last.comm != c || last.stream != s) return ncclInvalidUsage;
  last.out = out, last.out_bytes = m.out_bytes, last.from = peer;
  return ncclSuccess;
}
ncclResult_t ncclGroupEnd() {
  const std::vector<Messages> all = *std::exchange(group, std::nullopt);
  return all.empty() ? ncclSuccess : exchange(all);
}
ncclResult_t ncclBroadcast(const void* in, void* out, std::size_t n, ncclDataType_t t, int root,
                           ncclComm_t c, cudaStream_t s) {
  const auto bytes = std::make_shared<Bytes>(n * width(t));
  return submit(&tfm::emulator::Nccl::calls, c, s,
                {[=] {
                   if (c->rank == root) std::memcpy(bytes->data(), in, bytes->size());
                   std::vector<MPI_Request> request(1);
                   MPI_Ibcast(bytes->data(), static_cast<int>(bytes->size()), MPI_BYTE, root,
                              c->group, request.data());
                   return request;
                 },
                 [=] {
                   std::memcpy(out, bytes->data(), bytes->size());
                   return std::vector<MPI_Request>();
                 }});
}
