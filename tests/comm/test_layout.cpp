// The grid of ranks by hand, what a rank records of its collectives, and groups of one rank.
#include <gtest/gtest.h>
#include <unistd.h>

#include <memory>

#include "comm/axis.h"
#include "comm/calls.h"
#include "comm/flight_recorder.h"
#include "comm/mesh.h"

namespace tfm {
namespace {

using comm::Axis;
using comm::AxisSet;
using comm::Layout;

// 3 x 2 x 2 x 2 x 2 x 2 ranks; rank 53 is 1 1 0 1 0 1.
constexpr Layout kGrid(Layout::Sizes{
    .data = 8, .tensor = 2, .replicas = 2, .pipeline = 3, .context = 2, .expert = 2});

TEST(RankGrid, NumbersRanksByTheirDigits) {
  EXPECT_EQ(kGrid.world(), 96);
  EXPECT_EQ(kGrid[Axis::shard], 2) << "8 / 2 replicas / 2 experts";
  for (const auto& [axis, at] : {std::pair{Axis::pipeline, 1},
                                 {Axis::replica, 1},
                                 {Axis::shard, 0},
                                 {Axis::expert, 1},
                                 {Axis::context, 0},
                                 {Axis::tensor, 1}})
    EXPECT_EQ(kGrid.coordinate(53, axis), at) << name_of(axis);
  EXPECT_EQ(kGrid.place(53, comm::kData), 5);
  EXPECT_EQ(kGrid.place(53, comm::kWorld), 53);
  EXPECT_EQ(kGrid.place(53, Axis::pipeline | Axis::tensor), 3);
  EXPECT_EQ(kGrid.place(53, {}), 0);
  using Ranks = std::vector<int>;
  EXPECT_EQ(kGrid.group(53, Axis::tensor), (Ranks{52, 53}));
  EXPECT_EQ(kGrid.group(53, Axis::context), (Ranks{53, 55}));
  EXPECT_EQ(kGrid.group(53, Axis::pipeline), (Ranks{21, 53, 85}));
  EXPECT_EQ(kGrid.group(53, comm::kData), (Ranks{33, 37, 41, 45, 49, 53, 57, 61}));
  EXPECT_EQ(kGrid.group(53, Axis::replica | Axis::tensor), (Ranks{36, 37, 52, 53}));
  EXPECT_EQ(kGrid.group(53, {}), Ranks{53});
  for (const auto& [axes, apart] : {std::pair{AxisSet(Axis::tensor), 1},
                                    {Axis::context, 2},
                                    {Axis::expert, 4},
                                    {Axis::shard, 8},
                                    {Axis::replica, 16},
                                    {Axis::pipeline, 32},
                                    {comm::kData, 4},
                                    {Axis::replica | Axis::shard, 8},
                                    {AxisSet(), 96}})
    EXPECT_EQ(kGrid.stride(axes), apart);
  EXPECT_EQ(Layout(4, 1).stride(Axis::tensor), 4);
  EXPECT_EQ(kGrid.without(Axis::shard | Axis::tensor).world(), 24);
}

TEST(RankGrid, SaysWhatItIs) {
  using Sizes = std::map<std::string, std::int64_t>;
  EXPECT_EQ(kGrid.sizes(), (Sizes{{"data", 8},
                                  {"tensor", 2},
                                  {"replicas", 2},
                                  {"pipeline", 3},
                                  {"context", 2},
                                  {"expert", 2}}));
  EXPECT_EQ(Layout(4, 1).sizes(), (Sizes{{"data", 4}, {"tensor", 1}}));
  EXPECT_EQ(kGrid.str("=", " "), "context=2 data=8 expert=2 pipeline=3 replicas=2 tensor=2");
  EXPECT_EQ(kGrid.str(), "pipeline 3 x data 8 in 2 replicas with expert 2 x context 2 x tensor 2");
  EXPECT_EQ(Layout(4, 2).str(), "data 4 x tensor 2");
  for (const auto& [axes, name] : {std::pair{comm::kWorld, "world"},
                                   {comm::kData, "data"},
                                   {comm::kData - Axis::expert, "expert_data"},
                                   {comm::kData - Axis::replica, "shard"},
                                   {Axis::shard, "expert_shard"},
                                   {Axis::replica, "replica"},
                                   {Axis::tensor, "tensor"},
                                   {comm::kData | Axis::tensor, "data+tensor"},
                                   {Axis::shard | Axis::tensor, "expert_shard+tensor"},
                                   {Axis::context | Axis::tensor, "context+tensor"}})
    EXPECT_EQ(name_of(axes), name);
}

TEST(RankGrid, HasTheGroupsThatItsAxesNeed) {
  EXPECT_EQ(Layout(4, 2).groups().size(), 3U);
  EXPECT_EQ(Layout(Layout::Sizes{.data = 4, .replicas = 2}).groups().size(), 6U);
  EXPECT_EQ(Layout(Layout::Sizes{.pipeline = 2}).groups().size(), 5U);
  EXPECT_EQ(Layout(Layout::Sizes{.context = 2}).groups().size(), 5U);
  EXPECT_EQ(Layout(Layout::Sizes{.pipeline = 2, .context = 2}).groups().size(), 8U);
  const Layout flat(4, 1), stages(Layout::Sizes{.data = 4, .pipeline = 2}),
      replicas(Layout::Sizes{.data = 4, .replicas = 2});
  EXPECT_EQ(flat.stage(), comm::kWorld);
  EXPECT_EQ(stages.stage(), comm::kWorld - Axis::pipeline);
  EXPECT_EQ(flat.group_of(Axis::shard), comm::kData);
  EXPECT_EQ(flat.shared(comm::kData), comm::kData);
  EXPECT_EQ(replicas.shared(comm::kData), comm::kData - Axis::replica);
}

class Recorder : public testing::Test {
 protected:
  using Log = comm::FlightRecorder;
  static constexpr comm::Collective kSum = comm::Collective::all_reduce_sum;
  // One of two ranks; the other is on another node.
  Recorder() : log_(Layout(2, 1), 1, {nullptr, aligned()}) {}
  void* aligned() {
    void* at = memory_.data();
    std::size_t room = memory_.size();
    return std::align(64, Log::record_bytes(), at, room);
  }
  std::vector<std::byte> memory_ = std::vector<std::byte>(Log::record_bytes() + 64);
  Log log_;
};

TEST_F(Recorder, KnowsItsRank) {
  EXPECT_FALSE(log_.visible(0));
  EXPECT_TRUE(log_.visible(1));
  EXPECT_EQ(log_.status(1).pid, ::getpid());
  EXPECT_EQ(log_.status(1).step, -1);
  const double before = Log::now();
  log_.heartbeat(7);
  EXPECT_EQ(log_.status(1).step, 7);
  EXPECT_GE(log_.status(1).heartbeat, before);
  EXPECT_EQ(log_.members(comm::kData, 1), (std::vector<int>{0, 1}));
  EXPECT_TRUE(log_.claim_report());
  EXPECT_FALSE(log_.claim_report());
  EXPECT_EQ(log_.failure(), "");
  log_.fail("first"), log_.fail("second");
  EXPECT_EQ(log_.failure(), "first");
  log_.sign_off();
  EXPECT_EQ(log_.status(1).pid, 0);
}

TEST_F(Recorder, CountsCollectivesOfEachGroup) {
  log_.end(log_.begin(comm::kData, kSum, 8));
  log_.end(log_.begin(Axis::tensor, kSum, 16));
  const comm::Event e = log_.begin(comm::kData, comm::Collective::all_gather, 24);
  EXPECT_EQ(std::tuple(e.number, e.ordinal, e.bytes), std::tuple(2U, 3U, 24));
  EXPECT_EQ(e.str(), "all_gather #2 on the data axis (24 bytes)");
  const auto entered = log_.status(1).entered;
  EXPECT_EQ(entered[comm::kData.bits()], 2U);
  EXPECT_EQ(entered[AxisSet(Axis::tensor).bits()], 1U);
  EXPECT_EQ(log_.begin(Axis::pipeline, comm::Collective::send, 4, 5).str(),
            "send #1 to rank 5 on the pipeline axis (4 bytes)");
  EXPECT_EQ(log_.begin(Axis::pipeline, comm::Collective::receive, 4, 0).str(),
            "receive #2 from rank 0 on the pipeline axis (4 bytes)");
  const auto events = log_.recent(1);
  ASSERT_EQ(events.size(), 5U);
  EXPECT_GT(events[0].left, 0);
  EXPECT_GE(events[0].left, events[0].entered);
  EXPECT_EQ(events[2].left, 0) << "not complete";
}

TEST_F(Recorder, RemembersTheLastOnes) {
  for (int i = 0; i < Log::kEvents; ++i) log_.begin(comm::kData, kSum, i);
  EXPECT_EQ(log_.recent(1).size(), 256U);
  EXPECT_EQ(log_.recent(1).front().ordinal, 1U);
  for (int i = 0; i < 44; ++i) log_.begin(comm::kData, kSum, i);
  const auto events = log_.recent(1);
  ASSERT_EQ(events.size(), 256U);
  EXPECT_EQ(events.front().ordinal, 45U);
  EXPECT_EQ(events.back().ordinal, 300U);
}

TEST_F(Recorder, TellsTheOlderOfWhatTheRankAndItsDeviceWaitFor) {
  const comm::Event first = log_.begin(comm::kData, kSum, 8),
                    second = log_.begin(comm::kData, kSum, 16),
                    third = log_.begin(comm::kData, kSum, 24);
  EXPECT_FALSE(log_.status(1).waiting);
  log_.device_waits(second);
  EXPECT_EQ(log_.status(1).waiting->ordinal, 2U);
  log_.wait(third);
  EXPECT_EQ(log_.status(1).waiting->ordinal, 2U);
  log_.device_waits({});
  EXPECT_EQ(log_.status(1).waiting->ordinal, 3U);
  log_.end(third);
  EXPECT_FALSE(log_.status(1).waiting);
  log_.wait(first);
  log_.device_waits(second);
  EXPECT_EQ(log_.status(1).waiting->ordinal, 1U);
  log_.hand_over(first);
  EXPECT_EQ(log_.status(1).waiting->ordinal, 2U);
}

TEST_F(Recorder, SumsTheTimeOfWaiting) {
  const comm::Event waited = log_.begin(comm::kData, kSum, 8),
                    handed = log_.begin(comm::kData, kSum, 8);
  const auto seconds = [&] { return log_.waited()[comm::kData.bits()]; };
  log_.wait(waited);
  ::usleep(3000);
  log_.end(waited);
  EXPECT_GE(seconds(), 0.003);
  EXPECT_LT(seconds(), 30);
  const double before = seconds();
  log_.wait(handed);
  log_.hand_over(handed);
  log_.end(handed);
  EXPECT_EQ(seconds(), before) << "a device completes it";
  log_.end(log_.begin(comm::kData, kSum, 8));
  EXPECT_EQ(seconds(), before) << "without a wait";
  EXPECT_EQ(log_.waited()[AxisSet(Axis::tensor).bits()], 0);
}

TEST(GroupOfOne, CopiesOrDoesNothing) {
  const auto group = comm::single_communicator();
  std::vector<float> from{1, 2, 3}, to(3), two(2);
  const auto tensor = [](std::vector<float>& v) {
    return Tensor{v.data(), DType::f32, {std::ssize(v)}};
  };
  using Kind = comm::Collective;
  for (const Kind kind :
       {Kind::reduce_scatter, Kind::all_gather, Kind::ring_shift, Kind::all_to_all}) {
    std::ranges::fill(to, 0);
    group->run(kind, tensor(from), tensor(to));
    EXPECT_EQ(to, from) << name_of(kind);
    EXPECT_ANY_THROW(group->run(kind, tensor(from), tensor(two)));
  }
  group->run(Kind::all_reduce_sum, tensor(from), tensor(from));
  EXPECT_EQ(from, (std::vector<float>{1, 2, 3}));
  EXPECT_ANY_THROW(group->run(Kind::all_reduce_sum, tensor(from), tensor(to)));
  for (const Kind kind : {Kind::broadcast, Kind::barrier, Kind::send, Kind::receive})
    EXPECT_ANY_THROW(group->run(kind, tensor(from), tensor(from)));
  EXPECT_NO_THROW(group->broadcast(tensor(from), 0));
  EXPECT_ANY_THROW(group->broadcast(tensor(from), 1));
  EXPECT_EQ(group->next() + group->previous(), 0);
  EXPECT_EQ(comm::Communicator::staging_bytes(1), 0);
  EXPECT_GT(comm::Communicator::staging_bytes(2), 0);
}

TEST(DeclaredCalls, RunAllAndNoOthers) {
  const comm::Mesh mesh = comm::single_mesh();
  const std::vector<comm::CollectiveCall> list{
      {comm::Collective::all_reduce_sum, comm::kData, 8},
      {comm::Collective::all_reduce_max, comm::kWorld, 16}};
  std::vector<double> two(2);
  const Tensor one{two.data(), DType::f64, {1}}, both{two.data(), DType::f64, {2}};
  comm::Calls calls(mesh, list);
  EXPECT_ANY_THROW(calls.finish());
  calls.next(one);
  EXPECT_ANY_THROW(calls.finish());
  calls.next(both);
  EXPECT_NO_THROW(calls.finish());
  EXPECT_ANY_THROW(calls.next(one));
  comm::Calls other(mesh, list);
  EXPECT_ANY_THROW(other.next(both)) << "not the declared bytes";
}

}  // namespace
}  // namespace tfm
