#include "comm/watchdog.h"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <fstream>

#include "comm/mpi.h"
#include "comm/start_wait.h"
#include "core/host.h"

namespace tfm::comm {
namespace {

bool process_gone(int pid) { return kill(pid, 0) != 0 && errno == ESRCH; }

// Stopped by a signal or a debugger (proc(5), field 3 of stat, after the name in parentheses).
bool process_stopped(int pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
  std::string text;
  std::getline(file, text);
  const auto name_end = text.rfind(')');
  return name_end != std::string::npos && name_end + 2 < text.size() &&
         (text[name_end + 2] == 'T' || text[name_end + 2] == 't');
}

std::string seconds(double s) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1f s", s);
  return text;
}

std::string at_step(const FlightRecorder::Status& s) {
  return s.step < 0 ? "" : " at step " + std::to_string(s.step);
}

// The first 63 characters of every rank's host name.
std::vector<std::string> hosts_of(Communicator& world) {
  std::array<std::int64_t, 8> mine{};
  std::vector<std::int64_t> all(mine.size() * static_cast<std::size_t>(world.size()));
  host_name().copy(reinterpret_cast<char*>(mine.data()), sizeof mine - 1);
  world.all_gather({mine.data(), DType::i64, {std::ssize(mine)}},
                   {all.data(), DType::i64, {std::ssize(all)}});
  std::vector<std::string> hosts;
  for (std::size_t at = 0; at < all.size(); at += mine.size())
    hosts.emplace_back(reinterpret_cast<const char*>(&all[at]));
  return hosts;
}

// What a rank that is waited for does.
std::string doing(const FlightRecorder& recorder, const std::vector<std::string>& hosts, int rank,
                  double now) {
  std::string text = "rank " + std::to_string(rank);
  if (!recorder.visible(rank))
    return text + " (on host " + hosts[static_cast<std::size_t>(rank)] + ", state unknown)";
  const FlightRecorder::Status s = recorder.status(rank);
  text += at_step(s);
  if (process_stopped(s.pid)) text += ", process " + std::to_string(s.pid) + " (stopped)";
  if (s.waiting)
    return text + " (waiting in " + s.waiting->str() + " for " + seconds(now - s.waiting->entered) +
           ")";
  const auto events = recorder.recent(rank);
  if (events.empty()) return text + " (has not entered a collective)";
  const Event& e = events.back();
  return text + (e.left > 0 ? " (left " + e.str() + " " + seconds(now - e.left) + " ago)"
                            : " (entered " + e.str() + ")");
}

}  // namespace

Watchdog::Watchdog(const Mesh& mesh, double timeout)
    : recorder_(mesh.recorder), timeout_(timeout), parent_(getppid()) {
  if (timeout <= 0 || !recorder_ || recorder_->world() == 1) return;
  {
    const StartWait wait("reading data and making the model", timeout);
    hosts_ = hosts_of(mesh.world());
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

std::string Watchdog::gone() const {
  const double now = FlightRecorder::now();
  for (std::size_t r = 0; r < pids_.size(); ++r) {
    if (!pids_[r] || !process_gone(pids_[r]) || recorder_->status(static_cast<int>(r)).pid == 0)
      continue;
    return "the process of " + doing(*recorder_, hosts_, static_cast<int>(r), now) + " has died";
  }
  if (getppid() != parent_)
    return "the parent process of rank " + std::to_string(recorder_->rank()) + " has died";
  return {};
}

std::string Watchdog::overdue() const {
  const auto last_sign = [this](int r) {
    const FlightRecorder::Status s = recorder_->status(r);
    return process_stopped(s.pid) ? 0 : std::max(s.moved, s.heartbeat);
  };
  const double now = FlightRecorder::now();
  const FlightRecorder::Status own = recorder_->status(recorder_->rank());
  if (!own.waiting) return {};
  const Event& e = *own.waiting;
  double since = std::max(own.moved, resumed_);
  std::vector<int> absent, inside;  // of the other ranks of the group: have not entered it, have
  const bool message = e.peer >= 0;
  for (int r : message ? std::vector{e.peer} : recorder_->members(e.axes)) {
    if (r == recorder_->rank()) continue;
    if (!recorder_->visible(r)) {
      absent.push_back(r);
      continue;
    }
    const FlightRecorder::Status s = recorder_->status(r);
    since = std::max(since, s.heartbeat);
    (message || s.entered[e.axes.bits()] < e.number ? absent : inside).push_back(r);
  }
  if (now - since < timeout_) return {};
  std::string line = "rank " + std::to_string(recorder_->rank()) + at_step(own) +
                     " has waited in " + e.str() + " for " + seconds(now - e.entered);
  line += absent.empty() ? "; all ranks have entered it; no progress for the longest time: "
                         : "; missing: ";
  if (absent.empty())
    absent = {*std::min_element(inside.begin(), inside.end(),
                                [&](int a, int b) { return last_sign(a) < last_sign(b); })};
  for (std::size_t i = 0; i < absent.size(); ++i)
    line += (i ? ", " : "") + doing(*recorder_, hosts_, absent[i], now);
  return line;
}

void Watchdog::watch() {
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
