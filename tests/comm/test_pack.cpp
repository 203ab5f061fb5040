// Values as bytes that ranks exchange.
#include <gtest/gtest.h>

#include "comm/pack.h"

namespace tfm {
namespace {

struct Sizes {
  int ranks = 0;
  double seconds = 0;
  friend bool operator==(const Sizes&, const Sizes&) = default;
};

TEST(Pack, ValuesComeBack) {
  const Sizes sizes{3, 0.1};
  const std::string text("a\0b\n", 4), none;
  const std::vector<int> numbers{7, -1};
  Sizes sizes_back;
  std::string text_back = "x", none_back = "y";
  std::vector<int> numbers_back;
  comm::unpack(comm::pack(text, sizes, numbers, none), text_back, sizes_back, numbers_back,
               none_back);
  EXPECT_EQ(text_back, text);
  EXPECT_EQ(sizes_back, sizes);
  EXPECT_EQ(numbers_back, numbers);
  EXPECT_EQ(none_back, none);
}

TEST(Pack, TooFewBytesAreFound) {
  const std::string bytes = comm::pack(std::string("text"));
  std::string back;
  EXPECT_THROW(comm::unpack(bytes.substr(0, bytes.size() - 1), back), std::exception);
  EXPECT_THROW(comm::unpack(bytes.substr(0, 3), back), std::exception);
}

}  // namespace
}  // namespace tfm
