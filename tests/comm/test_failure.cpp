// What a job prints that fails on some or all of its ranks.
#include <gtest/gtest.h>

#include "comm/failure.h"

namespace tfm::comm {
namespace {

TEST(Failure, WhatAllRanksReportIsPrintedOnceWithoutThem) {
  EXPECT_EQ(failure_text({{0, 2, "a", "wrong"}, {1, 2, "b", "wrong"}}, 2), "wrong");
}

TEST(Failure, WhatSomeRanksReportIsPrintedWithHostAndRank) {
  EXPECT_EQ(failure_text({{3, 3, "a", "no file"}}, 8), "[a rank 3] no file");
  EXPECT_EQ(failure_text({{0, 3, "a", "no file"},
                          {1, 3, "a", "no file"},
                          {2, 2, "b", "other"},
                          {3, 3, "a", "no file"},
                          {4, 3, "b", "no file"}},
                         5),
            "[a ranks 0-1, 3; b rank 4] no file\n[b rank 2] other");
}

}  // namespace
}  // namespace tfm::comm
