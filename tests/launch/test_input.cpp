// Standard input, read a few lines at a time.
#include <gtest/gtest.h>
#include <unistd.h>

#include <thread>

#include "launch/support/input.h"
#include "support/data_files.h"

namespace tfm::launch {
namespace {

// Standard input is a pipe, whose other end a test writes to.
class InputTest : public testing::Test {
 protected:
  InputTest() : before_(::dup(STDIN_FILENO)) {
    int ends[2];
    if (::pipe(ends) != 0) throw std::runtime_error("pipe");
    ::dup2(ends[0], STDIN_FILENO);
    ::close(ends[0]);
    to_ = ends[1];
  }
  ~InputTest() override {
    end();
    ::dup2(before_, STDIN_FILENO);
    ::close(before_);
  }
  void send(const std::string& text) const {
    ASSERT_EQ(::write(to_, text.data(), text.size()), std::ssize(text));
  }
  void end() {
    if (to_ >= 0) ::close(to_);
    to_ = -1;
  }
  using Lines = std::vector<std::string>;

  comm::Mesh mesh_ = comm::single_mesh();
  Input input_{mesh_};

 private:
  int before_, to_ = -1;
};

TEST_F(InputTest, LinesComeAtMostSoManyAtATimeAndAllOfThem) {
  send("one\ntwo\r\n\nfour\nfi");
  EXPECT_EQ(input_.lines(2), (Lines{"one", "two"}));
  EXPECT_EQ(input_.lines(1), (Lines{""}));
  EXPECT_EQ(input_.lines(9), (Lines{"four"})) << "the fifth is not whole yet";
  send("ve\nsix");
  EXPECT_EQ(input_.lines(1), (Lines{"five"}));
  end();
  EXPECT_EQ(input_.lines(9), (Lines{"six"})) << "which ends with the stream";
  EXPECT_EQ(input_.lines(9), Lines());
  EXPECT_EQ(input_.lines(9), Lines());
}

TEST_F(InputTest, ALineAtTheEndIsNoEmptyOneMore) {
  send("one\n");
  end();
  EXPECT_EQ(input_.lines(9), (Lines{"one"}));
  EXPECT_EQ(input_.lines(9), Lines());
}

TEST_F(InputTest, OfNothingHasNoLines) {
  end();
  EXPECT_EQ(input_.lines(3), Lines());
  EXPECT_EQ(input_.text(), "");
}

TEST_F(InputTest, TextIsWhatIsLeft) {
  send("one\ntwo\nthree");
  EXPECT_EQ(input_.lines(1), (Lines{"one"}));
  end();
  EXPECT_EQ(input_.text(), "two\nthree");
}

TEST_F(InputTest, ThatCannotBeReadIsAnError) {
  const test::TemporaryFolder folder;
  ASSERT_NE(std::freopen(folder.str().c_str(), "r", stdin), nullptr);
  test::expect_error(ExitCode::input, {"standard input cannot be read"}, [&] { input_.lines(1); });
}

}  // namespace
}  // namespace tfm::launch
