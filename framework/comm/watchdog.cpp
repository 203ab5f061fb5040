#include "comm/watchdog.h"

#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <set>

#include "comm/consensus.h"
#include "comm/mpi.h"
#include "comm/start_wait.h"
#include "core/host.h"
#include "core/strings.h"

namespace tfm::comm {
namespace {

bool process_gone(int pid) { return kill(pid, 0) != 0 && errno == ESRCH; }

std::string seconds(double s) { return printed("%.1f s", s); }

std::string at_step(const FlightRecorder::Status& s) {
  return s.step < 0 ? "" : " at step " + std::to_string(s.step);
}

}  // namespace

Watchdog::Watchdog(const Mesh& mesh, double timeout)
    : recorder_(mesh.recorder), timeout_(timeout), parent_(getppid()) {
  if (timeout <= 0 || !recorder_ || recorder_->world() == 1) return;
  {
    const StartWait wait("reading data and making the model", timeout);
    hosts_ = gather(mesh.world(), host_name());
  }
  for (int r = 0; r < recorder_->world(); ++r) {
    const int pid = r != recorder_->rank() && recorder_->visible(r) ? recorder_->status(r).pid : 0;
    pids_.push_back(pid && !process_gone(pid)
                        ? pid
                        : 0);  // a process in another name space looks gone: not watched
  }
  thread_ = std::thread([this] { watch(); });
}

Watchdog::~Watchdog() {
  if (!thread_.joinable()) return;
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  wake_.notify_all();
  thread_.join();
  recorder_->sign_off();
}

void Watchdog::heartbeat(std::int64_t step) {
  if (recorder_) recorder_->heartbeat(step);
}

// What a rank that is waited for does.
std::string Watchdog::doing(int rank, double now) const {
  std::string text = "rank " + std::to_string(rank);
  if (!recorder_->visible(rank))
    return text + " (on host " + hosts_[static_cast<std::size_t>(rank)] + ", state unknown)";
  const FlightRecorder::Status s = recorder_->status(rank);
  text += at_step(s);
  if (process_stopped(s.pid)) text += ", process " + std::to_string(s.pid) + " (stopped)";
  if (s.waiting)
    return text + " (waiting in " + s.waiting->str() + " for " + seconds(now - s.waiting->entered) +
           ")";
  const auto events = recorder_->recent(rank);
  if (events.empty()) return text + " (has not entered a collective)";
  const Event& e = events.back();
  return text + (e.left > 0 ? " (left " + e.str() + " " + seconds(now - e.left) + " ago)"
                            : " (entered " + e.str() + ")");
}

std::string Watchdog::gone() const {
  const double now = FlightRecorder::now();
  for (std::size_t r = 0; r < pids_.size(); ++r) {
    if (!pids_[r] || !process_gone(pids_[r]) || recorder_->status(static_cast<int>(r)).pid == 0)
      continue;
    return "the process of " + doing(static_cast<int>(r), now) + " has died";
  }
  if (getppid() != parent_)
    return "the parent process of rank " + std::to_string(recorder_->rank()) + " has died";
  return {};
}

std::vector<int> Watchdog::missing(int rank, const Event& event) const {
  if (event.peer >= 0) return {event.peer};
  std::vector<int> ranks = recorder_->members(event.axes, rank);
  std::erase_if(ranks, [&](int r) {
    return r == rank || (recorder_->visible(r) &&
                         recorder_->status(r).entered[event.axes.bits()] >= event.number);
  });
  return ranks;
}

std::vector<int> Watchdog::held_up_by(std::vector<int> ranks) const {
  std::set<int> seen{recorder_->rank()};
  std::vector<int> here, elsewhere;
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    const int rank = ranks[i];
    if (!seen.insert(rank).second) continue;
    if (!recorder_->visible(rank)) {
      elsewhere.push_back(rank);
      continue;
    }
    const FlightRecorder::Status s = recorder_->status(rank);
    if (!s.waiting || process_stopped(s.pid)) {
      here.push_back(rank);
      continue;
    }
    std::vector<int> next = missing(rank, *s.waiting);
    if (next.empty()) {  // all have entered it: one of them may not go on
      next = recorder_->members(s.waiting->axes, rank);
      std::erase_if(next, [&](int r) {
        return recorder_->visible(r) && !process_stopped(recorder_->status(r).pid);
      });
    }
    ranks.insert(ranks.end(), next.begin(), next.end());
  }
  return here.empty() ? elsewhere : here;
}

std::string Watchdog::overdue() const {
  const double now = FlightRecorder::now();
  const int rank = recorder_->rank();
  const FlightRecorder::Status own = recorder_->status(rank);
  if (!own.waiting) return {};
  const Event& e = *own.waiting;
  std::vector<int> others = e.peer >= 0 ? std::vector{e.peer} : recorder_->members(e.axes, rank);
  std::erase_if(others, [&](int r) { return r == rank || !recorder_->visible(r); });
  double since = std::max(own.moved, resumed_);
  for (const int r : others) since = std::max(since, recorder_->status(r).heartbeat);
  const double waited = now - since;
  if (waited < timeout_) return {};
  std::string line = "rank " + std::to_string(rank) + at_step(own) + " has waited in " + e.str() +
                     " for " + seconds(now - e.entered);
  const auto list = [&](const std::vector<int>& ranks) {
    for (std::size_t i = 0; i < ranks.size(); ++i) line += (i ? ", " : "") + doing(ranks[i], now);
  };
  if (const std::vector<int> absent = missing(rank, e); !absent.empty()) {
    const std::vector<int> ends = held_up_by(absent);
    // The node of the rank that holds up all others is to report it.
    if (waited < timeout_ + std::min(2.0, timeout_ / 2) &&
        std::ranges::none_of(ends, [&](int r) { return recorder_->visible(r); }))
      return {};
    line += "; missing: ";
    list(absent);
    if (!ends.empty() && ends != absent) line += "; held up by ", list(ends);
    return line;
  }
  const auto last_sign = [this](int r) {
    const FlightRecorder::Status s = recorder_->status(r);
    return process_stopped(s.pid) ? 0 : std::max(s.moved, s.heartbeat);
  };
  line += "; all ranks have entered it; no progress for the longest time: ";
  list({*std::ranges::min_element(others, {}, last_sign)});
  return line;
}

void Watchdog::watch() {
  ::pthread_setname_np(::pthread_self(), "tfm:watchdog");
  const auto period = std::chrono::duration<double>(std::min(0.2, timeout_ / 4));
  std::unique_lock lock(mutex_);
  for (double looked = FlightRecorder::now();
       !wake_.wait_for(lock, period, [this] { return stop_; });) {
    const double now = FlightRecorder::now();
    if (now - looked > 2) resumed_ = now;  // the whole job may have been suspended
    looked = now;
    std::string line = gone();
    if (const std::string reason = recorder_->failure(); line.empty() && !reason.empty())
      line = "rank " + std::to_string(recorder_->rank()) + ": " + reason;
    if (line.empty()) line = overdue();
    if (line.empty()) continue;
    if (recorder_->claim_report()) {
      line = "tfm: watchdog: " + line + "; ending the job with exit code 75\n";
      if (write(STDERR_FILENO, line.data(), line.size()) < 0) std::perror("watchdog");
    } else {
      std::this_thread::sleep_for(
          std::chrono::seconds(1));  // the one that reports also ends the job
    }
    MpiSession::abort(static_cast<int>(ExitCode::retryable));
  }
}

}  // namespace tfm::comm
