#include <gtest/gtest.h>

#include <map>

#include "plan/schedule.h"

namespace tfm {
namespace {

using graph::Section;

bool forward(const plan::Pass& p) { return p.section.of == Section::Of::forward; }

// The ranks run side by side. A message waits until the one before it on the same channel has been
// received, as in Communicator::send().
class Simulation {
 public:
  Simulation(int ranks, int chunks, std::int64_t micro_batches) : ranks_(ranks), chunks_(chunks) {
    for (int r = 0; r < ranks; ++r) {
      passes_.push_back(
          plan::schedule(comm::Layout({.pipeline = ranks}), r, micro_batches, chunks));
      at_.push_back(0);
      received_part_.push_back(false);
    }
  }
  bool run() {
    for (bool moved = true; moved;) {
      moved = false;
      for (int r = 0; r < ranks_; ++r) moved |= advance(r);
    }
    for (int r = 0; r < ranks_; ++r)
      if (at_[r] < passes_[r].size()) return false;
    return true;
  }

 private:
  // From a stage to the next one, or back.
  struct Channel {
    std::vector<std::int64_t> sent;
    std::size_t received = 0;
  };
  bool advance(int r) {
    if (at_[r] == passes_[r].size()) return false;
    const plan::Pass& p = passes_[r][at_[r]];
    const int stages = ranks_ * chunks_, s = p.section.chunk * ranks_ + r,
              way = forward(p) ? 1 : -1, from = s - way, to = s + way;
    if (!received_part_[r]) {
      if (from >= 0 && from < stages) {
        Channel& c = channels_[{from, s}];
        if (c.received == c.sent.size()) return false;
        EXPECT_EQ(c.sent[c.received], p.micro_batch) << "another micro-batch's";
        ++c.received;
      }
      received_part_[r] = true;
      return true;
    }
    if (to >= 0 && to < stages) {
      Channel& c = channels_[{s, to}];
      if (c.received < c.sent.size()) return false;
      c.sent.push_back(p.micro_batch);
    }
    received_part_[r] = false;
    ++at_[r];
    return true;
  }

  int ranks_, chunks_;
  std::vector<std::vector<plan::Pass>> passes_;
  std::vector<std::size_t> at_;
  std::vector<bool> received_part_;
  std::map<std::pair<int, int>, Channel> channels_;
};

template <class F>
void each_pipeline(F&& f) {
  for (int ranks = 2; ranks <= 6; ++ranks)
    for (int chunks = 1; chunks <= 4; ++chunks)
      for (std::int64_t micro_batches = 1; micro_batches <= 13; ++micro_batches) {
        SCOPED_TRACE(std::to_string(ranks) + " ranks, " + std::to_string(chunks) + " chunks, " +
                     std::to_string(micro_batches) + " micro-batches");
        f(ranks, chunks, micro_batches);
      }
}

TEST(Schedule, EveryMessageIsReceivedAndNoStageWaitsForEver) {
  each_pipeline([](int ranks, int chunks, std::int64_t micro_batches) {
    EXPECT_TRUE(Simulation(ranks, chunks, micro_batches).run());
  });
}

TEST(Schedule, HoldsAsManyMicroBatchesAsThereAreSlots) {
  each_pipeline([](int ranks, int chunks, std::int64_t micro_batches) {
    for (int r = 0; r < ranks; ++r) {
      const auto passes =
          plan::schedule(comm::Layout({.pipeline = ranks}), r, micro_batches, chunks);
      std::vector<std::int64_t> forwards(chunks), backwards(chunks);
      std::int64_t most = 0;
      for (const plan::Pass& p : passes) {
        const int c = p.section.chunk;
        std::int64_t& next = (forward(p) ? forwards : backwards)[static_cast<std::size_t>(c)];
        EXPECT_EQ(p.micro_batch, next) << "in order";
        EXPECT_EQ(p.last, !forward(p) && next + 1 == micro_batches);
        EXPECT_EQ(p.makes_losses(chunks), !forward(p) && c + 1 == chunks);
        ++next;
        most = std::max(most, forwards[0] - backwards[0] + (!forward(p) && c == 0));
        // A chunk's forward pass follows that of the one before, its backward pass that of the
        // next.
        if (forward(p) && c > 0) {
          EXPECT_LE(forwards[c], forwards[c - 1]);
        }
        if (!forward(p)) {
          EXPECT_LE(backwards[c], c + 1 < chunks ? backwards[c + 1] : forwards[c]);
        }
      }
      EXPECT_EQ(forwards, std::vector(chunks, micro_batches));
      EXPECT_EQ(backwards, std::vector(chunks, micro_batches));
      EXPECT_EQ(most, plan::slots(passes)) << "rank " << r;
      if (chunks == 1) {
        EXPECT_EQ(most, std::min<std::int64_t>(ranks - r, micro_batches));
      }
    }
  });
}

TEST(Schedule, WithoutAPipelineMicroBatchesFollowEachOther) {
  const auto passes = plan::schedule({}, 0, 3);
  ASSERT_EQ(passes.size(), 3u);
  EXPECT_EQ(plan::slots(passes), 0);
  for (std::int64_t m = 0; m < 3; ++m) {
    EXPECT_EQ(passes[static_cast<std::size_t>(m)].section, Section{});
    EXPECT_EQ(passes[static_cast<std::size_t>(m)].micro_batch, m);
    EXPECT_EQ(passes[static_cast<std::size_t>(m)].last, m == 2);
  }
}

}  // namespace
}  // namespace tfm
