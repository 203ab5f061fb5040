#include "comm/start_wait.h"

#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <string>
#include <system_error>
#include <thread>

#include "core/error.h"
#include "core/host.h"

namespace tfm::comm {
namespace {

using Clock = std::chrono::steady_clock;
using Seconds = std::chrono::duration<double>;

const Clock::time_point process_start = Clock::now();

}  // namespace

struct StartWait::State {
  std::mutex mutex;
  std::condition_variable wake;
  bool done = false;  // guarded by mutex
  std::thread thread;

  void watch(const char* what, double timeout) {
    const Clock::time_point start = Clock::now();
    const Seconds limit(timeout + 10 * Seconds(start - process_start).count());
    std::unique_lock lock(mutex);
    constexpr Seconds slice(0.1);  // while this process is stopped it does not wait
    for (Seconds waited(0); waited < limit; waited += slice)
      if (wake.wait_for(lock, slice, [this] { return done; })) return;
    std::fprintf(stderr,
                 "tfm: watchdog: rank %d on host %s has waited %.0f s for the other ranks in %s: "
                 "one of them hangs, or was not started; ending the job\n",
                 rank_of_launch(), host_name().c_str(), limit.count(), what);
    std::fflush(stderr);
    std::_Exit(static_cast<int>(ExitCode::retryable));
  }
};

StartWait::StartWait(const char* what, double timeout)
    : state_(launched_by_mpirun() ? std::make_unique<State>() : nullptr) {
  if (!state_) return;
  try {
    state_->thread = std::thread([s = state_.get(), what, timeout] { s->watch(what, timeout); });
  } catch (const std::system_error&) {  // no thread: unwatched
  }
}

StartWait::~StartWait() {
  if (!state_) return;
  {
    const std::lock_guard lock(state_->mutex);
    state_->done = true;
  }
  state_->wake.notify_all();
  if (state_->thread.joinable()) state_->thread.join();
}

}  // namespace tfm::comm
