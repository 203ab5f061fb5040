// Exceptions of programs become messages and exit codes.
#include <gtest/gtest.h>

#include <new>
#include <thread>

#include "core/error.h"
#include "launch/support/guarded.h"

namespace tfm::launch {
namespace {

template <class Body>
int guarded_alone(Body&& body) {
  char name[] = "tfm-test";
  char* argv[] = {name, nullptr};
  return guarded(
      1, argv, "", [&](int, char**) { return body(), 0; }, Output::log, kEachByItself);
}

TEST(Guarded, AnExceptionIsAnExitCodeInEveryThread) {
  const auto lacks = [] { throw std::bad_alloc(); };
  const auto wrong = [] { throw Error(ExitCode::input, "file.txt: wrong"); };
  EXPECT_EXIT(std::_Exit(guarded_alone(lacks)), testing::ExitedWithCode(4), "not enough memory");
  EXPECT_EXIT(std::_Exit(guarded_alone(wrong)), testing::ExitedWithCode(3), "tfm-test: file.txt");
  EXPECT_EXIT(guarded_alone([&] { std::thread(lacks).join(); }), testing::ExitedWithCode(4),
              "not enough memory");
  EXPECT_EXIT(guarded_alone([&] { std::thread(wrong).join(); }), testing::ExitedWithCode(3),
              "tfm-test: file.txt");
}

}  // namespace
}  // namespace tfm::launch
