// What comm/nccl.cpp asks of streams and of NCCL, seen by the stand-ins of both.
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <thread>

#include "../../distributed/job.h"
#include "comm/consensus.h"
#include "comm/device_mesh.h"
#include "comm/flight_recorder.h"
#include "device/cuda/stream.h"
#include "device/replay.h"
#include "fake_nccl.h"
#include "fake_runtime.h"
#include "kernels/elementwise.h"

namespace tfm {
namespace {

using test::job;

class Nccl : public testing::Test {
 protected:
  Nccl() { emulator::runtime = {}; }
  ~Nccl() override { emulator::runtime = {}; }
  cuda::Stream& stream() { return *std::get<cuda::Stream*>(device_.stream()); }
  Tensor tensor(std::int64_t n) {
    memory_.push_back(device_.allocate(n * 4));
    return {memory_.back().get(), DType::f32, {n}};
  }
  float first(const Tensor& t) { return device::download_value(device_.stream(), t.ptr<float>()); }
  void write(const Tensor& t, float value) {
    device::upload(device_.stream(), t.data,
                   std::vector<float>(static_cast<std::size_t>(t.elements()), value).data(),
                   t.bytes());
  }

  device::Device device_{std::make_shared<cuda::Stream>(0), 1};
  std::vector<std::shared_ptr<std::byte>> memory_;
};

TEST_F(Nccl, CollectivesAreEnqueuedAndTheHostGoesOn) {
  if (job().size() == 1) return;
  const comm::Mesh mesh = comm::device_mesh(comm::make_mesh(job(), {job().size(), 1}), device_,
                                            {.backend = comm::Backend::nccl});
  const Tensor a = tensor(100), b = tensor(100);
  write(a, 1), write(b, 2);
  const long synchronized = emulator::runtime.synchronized;
  mesh.group(comm::kData).all_reduce(a);
  EXPECT_EQ(emulator::waiting(stream().get()), 2u) << "the sum and the event behind it";
  comm::Communicator& data = mesh.group(comm::kData);
  data.finish(data.start(comm::Collective::all_reduce_sum, b, b));
  EXPECT_EQ(emulator::waiting(stream().get()), 4u)
      << "the event that starts the reduction, and the wait for it";
  EXPECT_EQ(static_cast<const float*>(a.data)[0], 1) << "nothing is done before somebody waits";
  EXPECT_EQ(static_cast<const float*>(b.data)[0], 2);
  EXPECT_EQ(emulator::runtime.synchronized, synchronized);
  EXPECT_EQ(first(a), job().size());
  EXPECT_EQ(first(b), 2 * job().size());
}

TEST_F(Nccl, CollectivesAreDoneNoSoonerThanTheyAreFinished) {
  if (job().size() == 1) return;
  const comm::Mesh mesh = comm::device_mesh(comm::make_mesh(job(), {job().size(), 1}), device_,
                                            {.backend = comm::Backend::nccl});
  const Tensor early = tensor(8), late = tensor(8), other = tensor(8);
  write(early, 1), write(late, 1), write(other, 1);
  comm::Communicator& data = mesh.group(comm::kData);
  const auto first_ticket = data.start(comm::Collective::all_reduce_sum, early, early),
             second = data.start(comm::Collective::all_reduce_sum, late, late);
  write(other, 3);  // a kernel beside them
  EXPECT_EQ(static_cast<const float*>(early.data)[0], 1);
  data.finish(first_ticket);
  EXPECT_EQ(first(early), job().size());
  data.finish(second);
  EXPECT_EQ(first(late), job().size());
  EXPECT_ANY_THROW(data.finish(second));
}

TEST_F(Nccl, WithoutItHostMemoryOfCollectivesUnderWayIsBounded) {
  if (job().size() == 1) return;
  const comm::Mesh mesh = comm::device_mesh(comm::make_mesh(job(), {job().size(), 1}), device_,
                                            {.backend = comm::Backend::mpi});
  comm::Communicator& data = mesh.group(comm::kData);
  std::vector<Tensor> tensors;
  std::vector<comm::Communicator::Ticket> tickets;
  for (int i = 0; i < 4; ++i) {
    tensors.push_back(tensor(12 << 20));  // 48 MiB
    write(tensors[i], static_cast<float>(i + 1));
    tickets.push_back(data.start(comm::Collective::all_reduce_sum, tensors[i], tensors[i]));
    // At most two are in 128 MiB.
    for (int k = 0; k <= i; ++k)
      EXPECT_EQ(first(tensors[k]), (k + 1) * (k <= i - 2 ? job().size() : 1)) << i;
  }
  for (int i = 0; i < 4; ++i) {
    data.finish(tickets[i]);
    EXPECT_EQ(first(tensors[i]), (i + 1) * job().size());
  }
  EXPECT_ANY_THROW(data.finish(tickets[0]));
}

TEST_F(Nccl, NeedsEachOfItsWaits) {
  if (job().size() == 1) return;
  emulator::runtime.late = true;
  const auto sums_are_right = [&](long ignored) {
    emulator::runtime.event_waits = 0, emulator::runtime.ignored_wait = ignored;
    const auto fill = [&](const Tensor& t, float v) {
      kernels::fill(stream(), kernels::FillArgs<float>{t.elements(), v, t.ptr<float>()});
    };
    const Tensor a = tensor(8), b = tensor(8), other = tensor(8), after_a = tensor(8),
                 after_b = tensor(8);
    bool right = false;
    try {
      const comm::Mesh mesh = comm::device_mesh(comm::make_mesh(job(), {job().size(), 1}), device_,
                                                {.backend = comm::Backend::nccl});
      fill(a, 1), fill(b, 2);
      comm::Communicator& data = mesh.group(comm::kData);
      const auto of_a = data.start(comm::Collective::all_reduce_sum, a, a);
      fill(other, 3);
      data.finish(of_a);
      device::copy_async(stream(), after_a.data, a.data, a.bytes());
      const auto of_b = data.start(comm::Collective::all_reduce_sum, b, b);
      fill(other, 4);
      data.finish(of_b);
      device::copy_async(stream(), after_b.data, b.data, b.bytes());
      right = first(after_a) == job().size() && first(after_b) == 2 * job().size();
      emulator::finish_all();
    } catch (const Error&) {  // the stand-in has seen it
    }
    return right;
  };
  EXPECT_TRUE(sums_are_right(-1));
  const long waits = emulator::runtime.event_waits;
  EXPECT_EQ(waits, 4);
  for (long i = 0; i < waits; ++i) EXPECT_FALSE(sums_are_right(i)) << "without wait " << i;
}

TEST_F(Nccl, TheRecorderFollowsTheDevice) {
  if (job().size() == 1) return;
  const comm::Mesh host = comm::make_mesh(job(), {job().size(), 1});
  const comm::Mesh mesh = comm::device_mesh(host, device_, {.backend = comm::Backend::nccl});
  const Tensor t = tensor(10);
  const auto status = [&] { return host.recorder->status(job().rank()); };
  for (int i = 0; i < 2 * comm::FlightRecorder::kEvents; ++i) mesh.group(comm::kData).all_reduce(t);
  ASSERT_TRUE(status().waiting) << "the oldest is known however long the queue is";
  const std::uint64_t oldest = status().waiting->number,
                      last = status().entered[comm::kData.bits()];
  EXPECT_EQ(last, oldest + 2 * comm::FlightRecorder::kEvents - 1);
  EXPECT_EQ(status().waiting->str(),
            "all_reduce #" + std::to_string(oldest) + " on the data axis (40 bytes)");
  EXPECT_EQ(host.recorder->recent(job().rank()).back().left, 0);
  first(t);
  for (int tries = 0; status().waiting && tries < 500; ++tries)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  EXPECT_FALSE(status().waiting);
  EXPECT_GT(host.recorder->recent(job().rank()).back().left, 0);
  host.world().barrier();
}

TEST_F(Nccl, WhatIsCapturedIsNotRecorded) {
  if (job().size() == 1) return;
  const comm::Mesh host = comm::make_mesh(job(), {job().size(), 1});
  const comm::Mesh mesh = comm::device_mesh(host, device_, {.backend = comm::Backend::nccl});
  const Tensor t = tensor(job().size());
  write(t, 1);
  const auto entered = [&] {
    return host.recorder->status(job().rank()).entered[comm::kData.bits()];
  };
  device::Replay replay;
  const auto work = [&] {
    mesh.group(comm::kData).all_reduce(t);
    comm::Communicator& data = mesh.group(comm::kData);
    Tensor part = t;
    part.shape = {t.elements() / data.size()};
    part.data = static_cast<float*>(t.data) + part.elements() * data.rank();
    data.finish(data.start(comm::Collective::reduce_scatter, t, part));
  };
  replay.run(stream(), work);
  const std::uint64_t before = entered();
  const int calls = emulator::nccl.calls;
  replay.run(stream(), work);
  replay.run(stream(), work);
  EXPECT_TRUE(replay.recorded());
  EXPECT_EQ(emulator::nccl.calls, calls + 4);
  EXPECT_EQ(entered(), before);
  stream().wait();
}

TEST_F(Nccl, AutoWantsAGpuForEveryRank) {
  if (job().size() == 1) return;
  const comm::Mesh host = comm::make_mesh(job(), {job().size(), 1});
  const auto uses_nccl = [&](comm::Backend backend) {
    const comm::Mesh mesh = comm::device_mesh(host, device_, {.backend = backend});
    const int calls = emulator::nccl.calls;
    mesh.world().all_reduce(tensor(1));
    stream().wait();
    return emulator::nccl.calls > calls;
  };
  EXPECT_FALSE(uses_nccl(comm::Backend::automatic));
  EXPECT_FALSE(uses_nccl(comm::Backend::mpi));
  unsetenv("NCCL_HOSTID");
  setenv("NCCL_PROTO", "LL", 1);
  EXPECT_TRUE(uses_nccl(comm::Backend::nccl));
  EXPECT_EQ(std::string(getenv("NCCL_HOSTID")), "tfm-" + std::to_string(job().rank()));
  EXPECT_EQ(std::string(getenv("NCCL_PROTO")), "LL") << "what the user has set stays";
  EXPECT_EQ(std::string(getenv("NCCL_NET")), "Socket");
  emulator::runtime.bus_id = "0000:0" + std::to_string(job().rank()) + ":00.0";
  unsetenv("NCCL_HOSTID");
  EXPECT_TRUE(uses_nccl(comm::Backend::automatic));
  EXPECT_EQ(getenv("NCCL_HOSTID"), nullptr);
  EXPECT_EQ(std::string(getenv("NCCL_LAUNCH_ORDER_IMPLICIT")), "1");
  EXPECT_EQ(std::string(getenv("CUDA_DEVICE_MAX_CONNECTIONS")), "32");
  EXPECT_FALSE(uses_nccl(comm::Backend::mpi));
}

TEST_F(Nccl, GroupsOfTheSameRanksShareACommunicator) {
  for (const comm::Layout& layout : test::layouts()) {
    const int before = emulator::nccl.communicators;
    const comm::Mesh mesh = comm::device_mesh(comm::make_mesh(job(), layout), device_,
                                              {.backend = comm::Backend::nccl});
    EXPECT_EQ(emulator::nccl.communicators - before,
              (layout.size(comm::kData) > 1) + (layout[comm::Axis::tensor] > 1) +
                  (layout.size(comm::kData) > 1 && layout[comm::Axis::tensor] > 1));
  }
}

TEST_F(Nccl, OfAVersionThatKeepsNoOrderServesOneGroupOnly) {
  emulator::nccl.version = 22501;
  for (const comm::Layout& layout : test::layouts()) {
    const comm::Mesh host = comm::make_mesh(job(), layout);
    const auto make = [&] { comm::device_mesh(host, device_, {.backend = comm::Backend::nccl}); };
    if (layout.size(comm::kData) > 1 && layout[comm::Axis::tensor] > 1)
      EXPECT_THROW(make(), Error);
    else
      EXPECT_NO_THROW(make());
  }
  emulator::nccl.version = 22600;
}

TEST_F(Nccl, CommunicatorsEndInOrderOrAreAborted) {
  if (job().size() == 1) return;
  const auto make = [&] {
    return comm::device_mesh(comm::make_mesh(job(), {1, job().size()}), device_,
                             {.backend = comm::Backend::nccl});
  };
  const int destroyed = emulator::nccl.destroyed, aborted = emulator::nccl.aborted;
  make();
  EXPECT_EQ(emulator::nccl.destroyed, destroyed + 1);
  try {
    const comm::Mesh mesh = make();
    throw 1;
  } catch (int) {
  }
  EXPECT_EQ(emulator::nccl.aborted, aborted + 1);
}

TEST_F(Nccl, ARankThatDoesNotConnectIsAnError) {
  if (job().size() == 1) return;
  const comm::Mesh mesh = comm::make_mesh(job(), {job().size(), 1});
  if (job().rank() + 1 == job().size()) {  // comes late
    ncclUniqueId id;
    std::memcpy(id.internal, comm::broadcast(mesh.group(comm::kData), "").data(),
                sizeof id.internal);
    mesh.world().barrier();
    ncclComm_t comm = nullptr;
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 1;
    ncclCommInitRankConfig(&comm, job().size(), id, job().rank(), &config);
    ncclCommDestroy(comm);
  } else {
    try {
      comm::nccl_mesh(mesh, stream(), {}, 0.2, {});
      ADD_FAILURE();
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ExitCode::retryable);
      EXPECT_NE(std::string(e.what()).find("connecting NCCL's rank " +
                                           std::to_string(job().rank()) + " of the " +
                                           std::to_string(job().size()) + " of the data axis"),
                std::string::npos)
          << e.what();
    }
    mesh.world().barrier();
  }
  mesh.world().barrier();
}

}  // namespace
}  // namespace tfm
