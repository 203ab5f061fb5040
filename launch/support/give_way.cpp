#include "launch/support/give_way.h"

#include <omp.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstdlib>
#include <fstream>
#include <mutex>
#include <string>
#include <utility>

namespace tfm::launch {
namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;
using std::chrono::milliseconds;

constexpr auto kTick = 50ms, kShortestRest = 200ms, kLongestRest = 16000ms;
constexpr double kBusy = 0.3;  // threads; two jobs that share all cores of two threads: 1.0

class Pause {
 public:
  explicit Pause(std::stop_token stop) : stop_(std::move(stop)) {}
  // False: it was asked to stop.
  bool operator()(milliseconds time) {
    std::unique_lock lock(mutex_);
    wake_.wait_for(lock, stop_, time, [] { return false; });
    return !stop_.stop_requested();
  }

 private:
  std::stop_token stop_;
  std::mutex mutex_;
  std::condition_variable_any wake_;
};

// An idle team. It belongs to a thread of its own, with which it ends.
void rest(int team, milliseconds time, const std::stop_token& stop) {
  std::jthread([&] {
    std::atomic<int> started = 0;
#pragma omp parallel num_threads(team)
    ++started;
    Pause pause(stop);
    pause(time);
  }).join();
}

void watch(const std::stop_token& stop, int team, const fs::path& tasks) {
  Pause pause(stop);
  const int self = gettid();  // it may wait while the team spins on all cores
  milliseconds last = 0ms;
  while (true) {
    const auto begin = std::chrono::steady_clock::now();
    const double before = seconds_without_core(tasks, self);
    if (!pause(kTick)) return;
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
    last = next_rest((seconds_without_core(tasks, self) - before) / seconds.count(), last);
    if (last > 0ms) rest(team, last, stop);
  }
}

}  // namespace

double seconds_without_core(const fs::path& tasks, int except) {
  const std::string own = std::to_string(except);
  double nanoseconds = 0;
  std::error_code none;  // threads may end meanwhile
  for (fs::directory_iterator task(tasks, none), end; task != end; task.increment(none)) {
    double running = 0, waiting = 0;
    if (task->path().filename() == own) continue;
    if (std::ifstream(task->path() / "schedstat") >> running >> waiting) nanoseconds += waiting;
  }
  return nanoseconds * 1e-9;
}

milliseconds next_rest(double share, milliseconds last) {
  return share > kBusy ? std::clamp<milliseconds>(2 * last, kShortestRest, kLongestRest) : 0ms;
}

bool wait_policy_is_set() {
  return std::getenv("OMP_WAIT_POLICY") != nullptr || std::getenv("GOMP_SPINCOUNT") != nullptr;
}

GiveWay::GiveWay(int threads, int cores, fs::path tasks)
    : watch_([team = std::max(2, cores - threads + 2), tasks = std::move(tasks)](
                 const std::stop_token& stop) { watch(stop, team, tasks); }) {}

}  // namespace tfm::launch
