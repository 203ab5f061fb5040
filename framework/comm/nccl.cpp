#include "comm/nccl.h"

#ifdef TFM_NCCL
#include <nccl.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <future>
#include <map>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "comm/consensus.h"
#include "comm/flight_recorder.h"
#include "device/cuda/stream.h"

namespace tfm::comm {
namespace {

void check(ncclResult_t status, ncclComm_t comm, const std::string& call) {
  if (status == ncclSuccess) return;
  const char* last = ncclGetLastError(comm);
  throw Error(status == ncclRemoteError ? ExitCode::retryable : ExitCode::environment,
              call + ": NCCL reports " + ncclGetErrorString(status) +
                  (last && *last ? ": " + std::string(last) : "") +
                  "; set NCCL_DEBUG=INFO for details");
}

ncclDataType_t type_of(DType t) {
  switch (t) {
    case DType::f32:
      return ncclFloat32;
    case DType::f64:
      return ncclFloat64;
    case DType::i32:
      return ncclInt32;
    case DType::i64:
      return ncclInt64;
    case DType::bf16:
      return ncclBfloat16;
    case DType::f16:
      return ncclFloat16;
  }
  internal_error("NCCL does not support this type");
}

class CudaEvent {
 public:
  CudaEvent() { cuda::check(cudaEventCreateWithFlags(&event_, cudaEventDisableTiming)); }
  ~CudaEvent() {
    if (event_) cudaEventDestroy(event_);
  }
  CudaEvent(CudaEvent&& other) noexcept : event_(std::exchange(other.event_, nullptr)) {}
  CudaEvent& operator=(CudaEvent&& other) noexcept {
    return std::swap(event_, other.event_), *this;
  }

  void record(cudaStream_t stream) { cuda::check(cudaEventRecord(event_, stream)); }
  void hold_back(cudaStream_t stream) const { cuda::check(cudaStreamWaitEvent(stream, event_, 0)); }
  bool complete() const { return cudaEventQuery(event_) == cudaSuccess; }

 private:
  cudaEvent_t event_ = nullptr;
};

// What the groups of a mesh share: streams, NCCL's communicators, and a thread that tells the
// flight recorder what the device has completed. The thread is neither the rank's own nor the
// watchdog's, because a call of CUDA may last as long as what it asks about.
class Queue {
 public:
  Queue(cuda::Stream& kernels, std::shared_ptr<FlightRecorder> recorder)
      : kernels_(kernels), recorder_(std::move(recorder)) {}
  ~Queue() {
    if (thread_.joinable()) {
      {
        const std::lock_guard lock(mutex_);
        stop_ = true;
      }
      wake_.notify_all();
      thread_.join();
    }
    recorder_->device_waits({});
    // Where an exception unwinds, other ranks may never come, and one communicator may wait for
    // another: all are told before any is torn down.
    const bool abort = std::uncaught_exceptions() > 0;
    if (abort) ncclGroupStart();
    for (const Connection& c : connections_)
      abort ? ncclCommAbort(c.comm) : ncclCommDestroy(c.comm);
    if (abort) ncclGroupEnd();
  }

  cuda::Stream& kernels() { return kernels_; }
  FlightRecorder& recorder() { return *recorder_; }

  void connected(ncclComm_t comm, AxisSet axes) {
    connections_.push_back(
        {comm, axes, std::make_unique<cuda::Stream>(kernels_.device(), device::Numerics{}, true)});
  }
  // For collectives of this communicator that run beside the kernels.
  cudaStream_t beside(ncclComm_t comm) const {
    return std::ranges::find(connections_, comm, &Connection::comm)->beside->get();
  }
  void start() {
    thread_ = std::thread([this] { watch(); });
  }

  // `event` is all that was enqueued on the stream so far.
  void enqueued(const Event& event, cudaStream_t stream) {
    const std::lock_guard lock(mutex_);
    Pending p{event, take()};
    p.done.record(stream);
    recorder_->hand_over(event);
    if (pending_.empty()) recorder_->device_waits(event);
    pending_.push_back(std::move(p));
  }

 private:
  struct Connection {
    ncclComm_t comm;
    AxisSet axes;
    std::unique_ptr<cuda::Stream> beside;
  };
  struct Pending {
    Event event;
    CudaEvent done;
  };

  CudaEvent take() {
    if (spare_.empty()) return {};
    CudaEvent e = std::move(spare_.back());
    spare_.pop_back();
    return e;
  }

  void watch() {
    cudaSetDevice(kernels_.device());
    cudaStreamCaptureMode mode =
        cudaStreamCaptureModeThreadLocal;  // captures by other threads do not forbid to ask
    cudaThreadExchangeStreamCaptureMode(&mode);
    std::unique_lock lock(mutex_);
    while (!wake_.wait_for(lock, std::chrono::milliseconds(20), [this] { return stop_; })) {
      while (!pending_.empty()) {
        const Pending& oldest =
            pending_.front();  // stays where it is: only this thread removes any
        lock.unlock();
        const bool complete = oldest.done.complete();
        lock.lock();
        if (!complete) break;
        settle();
      }
      lock.unlock();
      look_for_errors();
      lock.lock();
    }
  }

  void settle() {
    recorder_->end(pending_.front().event);
    spare_.push_back(std::move(pending_.front().done));
    pending_.pop_front();
    recorder_->device_waits(pending_.empty() ? Event{} : pending_.front().event);
  }

  void look_for_errors() {
    for (const Connection& c : connections_) {
      ncclResult_t status = ncclSuccess;
      if (ncclCommGetAsyncError(c.comm, &status) != ncclSuccess || status == ncclSuccess ||
          status == ncclInProgress)
        continue;
      recorder_->fail("NCCL reports " + std::string(ncclGetErrorString(status)) + " on the " +
                      name_of(c.axes) + " axis");
    }
  }

  cuda::Stream& kernels_;
  std::shared_ptr<FlightRecorder> recorder_;
  std::vector<Connection> connections_;
  std::mutex mutex_;
  std::condition_variable wake_;
  bool stop_ = false;
  std::deque<Pending> pending_;
  std::vector<CudaEvent> spare_;
  std::thread thread_;
};

class NcclCommunicator final : public Communicator {
 public:
  NcclCommunicator(std::shared_ptr<Communicator> host, AxisSet axes, ncclComm_t comm,
                   std::shared_ptr<Queue> queue)
      : host_(std::move(host)),
        axes_(axes),
        comm_(comm),
        queue_(std::move(queue)),
        beside_(queue_->beside(comm)) {}
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
  void broadcast(Tensor t, int root) override {
    TFM_CHECK(root >= 0 && root < size(), "the root must be a rank of the group");
    record(Collective::broadcast, t, kernels(), [&](std::size_t n, ncclDataType_t type) {
      return ncclBroadcast(t.data, t.data, n, type, root, comm_, kernels());
    });
  }
  void barrier() override { host_->barrier(); }
  bool on_stream() const override { return true; }

  Ticket start(Collective kind, Tensor in, Tensor out) override {
    ready_.record(kernels());
    ready_.hold_back(beside_);
    enqueue(kind, in, out, beside_);
    Ticket ticket = free_.empty() ? done_.size() : free_.back();
    if (free_.empty())
      done_.emplace_back();
    else
      free_.pop_back();
    done_[ticket].record(beside_);
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

  void enqueue(Collective kind, const Tensor& in, const Tensor& out, cudaStream_t stream) {
    TFM_CHECK(in.dtype == out.dtype, "`in` and `out` have one type");
    const bool gathers = kind == Collective::all_gather,
               scatters = kind == Collective::reduce_scatter;
    TFM_CHECK(in.elements() * (gathers ? size() : 1) == out.elements() * (scatters ? size() : 1),
              "the longer tensor must hold one of the shorter per rank");
    record(kind, gathers ? out : in, stream, [&](std::size_t, ncclDataType_t type) {
      const auto each = static_cast<std::size_t>(gathers ? in.elements() : out.elements());
      if (kind == Collective::ring_shift) return shift(in, out, each, type, stream);
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

  // `whole`: the longer of the collective's tensors.
  template <class F>
  void record(Collective op, const Tensor& whole, cudaStream_t stream, F&& call) {
    if (whole.elements() == 0) return;
    const auto run = [&] {
      check(call(static_cast<std::size_t>(whole.elements()), type_of(whole.dtype)), comm_,
            std::string(name_of(op)));
    };
    if (queue_->kernels().capturing()) return run();
    FlightRecorder& recorder = queue_->recorder();
    const Event event = recorder.begin(axes_, op, whole.bytes());
    recorder.wait(event);  // the first call of a kind makes connections
    run();
    queue_->enqueued(event, stream);
  }

  std::shared_ptr<Communicator> host_;
  AxisSet axes_;
  ncclComm_t comm_;
  std::shared_ptr<Queue> queue_;
  cudaStream_t beside_;  // of started collectives
  CudaEvent ready_;
  std::vector<CudaEvent> done_;  // by ticket
  std::vector<Ticket> free_;
};

// What NCCL reads at its first call; what the user has set stays.
void set_environment(int rank, const Placement& placement) {
  const auto set = [](const char* name, const std::string& value) {
    setenv(name, value.c_str(), 0);
  };
  set("NCCL_LAUNCH_ORDER_IMPLICIT",
      "1");  // groups that run at once start in the host's order, which is the same on all ranks
  if (placement.own_gpus) return;
  set("NCCL_HOSTID", "tfm-" + std::to_string(rank));
  for (const char* off :
       {"NCCL_MNNVL_ENABLE", "NCCL_NVLS_ENABLE", "NCCL_CUMEM_HOST_ENABLE", "NCCL_RAS_ENABLE"})
    set(off, "0");
  set("NCCL_PROTO", "Simple");
  set("NCCL_MAX_CTAS", "4");
  if (!placement.one_node) return;
  set("NCCL_NET", "Socket");
  set("NCCL_SOCKET_IFNAME", "=lo");
}

// In a thread of its own, which is left behind where it does not come back. The communicator is a
// blocking one: every call of another kind enqueues from a new thread, which costs more than the
// call and cannot be captured.
ncclComm_t connect(Communicator& host, AxisSet axes, int device, double timeout) {
  ncclUniqueId id{};
  if (host.rank() == 0) check(ncclGetUniqueId(&id), nullptr, "ncclGetUniqueId");
  std::memcpy(id.internal, broadcast_string(host, {id.internal, sizeof id.internal}).data(),
              sizeof id.internal);
  struct Result {
    ncclResult_t status = ncclSuccess;
    ncclComm_t comm = nullptr;
  };
  std::promise<Result> promise;
  std::future<Result> future = promise.get_future();
  std::thread([promise = std::move(promise), id, device, size = host.size(),
               rank = host.rank()]() mutable {
    Result r;
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 1;
    cudaSetDevice(device);
    r.status = ncclCommInitRankConfig(&r.comm, size, id, rank, &config);
    promise.set_value(r);
  }).detach();
  const std::string what = "connecting NCCL's rank " + std::to_string(host.rank()) + " of the " +
                           std::to_string(host.size()) + " of the " + std::string(name_of(axes)) +
                           " axis";
  if (future.wait_for(std::chrono::duration<double>(timeout)) != std::future_status::ready)
    throw Error(
        ExitCode::retryable,
        what + " has taken more than " + std::to_string(static_cast<int>(timeout)) +
            " s; set NCCL_DEBUG=INFO for details, or parallel.backend: mpi to run without NCCL");
  const Result r = future.get();
  check(r.status, nullptr, what);
  return r.comm;
}

}  // namespace

Mesh nccl_mesh(const Mesh& mesh, cuda::Stream& kernels, const Placement& placement,
               double timeout) {
  set_environment(mesh.rank(), placement);
  const auto queue = std::make_shared<Queue>(kernels, mesh.recorder);
  Mesh result = mesh;
  std::map<std::vector<int>, ncclComm_t> comms;  // by ranks: groups of the same share one
  for (const AxisSet axes : mesh.layout.groups()) {
    auto& group = result.handle(axes);
    if (group->size() == 1 || axes == Axis::pipeline) continue;  // messages go through the host
    ncclComm_t& comm = comms[mesh.layout.group(mesh.rank(), axes)];
    if (!comm) queue->connected(comm = connect(*group, axes, kernels.device(), timeout), axes);
    group = std::make_shared<NcclCommunicator>(group, axes, comm, queue);
  }
  queue->start();
  return result;
}

}  // namespace tfm::comm
#endif
