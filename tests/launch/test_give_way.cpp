// Waiting threads of OpenMP: when they sleep, and that they do.
#include <gtest/gtest.h>

#include <fstream>
#include <functional>
#include <thread>

#include "launch/support/give_way.h"
#include "support/data_files.h"

namespace tfm::launch {
namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;

void write_waiting(const fs::path& tasks, int task, const std::string& nanoseconds) {
  const fs::path folder = tasks / std::to_string(task);
  fs::create_directories(folder);
  std::ofstream(folder / "new") << "5000000000 " << nanoseconds << " 42\n";
  fs::rename(folder / "new", folder / "schedstat");
}

int threads_of_this_process() {
  return static_cast<int>(std::distance(fs::directory_iterator("/proc/self/task"), {}));
}

bool within_ten_seconds(const std::function<bool()>& condition) {
  for (int i = 0; i < 1000; ++i, std::this_thread::sleep_for(10ms))
    if (condition()) return true;
  return false;
}

TEST(GiveWay, AddsUpWhatAllThreadsWaitedForACore) {
  const test::TemporaryFolder folder;
  const fs::path tasks = folder.str();
  write_waiting(tasks, 7, "1500000000");
  write_waiting(tasks, 8, "250000000");
  fs::create_directories(tasks / "9");  // ended while it was read
  EXPECT_DOUBLE_EQ(seconds_without_core(tasks, 0), 1.75);
  EXPECT_DOUBLE_EQ(seconds_without_core(tasks, 8), 1.5);
  EXPECT_EQ(seconds_without_core(tasks / "missing", 0), 0);
}

TEST(GiveWay, RestsLongerEachTimeThatCoresAreStillBusy) {
  EXPECT_EQ(next_rest(0.05, 0ms), 0ms);
  EXPECT_EQ(next_rest(1.0, 0ms), 200ms);
  EXPECT_EQ(next_rest(1.0, 200ms), 400ms);
  EXPECT_EQ(next_rest(1.0, 16000ms), 16000ms);
  EXPECT_EQ(next_rest(0.05, 16000ms), 0ms);
}

TEST(GiveWay, StartsASecondTeamWhileThreadsHaveNoCore) {
  const test::TemporaryFolder folder;
  const fs::path tasks = folder.str();
  write_waiting(tasks, 7, "0");
  const int before = threads_of_this_process(), cores = 4, threads = 3;
  {
    const GiveWay give_way(threads, cores, tasks);
    EXPECT_TRUE(within_ten_seconds([&] { return threads_of_this_process() == before + 1; }));
    // The watching one, and a team of three: more threads of OpenMP than cores.
    EXPECT_TRUE(within_ten_seconds([&, seconds = 0]() mutable {
      write_waiting(tasks, 7, std::to_string(++seconds) + "000000000");
      return threads_of_this_process() == before + 4;
    }));
    // They have cores again.
    EXPECT_TRUE(within_ten_seconds([&] { return threads_of_this_process() == before + 1; }));
  }
  EXPECT_TRUE(within_ten_seconds([&] { return threads_of_this_process() == before; }));
}

}  // namespace
}  // namespace tfm::launch
