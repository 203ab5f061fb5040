#ifdef TFM_NCCL
#include <algorithm>
#include <map>
#include <tuple>

#include "comm/nccl_state.h"
#include "device/memory.h"

namespace tfm::comm {
namespace {

constexpr int kSender = 0, kReceiver = 1;  // of a channel's communicator

class NcclMessages final : public Messages {
 public:
  NcclMessages(const Mesh& mesh, std::shared_ptr<NcclQueue> queue)
      : stages_(mesh.layout.group(mesh.rank(), Axis::pipeline)),
        stage_(mesh.place(Axis::pipeline)),
        host_(mesh.messages),
        queue_(std::move(queue)) {}

  // The identifier goes from the sender to the receiver as a message of the host.
  void connect(const Channel& channel, double timeout) {
    const bool sends = channel.from == stage_;
    End& end = ends_[channel];
    const Tensor id{&end.id, DType::i32, {sizeof end.id / 4}};
    if (sends) {
      check_nccl(ncclGetUniqueId(&end.id), nullptr, "ncclGetUniqueId");
      host_->send(id, id, channel.to, channel.tag);
    } else {
      host_->receive(id, channel.from, channel.tag);
    }
    end.comm = queue_->connect(end.id, sends ? kSender : kReceiver, 2, Axis::pipeline,
                               "the messages from rank " + std::to_string(of_job(channel.from)) +
                                   " to rank " + std::to_string(of_job(channel.to)),
                               timeout);
    // NCCL's first message makes the connection, for which both hosts wait: in a step they might do
    // so in a circle.
    const auto memory = device::allocate(queue_->kernels(), sizeof(float));
    const Tensor one{memory.get(), DType::f32, {1}};
    sends ? send(one, one, channel.to, channel.tag) : receive(one, channel.from, channel.tag);
    complete_sends();
    queue_->kernels().wait();
  }

  void send(Tensor t, Tensor buffer, int to, int tag) override {
    End& end = at({stage_, to, tag});
    const cudaStream_t stream = queue_->beside(end.comm);
    end.sent.hold_back(kernels());
    if (buffer.data != t.data)
      device::copy_async(queue_->kernels(), buffer.data, t.data, t.bytes());
    end.ready.record(kernels());
    end.ready.hold_back(stream);
    run(Collective::send, t, end, stream, to, [&](std::size_t n, ncclDataType_t type) {
      return ncclSend(buffer.data, n, type, kReceiver, end.comm, stream);
    });
    end.sent.record(stream);
  }
  void receive(Tensor t, int from, int tag) override {
    const End& end = at({from, stage_, tag});
    run(Collective::receive, t, end, kernels(), from, [&](std::size_t n, ncclDataType_t type) {
      return ncclRecv(t.data, n, type, kSender, end.comm, kernels());
    });
  }
  void complete_sends() override {
    for (const auto& [channel, end] : ends_)
      if (channel.from == stage_) end.sent.hold_back(kernels());
  }
  bool on_stream() const override { return true; }

 private:
  struct End {
    ncclUniqueId id{};  // stays, as a message of the host may be read until the group ends
    ncclComm_t comm = nullptr;
    cuda::Event ready, sent;  // of the last message: it is in its buffer, it has been received
  };

  int of_job(int stage) const { return stages_[static_cast<std::size_t>(stage)]; }
  cudaStream_t kernels() const { return queue_->kernels().get(); }
  End& at(const Channel& channel) {
    const auto found = ends_.find(channel);
    TFM_CHECK(found != ends_.end(), "a message that was not declared");
    return found->second;
  }
  void run(Collective op, const Tensor& t, const End& end, cudaStream_t stream, int peer,
           const NcclQueue::Call& call) {
    TFM_CHECK(!queue_->kernels().capturing(), "messages are not captured");
    queue_->run(op, Axis::pipeline, t, end.comm, stream, call, of_job(peer));
  }

  std::vector<int> stages_;  // ranks of the job
  int stage_;                // this rank's
  std::shared_ptr<Messages> host_;
  std::shared_ptr<NcclQueue> queue_;
  std::map<Channel, End> ends_;
};

}  // namespace

// In one order on all ranks, so that none waits for another in a circle; in this one neighbours
// connect side by side.
std::shared_ptr<Messages> nccl_messages(const Mesh& mesh, std::shared_ptr<NcclQueue> queue,
                                        const std::set<Channel>& channels, double timeout) {
  const int stages = mesh.layout[Axis::pipeline];
  std::vector<Channel> order(channels.begin(), channels.end());
  std::ranges::sort(order, {}, [&](const Channel& c) {
    return std::tuple((c.to - c.from + stages) % stages, c.tag, c.from % 2, c.from);
  });
  const auto messages = std::make_shared<NcclMessages>(mesh, std::move(queue));
  for (const Channel& c : order) messages->connect(c, timeout);
  return messages;
}

}  // namespace tfm::comm
#endif
