#include "comm/nccl.h"

#ifdef TFM_NCCL
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <vector>

#include "comm/consensus.h"
#include "comm/nccl_state.h"
#include "core/host.h"

namespace tfm::comm {
namespace {

class NcclCommunicator final : public Communicator {
 public:
  NcclCommunicator(std::shared_ptr<Communicator> host, AxisSet axes, ncclComm_t comm,
                   std::shared_ptr<NcclQueue> queue)
      : host_(std::move(host)), axes_(axes), comm_(comm), queue_(std::move(queue)) {}
  int rank() const override { return host_->rank(); }
  int size() const override { return host_->size(); }

  void all_reduce(Tensor t, Collective kind) override {
    TFM_CHECK(kind <= Collective::all_reduce_max, "all_reduce supports sum and maximum");
    enqueue(kind, t, t, kernels());
  }
  void reduce_scatter(Tensor in, Tensor out) override {
    enqueue(Collective::reduce_scatter, in, out, kernels());
  }
  void all_gather(Tensor in, Tensor out) override {
    enqueue(Collective::all_gather, in, out, kernels());
  }
  void ring_shift(Tensor in, Tensor out) override {
    enqueue(Collective::ring_shift, in, out, kernels());
  }
  void all_to_all(Tensor in, Tensor out) override {
    enqueue(Collective::all_to_all, in, out, kernels());
  }
  void broadcast(Tensor t, int root) override {
    TFM_CHECK(root >= 0 && root < size(), "the root must be a rank of the group");
    run(Collective::broadcast, t, kernels(), [&](std::size_t n, ncclDataType_t type) {
      return ncclBroadcast(t.data, t.data, n, type, root, comm_, kernels());
    });
  }
  void barrier() override { host_->barrier(); }
  bool on_stream() const override { return true; }

  Ticket start(Collective kind, Tensor in, Tensor out) override {
    const cudaStream_t beside = queue_->beside(comm_);
    ready_.record(kernels());
    ready_.hold_back(beside);
    enqueue(kind, in, out, beside);
    Ticket ticket = free_.empty() ? done_.size() : free_.back();
    if (free_.empty())
      done_.emplace_back();
    else
      free_.pop_back();
    done_[ticket].record(beside);
    return ticket;
  }
  void finish(Ticket ticket) override {
    TFM_CHECK(ticket < done_.size() && std::ranges::find(free_, ticket) == free_.end(),
              "no such collective is under way");
    done_[ticket].hold_back(kernels());
    free_.push_back(ticket);
  }

 private:
  cudaStream_t kernels() const { return queue_->kernels().get(); }
  // `whole`: the longer of the collective's tensors.
  void run(Collective op, const Tensor& whole, cudaStream_t stream, const NcclQueue::Call& call) {
    queue_->run(op, axes_, whole, comm_, stream, call);
  }

  void enqueue(Collective kind, const Tensor& in, const Tensor& out, cudaStream_t stream) {
    TFM_CHECK(in.dtype == out.dtype, "`in` and `out` have one type");
    const bool gathers = kind == Collective::all_gather,
               scatters = kind == Collective::reduce_scatter;
    TFM_CHECK(in.elements() * (gathers ? size() : 1) == out.elements() * (scatters ? size() : 1),
              "the longer tensor must hold one of the shorter per rank");
    run(kind, gathers ? out : in, stream, [&](std::size_t, ncclDataType_t type) {
      const auto each = static_cast<std::size_t>(gathers ? in.elements() : out.elements());
      if (kind == Collective::ring_shift) return shift(in, out, each, type, stream);
      if (kind == Collective::all_to_all) return exchange(in, out, type, stream);
      if (gathers) return ncclAllGather(in.data, out.data, each, type, comm_, stream);
      if (scatters) return ncclReduceScatter(in.data, out.data, each, type, ncclSum, comm_, stream);
      const ncclRedOp_t op = kind == Collective::all_reduce_max ? ncclMax : ncclSum;
      return ncclAllReduce(in.data, out.data, each, type, op, comm_, stream);
    });
  }

  ncclResult_t shift(const Tensor& in, const Tensor& out, std::size_t n, ncclDataType_t type,
                     cudaStream_t stream) {
    ncclGroupStart();
    const ncclResult_t sent = ncclSend(in.data, n, type, next(), comm_, stream),
                       received = ncclRecv(out.data, n, type, previous(), comm_, stream),
                       ended = ncclGroupEnd();
    return sent != ncclSuccess ? sent : received != ncclSuccess ? received : ended;
  }

  ncclResult_t exchange(const Tensor& in, const Tensor& out, ncclDataType_t type,
                        cudaStream_t stream) {
    const auto n = static_cast<std::size_t>(in.elements() / size());
    const std::int64_t bytes = in.bytes() / size();
    ncclResult_t status = ncclGroupStart();
    for (int r = 0; r < size() && status == ncclSuccess; ++r) {
      status = ncclSend(static_cast<std::byte*>(in.data) + r * bytes, n, type, r, comm_, stream);
      if (status == ncclSuccess)
        status = ncclRecv(static_cast<std::byte*>(out.data) + r * bytes, n, type, r, comm_, stream);
    }
    const ncclResult_t ended = ncclGroupEnd();
    return status != ncclSuccess ? status : ended;
  }

  std::shared_ptr<Communicator> host_;
  AxisSet axes_;
  ncclComm_t comm_;
  std::shared_ptr<NcclQueue> queue_;
  cuda::Event ready_;
  std::vector<cuda::Event> done_;  // by ticket
  std::vector<Ticket> free_;
};

// What NCCL reads at its first call; what the user has set stays.
void set_environment(int rank, const GpuSharing& sharing) {
  const auto set = [](const char* name, const std::string& value) {
    setenv(name, value.c_str(), 0);
  };
  set("NCCL_LAUNCH_ORDER_IMPLICIT",
      "1");  // groups that run at once start in the host's order, which is the same on all ranks
  if (sharing.own_gpus) return;
  set("NCCL_HOSTID", "tfm-" + std::to_string(rank));
  for (const char* off :
       {"NCCL_MNNVL_ENABLE", "NCCL_NVLS_ENABLE", "NCCL_CUMEM_HOST_ENABLE", "NCCL_RAS_ENABLE"})
    set(off, "0");
  set("NCCL_PROTO", "Simple");
  set("NCCL_MAX_CTAS", "4");
  if (!sharing.one_node) return;
  set("NCCL_NET", "Socket");
  set("NCCL_SOCKET_IFNAME", "=lo");
}

// Several groups may deadlock where what they start is not kept in order, and messages where what
// is in order is not side by side.
void expect_order(std::size_t groups, std::size_t channels) {
  constexpr int kOrdered = 22600, kOverlapping = 12030;
  int version = 0, driver = 0;
  check_nccl(ncclGetVersion(&version), nullptr, "ncclGetVersion");
  cuda::check(cudaDriverGetVersion(&driver));
  const std::size_t all = groups + channels;
  if (all > 1 && version < kOrdered)
    throw Error(
        ExitCode::environment,
        "NCCL " + std::to_string(version / 10000) + "." + std::to_string(version / 100 % 100) +
            " may deadlock where a rank is in several groups, here in " + std::to_string(all) +
            "; expected NCCL 2.26 or newer, parallelism along one axis, or backend mpi");
  if (channels > 1 && driver < kOverlapping)
    throw Error(ExitCode::environment,
                "with a driver for CUDA " + cuda::version_text(driver) +
                    " NCCL runs one operation at a time, so that the messages of a pipeline may "
                    "deadlock; expected a driver for CUDA 12.3 or newer, or parallel.backend: mpi");
  const char* const queues = std::getenv("CUDA_DEVICE_MAX_CONNECTIONS");
  const std::size_t needed = all + 1;  // and the stream of the computation
  if (channels > 1 && queues && std::strtoul(queues, nullptr, 10) < needed && rank_of_launch() == 0)
    std::fprintf(stderr,
                 "warning: CUDA_DEVICE_MAX_CONNECTIONS is %s, so that messages of the pipeline may "
                 "wait for each other for ever; expected at least %zu: unset it\n",
                 queues, needed);
}

ncclComm_t connect(NcclQueue& queue, Communicator& host, AxisSet axes, double timeout) {
  ncclUniqueId id{};
  if (host.rank() == 0) check_nccl(ncclGetUniqueId(&id), nullptr, "ncclGetUniqueId");
  id = broadcast(host, id);
  return queue.connect(id, host.rank(), host.size(), axes, "the " + name_of(axes) + " axis",
                       timeout);
}

}  // namespace

Mesh nccl_mesh(const Mesh& mesh, cuda::Stream& kernels, const GpuSharing& sharing, double timeout,
               const std::set<Channel>& channels) {
  set_environment(mesh.rank(), sharing);
  std::set<std::vector<int>> groups;
  for (const AxisSet axes : mesh.layout.groups())
    if (mesh.group(axes).size() > 1) groups.insert(mesh.layout.group(mesh.rank(), axes));
  expect_order(groups.size(), channels.size());
  const auto queue = std::make_shared<NcclQueue>(kernels, mesh.recorder);
  Mesh result = mesh;
  std::map<std::vector<int>, ncclComm_t> comms;  // by ranks: groups of the same share one
  for (const AxisSet axes : mesh.layout.groups()) {
    auto& group = result.handle(axes);
    if (group->size() == 1) continue;
    ncclComm_t& comm = comms[mesh.layout.group(mesh.rank(), axes)];
    if (!comm) comm = connect(*queue, *group, axes, timeout);
    group = std::make_shared<NcclCommunicator>(group, axes, comm, queue);
  }
  if (mesh.messages) result.messages = nccl_messages(mesh, queue, channels, timeout);
  queue->start();
  return result;
}

}  // namespace tfm::comm
#endif
