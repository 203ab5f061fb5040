// Buckets of the flat buffers, the shares of them that ranks update, and where states of several
// groups lie, by hand.
#include <gtest/gtest.h>

#include "optim/optimizer.h"
#include "optim/rules/registry.h"
#include "optim/shards.h"

namespace tfm::optim {
namespace {

// A vector of 100, a matrix of 3 x 50 and a vector of 10, at multiples of 64: 0, 128 and 320 of
// 384.
nn::ParameterSet three_parameters(const comm::Mesh& mesh) {
  nn::ParameterSet set(mesh.layout, mesh.rank());
  set.add({.parts = {{"vector", 100}}});
  set.add({.parts = {{"matrix", 3}}, .cols = 50, .decay = true});
  set.add({.parts = {{"last", 10}}});
  set.finish();
  return set;
}

std::string text(const std::vector<Bucket>& buckets) {
  std::string s;
  for (const Bucket& b : buckets) {
    s += "[" + std::to_string(b.begin) + " " + std::to_string(b.end) + ")";
    for (const int i : b.parameters) s += " " + std::to_string(i);
    s += "; ";
  }
  return s;
}

// The last parameters come first. Lengths are multiples of 64 for each of two ranks; what is left
// over is the first range's. The padding of a parameter is none of its elements.
TEST(Buckets, AreCutFromTheEnd) {
  const comm::Mesh mesh(comm::Layout(2, 1));
  const nn::ParameterSet set = three_parameters(mesh);
  ASSERT_EQ(set.flat_elements(), 384);
  const auto cut = [&](std::int64_t elements) {
    return text(make_buckets(set, mesh.layout, elements));
  };
  const std::string of_128 = "[256 384) 1 2; [128 256) 1; [0 128) 0; ";
  EXPECT_EQ(cut(1), of_128);
  EXPECT_EQ(cut(100), of_128);
  EXPECT_EQ(cut(128), of_128);
  EXPECT_EQ(cut(129), "[128 384) 1 2; [0 128) 0; ");
  EXPECT_EQ(cut(300), "[0 384) 0 1 2; ");
  EXPECT_EQ(cut(1 << 20), "[0 384) 0 1 2; ");
  const comm::Mesh alone;
  EXPECT_EQ(text(make_buckets(three_parameters(alone), alone.layout, 64)),
            "[320 384) 2; [256 320) 1; [192 256) 1; [128 192) 1; [64 128) 0; [0 64) 0; ");
}

TEST(Buckets, AreGatheredByTheStepAtTwoLevels) {
  const comm::Mesh mesh(comm::Layout(2, 1));
  const nn::ParameterSet set = three_parameters(mesh);
  const std::vector<Bucket> buckets = make_buckets(set, mesh.layout, 128);
  for (const int zero : {0, 1, 2, 3})
    for (const Bucket& b : buckets)
      EXPECT_EQ(gathered_by_step(b, set, zero), zero == 1 || zero == 2) << zero;
  EXPECT_EQ(lending_elements(buckets, set), 0);
}

// Stage 1 borrows the matrix, of which two buckets have elements: these are gathered at once.
TEST(Buckets, LendTheParametersThatOtherStagesBorrow) {
  const comm::Mesh mesh(comm::Layout(comm::Layout::Sizes{.data = 2, .pipeline = 2}));
  nn::ParameterSet set(mesh.layout, mesh.rank());
  set.add({.parts = {{"vector", 100}}});
  set.use_at(set.add({.parts = {{"matrix", 3}}, .cols = 50}), 1);
  set.add({.parts = {{"last", 10}}});
  set.finish();
  const std::vector<Bucket> buckets = make_buckets(set, mesh.layout, 128);
  ASSERT_EQ(text(buckets), "[256 384) 1 2; [128 256) 1; [0 128) 0; ");
  const bool lent[] = {true, true, false};
  for (std::size_t b = 0; b < buckets.size(); ++b) {
    EXPECT_EQ(lends(buckets[b], set), lent[b]);
    EXPECT_EQ(gathered_by_step(buckets[b], set, 1), !lent[b]);
  }
  EXPECT_EQ(lending_elements(buckets, set), 256);
}

std::string text(const ShardLayout& l) {
  std::string s;
  for (const StateRange& r : l.ranges)
    s += "[" + std::to_string(r.begin) + " " + std::to_string(r.end) + ") at " +
         std::to_string(r.state_offset) + ", " + std::to_string(r.group_offset) + " of " +
         std::to_string(r.group) + (r.decay ? " decays; " : "; ");
  return s;
}

// Of Adafactor matrices have sums of rows and columns, and vectors a square for each element: rank
// 1 has two halves of vectors, rank 0 one, and room is that of the rank with most.
TEST(Shards, OfSeveralGroupsHaveTheRoomOfTheRankWithMost) {
  const config::OptimizerConfig adafactor{.type = config::OptimizerType::adafactor};
  const auto rule = make_rule(adafactor);
  const std::string ranges[] = {
      "[256 320) at 0, 0 of 0 decays; [128 192) at 64, 64 of 0 decays; [0 64) at 128, 0 of 1; ",
      "[320 384) at 0, 0 of 1; [192 256) at 64, 0 of 0 decays; [64 128) at 128, 64 of 1; "};
  for (const int rank : {0, 1}) {
    const comm::Mesh mesh(comm::Layout(2, 1), rank);
    const nn::ParameterSet set = three_parameters(mesh);
    const std::vector<Bucket> buckets = make_buckets(set, mesh.layout, 128);
    EXPECT_EQ(shared_elements(buckets, mesh.layout), 192);
    const ShardLayout l = shard_layout(set, mesh, *rule, 1, buckets);
    EXPECT_EQ(text(l), ranges[rank]);
    EXPECT_EQ(l.elements, 192);
    ASSERT_EQ(l.states.size(), 1U);
    EXPECT_EQ(l.states[0].group, 1);
    ASSERT_EQ(l.part_states.size(), 2U);
    EXPECT_EQ(l.part_states[0].offset, 128);
    EXPECT_EQ(l.part_states[1].offset, 131);
    EXPECT_EQ(l.state_elements, 181);
    for (const PartRange& p : l.parts) EXPECT_TRUE(p.counted) << "shares are of one rank each";

    const ShardLayout whole = shard_layout(set, mesh, *rule, 0, buckets);
    EXPECT_EQ(
        text(whole),
        "[0 128) at 0, 0 of 1; [128 320) at 128, 0 of 0 decays; [320 384) at 320, 128 of 1; ");
    EXPECT_EQ(whole.elements, 384);
    EXPECT_EQ(whole.state_elements, 192 + 53);
    for (const PartRange& p : whole.parts) EXPECT_EQ(p.counted, rank == 0) << "copies are equal";
  }
}

// Of a smaller matrix no rank has as many elements as rank 1 has of vectors.
TEST(Shards, HaveRoomForTheElementsOfTheirOwnGroup) {
  const config::OptimizerConfig adafactor{.type = config::OptimizerType::adafactor};
  const comm::Mesh mesh(comm::Layout(2, 1));
  nn::ParameterSet set(mesh.layout, mesh.rank());
  set.add({.parts = {{"vector", 100}}});
  set.add({.parts = {{"matrix", 3}}, .cols = 20});
  set.add({.parts = {{"last", 10}}});
  set.finish();
  const std::vector<Bucket> buckets = make_buckets(set, mesh.layout, 128);
  const auto rule = make_rule(adafactor);
  EXPECT_EQ(shard_layout(set, mesh, *rule, 1, buckets).state_elements, 128 + 3 + 20);
  EXPECT_EQ(shard_layout(set, mesh, *rule, 0, buckets).state_elements, 192 + 3 + 20);
}

// What rank 0 has of the matrix: its elements without padding, the later bucket first.
TEST(Shards, KnowWhichElementsOfPartsTheyHave) {
  const comm::Mesh mesh(comm::Layout(2, 1));
  const nn::ParameterSet set = three_parameters(mesh);
  const config::OptimizerConfig adamw;
  const ShardLayout l =
      shard_layout(set, mesh, *make_rule(adamw), 1, make_buckets(set, mesh.layout, 128));
  std::string parts;
  for (const PartRange& p : l.parts)
    parts += std::to_string(p.part) + " [" + std::to_string(p.begin) + " " + std::to_string(p.end) +
             ") from " + std::to_string(p.first) + " at " + std::to_string(p.state_offset) + "; ";
  EXPECT_EQ(parts, "0 [0 64) from 0 at 128; 1 [256 278) from 128 at 0; 1 [128 192) from 0 at 64; ");
  ASSERT_EQ(l.states.size(), 2U) << "both moments";
  EXPECT_EQ(l.state_elements, 2 * 192);
}

// Level 1 shards the state, 2 gradients, too, 3 parameters, too. Gradients
// that must be alike on every layout are sharded from level 1 on.
TEST(Levels, SayWhatIsSharded) {
  using enum graph::Summed;
  for (const int zero : {0, 1, 2, 3}) {
    const graph::Sharded usual = sharded_by(zero, false), alike = sharded_by(zero, true);
    EXPECT_EQ(usual.parameters, zero == 3);
    EXPECT_EQ(alike.parameters, zero == 3);
    EXPECT_EQ(usual.gradients, zero >= 2);
    EXPECT_EQ(alike.gradients, zero >= 1);
    EXPECT_EQ(usual.summed, zero >= 2 ? every_run : at_last);
    EXPECT_EQ(alike.summed, every_run_over_replicas);
  }
}

}  // namespace
}  // namespace tfm::optim
