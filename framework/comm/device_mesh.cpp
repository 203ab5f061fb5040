#include "comm/device_mesh.h"

#include <xxhash.h>

#include <algorithm>
#include <map>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

#include "comm/messages.h"
#ifdef TFM_NCCL
#include "comm/start_wait.h"
#include "core/host.h"
#include "device/cuda/stream.h"
#endif

namespace tfm::comm {
namespace {

// Device tensors on their way through host memory.
class ThroughHost {
 protected:
  struct Memory {
    std::int64_t bytes = 0;
    std::shared_ptr<std::byte> data;
  };

  explicit ThroughHost(device::Device device) : device_(std::move(device)) {}
  std::byte* staging(std::int64_t bytes) {
    if (bytes > staging_.bytes) staging_ = {bytes, device_.allocate_host(bytes)};
    return staging_.data.get();
  }
  Tensor fetch(Tensor t) {
    Tensor copy = t;
    copy.data = staging(t.bytes());
    device::download(device_.stream(), copy.data, t.data, t.bytes());
    return copy;
  }
  void put(const Tensor& to, const Tensor& from) {
    device::upload(device_.stream(), to.data, from.data, from.bytes());
  }

  device::Device device_;

 private:
  Memory staging_;
};

class StagedCollectives final : public Communicator, ThroughHost {
 public:
  StagedCollectives(std::shared_ptr<Communicator> host, device::Device device)
      : ThroughHost(std::move(device)), host_(std::move(host)) {}
  int rank() const override { return host_->rank(); }
  int size() const override { return host_->size(); }

  void all_reduce(Tensor t, Collective kind) override {
    const Tensor copy = fetch(t);
    host_->all_reduce(copy, kind);
    put(t, copy);
  }
  void reduce_scatter(Tensor in, Tensor out) override {
    const Tensor all = fetch(in);
    Tensor part = out;
    part.data = static_cast<std::byte*>(all.data) + out.bytes() * rank();
    host_->reduce_scatter(all, part);
    put(out, part);
  }
  void all_gather(Tensor in, Tensor out) override {
    Tensor all = out, part = in;
    all.data = staging(out.bytes());
    part.data = static_cast<std::byte*>(all.data) + in.bytes() * rank();
    device::download(device_.stream(), part.data, in.data, in.bytes());
    host_->all_gather(part, all);
    put(out, all);
  }
  void ring_shift(Tensor in, Tensor out) override {
    finish(start(Collective::ring_shift, in, out));
  }
  void all_to_all(Tensor in, Tensor out) override {
    finish(start(Collective::all_to_all, in, out));
  }
  void broadcast(Tensor t, int root) override {
    const Tensor copy = fetch(t);
    host_->broadcast(copy, root);
    put(t, copy);
  }
  void barrier() override { host_->barrier(); }

  Ticket start(Collective kind, Tensor in, Tensor out) override {
    const bool apart = kind == Collective::ring_shift || kind == Collective::all_to_all;
    const std::int64_t bytes = apart ? in.bytes() + out.bytes() : std::max(in.bytes(), out.bytes());
    complete_oldest(kMostUnderWay - bytes);
    Started s{.device = out, .memory = take(bytes)};
    Tensor from = in, to = out;
    from.data = s.memory.data.get();
    to.data = s.memory.data.get() + (apart ? in.bytes() : 0);
    const auto mine = [&](Tensor& part) {
      part.data = static_cast<std::byte*>(part.data) + part.bytes() * rank();
    };
    if (kind == Collective::all_gather) mine(from);
    if (kind == Collective::reduce_scatter) mine(to);
    device::download(device_.stream(), from.data, in.data, in.bytes());
    s.host = to;
    const Ticket ticket = host_->start(kind, from, to);
    started_.emplace(ticket, std::move(s));
    return ticket;
  }
  void finish(Ticket ticket) override {
    const auto started = started_.find(ticket);
    TFM_CHECK(started != started_.end(), "no such collective is under way");
    if (started->second.memory.data) complete(started->first, started->second);
    started_.erase(started);
  }

 private:
  // Bytes of host memory that collectives hold at once, unless one alone needs more.
  static constexpr std::int64_t kMostUnderWay = 128 << 20;
  struct Started {
    Tensor device, host;
    Memory memory;  // none: complete
  };
  void complete(Ticket ticket, Started& s) {
    host_->finish(ticket);
    put(s.device, s.host);
    spare_.push_back(std::exchange(s.memory, {}));
  }
  // In order, which is the same on all ranks, until at most `most` bytes are held.
  void complete_oldest(std::int64_t most) {
    std::int64_t held = 0;
    for (const auto& [ticket, s] : started_) held += s.memory.bytes;
    for (auto& [ticket, s] : started_) {
      if (held <= most) return;
      if (!s.memory.data) continue;
      held -= s.memory.bytes;
      complete(ticket, s);
    }
  }
  Memory take(std::int64_t bytes) {  // kept from an earlier step, which exchanged the same
    const auto fits =
        std::ranges::find_if(spare_, [&](const Memory& m) { return m.bytes >= bytes; });
    if (fits == spare_.end()) return {bytes, device_.allocate_host(bytes)};
    Memory m = std::move(*fits);
    spare_.erase(fits);
    return m;
  }

  std::shared_ptr<Communicator> host_;
  std::map<Ticket, Started> started_;
  std::vector<Memory> spare_;
};

class StagedMessages final : public Messages, ThroughHost {
 public:
  StagedMessages(std::shared_ptr<Messages> host, device::Device device)
      : ThroughHost(std::move(device)), host_(std::move(host)) {}

  void send(Tensor t, Tensor, int to, int tag) override {
    std::shared_ptr<std::byte>& sent = sent_[{to, tag, t.bytes()}];
    if (!sent) sent = device_.allocate_host(t.bytes());
    const Tensor copy = fetch(t);
    Tensor buffer = copy;
    buffer.data = sent.get();
    host_->send(copy, buffer, to, tag);
  }
  void receive(Tensor t, int from, int tag) override {
    Tensor copy = t;
    copy.data = staging(t.bytes());
    host_->receive(copy, from, tag);
    put(t, copy);
  }
  void complete_sends() override { host_->complete_sends(); }

 private:
  std::shared_ptr<Messages> host_;
  // By receiver, tag and bytes: the last message of a tag may be under way when a longer one comes.
  std::map<std::tuple<int, int, std::int64_t>, std::shared_ptr<std::byte>> sent_;
};

Mesh staged_mesh(const Mesh& mesh, const device::Device& device) {
  Mesh staged = mesh;
  for (const AxisSet axes : mesh.layout.groups())
    if (auto& group = staged.handle(axes); group->size() > 1)
      group = std::make_shared<StagedCollectives>(group, device);
  if (mesh.messages) staged.messages = std::make_shared<StagedMessages>(mesh.messages, device);
  return staged;
}

Mesh of_several(const Mesh& mesh, device::Device& device, const DeviceMeshOptions& options) {
#ifdef TFM_NCCL
  if (options.backend != Backend::mpi && mesh.world().size() > 1) {
    const double timeout = options.timeout > 0 ? options.timeout : kStartTimeout;
    const StartWait wait("connecting the GPUs", timeout);
    cuda::Stream& stream = *std::get<cuda::Stream*>(device.stream());
    const GpuSharing p = gpu_sharing(mesh.world(), machine_id(), cuda::bus_id(stream.device()));
    if (p.own_gpus || options.backend == Backend::nccl)
      return nccl_mesh(mesh, stream, p, timeout, options.channels);
  }
#else
  if (options.backend == Backend::nccl)
    throw Error(ExitCode::environment,
                "parallel.backend: nccl, but this build has no NCCL; build with NCCL installed, or "
                "set parallel.backend to mpi");
#endif
  return staged_mesh(mesh, device);
}

}  // namespace

GpuSharing gpu_sharing(Communicator& world, const std::string& host, const std::string& gpu) {
  const auto hash = [](const std::string& s) {
    return static_cast<std::int64_t>(XXH3_64bits(s.data(), s.size()));
  };
  std::vector<std::int64_t> mine{hash(host), hash(host + ' ' + gpu)},
      all(mine.size() * static_cast<std::size_t>(world.size()));
  world.all_gather({mine.data(), DType::i64, {2}}, {all.data(), DType::i64, {2 * world.size()}});
  GpuSharing p;
  std::set<std::int64_t> gpus;
  for (std::size_t i = 0; i < all.size(); i += 2) {
    p.one_node &= all[i] == all[0];
    p.own_gpus &= gpus.insert(all[i + 1]).second;
  }
  return p;
}

Mesh device_mesh(const Mesh& mesh, device::Device& device, const DeviceMeshOptions& options) {
  if (device.is_cpu()) return mesh;
  Mesh result = of_several(mesh, device, options);
  for (const AxisSet axes : mesh.layout.groups())
    if (auto& group = result.handle(axes); group->size() == 1)
      group = single_communicator([device](void* to, const void* from, std::int64_t bytes) mutable {
        device::copy_async(device.stream(), to, from, bytes);
      });
  return result;
}

std::string transport_of(const Mesh& tensors) {
  bool nccl = false;
  std::string staged;
  const auto add = [&](AxisSet axes, bool on_stream) {
    nccl |= on_stream;
    if (!on_stream) staged += (staged.empty() ? "" : ", ") + name_of(axes);
  };
  for (const AxisSet axes : tensors.layout.groups())
    if (tensors.layout.size(axes) > 1) add(axes, tensors.group(axes).on_stream());
  if (tensors.messages) add(Axis::pipeline, tensors.messages->on_stream());
  const std::string host = "host memory, which is slower";
  if (staged.empty()) return nccl ? "NCCL" : "";
  return nccl ? "NCCL, on the axes " + staged + " through " + host : host;
}

RankContext rank_context(device::Device device, const Mesh& mesh,
                         const DeviceMeshOptions& options) {
  Mesh tensors = device_mesh(mesh, device, options);
  return {std::move(device), mesh, std::move(tensors)};
}

}  // namespace tfm::comm
