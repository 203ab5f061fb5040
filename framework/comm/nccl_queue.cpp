#ifdef TFM_NCCL
#include <algorithm>
#include <chrono>
#include <future>
#include <string_view>

#include "comm/nccl_state.h"

namespace tfm::comm {
namespace {

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

}  // namespace

void check_nccl(ncclResult_t status, ncclComm_t comm, const std::string& call) {
  if (status == ncclSuccess) return;
  const char* last = ncclGetLastError(comm);
  if (last && std::string_view(last).find("out of memory") != std::string_view::npos)
    cuda::fail_for_memory(call + ": NCCL reports " + last);
  throw Error(status == ncclRemoteError ? ExitCode::retryable : ExitCode::environment,
              call + ": NCCL reports " + ncclGetErrorString(status) +
                  (last && *last ? ": " + std::string(last) : "") +
                  "; set NCCL_DEBUG=INFO for details");
}

NcclQueue::~NcclQueue() {
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
  for (const Connection& c : connections_) abort ? ncclCommAbort(c.comm) : ncclCommDestroy(c.comm);
  if (abort) ncclGroupEnd();
}

// In a thread of its own, which is left behind where it does not come back. The communicator is a
// blocking one: every call of another kind enqueues from a new thread, which costs more than the
// call and cannot be captured.
ncclComm_t NcclQueue::connect(const ncclUniqueId& id, int rank, int size, AxisSet axes,
                              const std::string& what, double timeout) {
  struct Result {
    ncclResult_t status = ncclSuccess;
    ncclComm_t comm = nullptr;
  };
  std::promise<Result> promise;
  std::future<Result> future = promise.get_future();
  // A message waits for its receiver on the device, where many blocks would take the
  // multiprocessors of the products that run beside it.
  const bool messages = axes == AxisSet(Axis::pipeline);
  std::thread([promise = std::move(promise), id, rank, size, messages,
               device = kernels_.device()]() mutable {
    Result r;
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 1;
    if (messages) config.maxCTAs = 4;
    cudaSetDevice(device);
    r.status = ncclCommInitRankConfig(&r.comm, size, id, rank, &config);
    promise.set_value(r);
  }).detach();
  const std::string text = "connecting NCCL's rank " + std::to_string(rank) + " of the " +
                           std::to_string(size) + " of " + what;
  if (future.wait_for(std::chrono::duration<double>(timeout)) != std::future_status::ready)
    throw Error(
        ExitCode::retryable,
        text + " has taken more than " + std::to_string(static_cast<int>(timeout)) +
            " s; set NCCL_DEBUG=INFO for details, or parallel.backend: mpi to run without NCCL");
  const Result r = future.get();
  check_nccl(r.status, nullptr, text);
  connections_.push_back({r.comm, axes, nullptr});
  return r.comm;
}

cudaStream_t NcclQueue::beside(ncclComm_t comm) {
  auto& stream = std::ranges::find(connections_, comm, &Connection::comm)->beside;
  if (!stream) stream = std::make_unique<cuda::Stream>(kernels_.device(), device::Numerics{}, true);
  return stream->get();
}

void NcclQueue::start() {
  thread_ = std::thread([this] { watch(); });
}

void NcclQueue::run(Collective op, AxisSet axes, const Tensor& whole, ncclComm_t comm,
                    cudaStream_t stream, const Call& call, int peer) {
  if (whole.elements() == 0) return;
  const auto enqueue = [&] {
    check_nccl(call(static_cast<std::size_t>(whole.elements()), type_of(whole.dtype)), comm,
               std::string(name_of(op)));
  };
  if (kernels_.capturing()) return enqueue();
  const Event event = recorder_->begin(axes, op, whole.bytes(), peer);
  recorder_->wait(event);  // the first call of a kind makes connections
  enqueue();
  enqueued(event, stream);
}

// `event` is all that was enqueued on the stream so far.
void NcclQueue::enqueued(const Event& event, cudaStream_t stream) {
  const std::lock_guard lock(mutex_);
  Pending p{event, take()};
  p.done.record(stream);
  recorder_->hand_over(event);
  if (pending_.empty()) recorder_->device_waits(event);
  pending_.push_back(std::move(p));
}

cuda::Event NcclQueue::take() {
  if (spare_.empty()) return {};
  cuda::Event e = std::move(spare_.back());
  spare_.pop_back();
  return e;
}

void NcclQueue::watch() {
  cudaSetDevice(kernels_.device());
  cudaStreamCaptureMode mode =
      cudaStreamCaptureModeThreadLocal;  // captures by other threads do not forbid to ask
  cudaThreadExchangeStreamCaptureMode(&mode);
  std::unique_lock lock(mutex_);
  while (!wake_.wait_for(lock, std::chrono::milliseconds(20), [this] { return stop_; })) {
    while (!pending_.empty()) {
      const Pending& oldest = pending_.front();  // stays where it is: only this thread removes any
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

void NcclQueue::settle() {
  recorder_->end(pending_.front().event);
  spare_.push_back(std::move(pending_.front().done));
  pending_.pop_front();
  recorder_->device_waits(pending_.empty() ? Event{} : pending_.front().event);
}

void NcclQueue::look_for_errors() {
  for (const Connection& c : connections_) {
    ncclResult_t status = ncclSuccess;
    if (ncclCommGetAsyncError(c.comm, &status) != ncclSuccess || status == ncclSuccess ||
        status == ncclInProgress)
      continue;
    recorder_->fail("NCCL reports " + std::string(ncclGetErrorString(status)) + " on the " +
                    name_of(c.axes) + " axis");
  }
}

}  // namespace tfm::comm
#endif
