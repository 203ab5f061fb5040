// The time of all ranks, and the one that the others wait for.
#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "core/host.h"
#include "job.h"
#include "train/rank_times.h"

namespace tfm {
namespace {

using test::job;

TEST(RankTimes, NameTheRankThatOthersWaitFor) {
  const comm::Mesh& mesh = test::mesh_of({job().size(), 1});
  train::RankTimes times(mesh, mesh);
  const int slow = job().size() - 1;
  double value = 0;
  const auto step = [&](double seconds) {
    std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
    mesh.group(mesh.layout.group_of(comm::kData)).all_reduce({&value, DType::f64, {1}});
    times.add({{"data", seconds}, {"other", 1.0}});
  };
  step(0);
  times.gather();  // until now another rank was slow
  for (int i = 0; i < 2; ++i) step(mesh.rank() == slow ? 0.2 : 0);
  times.gather();
  for (int r = 0; r < times.ranks(); ++r) {
    EXPECT_EQ(times.host(r), host_name());
    EXPECT_EQ(times.phases(r).at("other"), 3);
    EXPECT_EQ(times.phases(r).contains("data"), r == slow);
  }
  const auto straggler = times.straggler();
  if (job().size() == 1) {
    EXPECT_FALSE(straggler) << "nobody waits";
    return;
  }
  ASSERT_TRUE(straggler);
  EXPECT_EQ(straggler->rank, slow);
  EXPECT_GT(straggler->seconds, 0.1);
  EXPECT_LT(straggler->seconds, 10);
  double waited = 0;
  for (const auto& [axes, seconds] : times.collectives(0)) waited += seconds;
  EXPECT_GT(waited, 0.3);
  // What was slow before the last gather() is no part of it.
  for (int i = 0; i < 2; ++i) step(mesh.rank() == 0 ? 0.1 : 0);
  times.gather();
  EXPECT_EQ(times.straggler()->rank, 0);
  EXPECT_LT(times.straggler()->seconds, straggler->seconds);
}

// A group whose collectives a device completes, as those of NCCL.
class OnStream final : public comm::Communicator {
 public:
  explicit OnStream(int size) : size_(size) {}
  int rank() const override { return 0; }
  int size() const override { return size_; }
  bool on_stream() const override { return true; }
  void all_reduce(Tensor, comm::Collective) override {}
  void reduce_scatter(Tensor, Tensor) override {}
  void all_gather(Tensor, Tensor) override {}
  void ring_shift(Tensor, Tensor) override {}
  void all_to_all(Tensor, Tensor) override {}
  void broadcast(Tensor, int) override {}
  void barrier() override {}
  Ticket start(comm::Collective, Tensor, Tensor) override { return 0; }
  void finish(Ticket) override {}

 private:
  int size_;
};

TEST(RankTimes, SayNothingOfCollectivesThatADeviceCompletes) {
  const comm::Mesh& mesh = test::mesh_of({job().size(), 1});
  comm::Mesh tensors = mesh;
  for (const comm::AxisSet axes : mesh.layout.groups())
    tensors.handle(axes) = std::make_shared<OnStream>(mesh.layout.size(axes));
  train::RankTimes times(mesh, tensors);
  double value = 0;
  mesh.world().all_reduce({&value, DType::f64, {1}});
  times.add({{"step", 1.0}});
  times.gather();
  EXPECT_FALSE(times.straggler());
  EXPECT_TRUE(times.collectives(0).empty());
  EXPECT_EQ(times.phases(0).at("step"), 1);
}

}  // namespace
}  // namespace tfm
