// Names whose random streams collide.
#include <gtest/gtest.h>

#include "core/error.h"
#include "core/philox.h"
#include "core/random_streams.h"

namespace tfm {
namespace {

TEST(RandomStreams, RefusesTwoNamesOfOneStreamAndNamesBoth) {
  ASSERT_EQ(stream_of("costarring"), stream_of("liquid"));
  RandomStreams streams;
  EXPECT_EQ(streams.add("costarring"), stream_of("costarring"));
  EXPECT_EQ(streams.add("layers.0.ffn"), stream_of("layers.0.ffn"));
  for (const char* name : {"liquid", "costarring"}) try {
      streams.add(name);
      ADD_FAILURE() << name;
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), name == std::string("liquid") ? ExitCode::usage : ExitCode::failed);
      const std::string text = e.what();
      EXPECT_NE(text.find("'costarring' and '" + std::string(name) + "'"), std::string::npos)
          << text;
    }
  EXPECT_NO_THROW(check_random_streams({"costarring", "layers.0.ffn"}));
  EXPECT_THROW(check_random_streams({"liquid", "layers.0.ffn", "costarring"}), Error);
  EXPECT_THROW(check_random_streams({"liquid", "layers.0.ffn", "liquid"}), Error);
}

}  // namespace
}  // namespace tfm
