#include "train/stop_requests.h"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <ctime>
#include <filesystem>

#include "train/observers.h"

namespace tfm::train {
namespace {

sigset_t requests() {
  sigset_t set;
  sigemptyset(&set);
  for (int s : {SIGUSR1, SIGUSR2, SIGTERM}) sigaddset(&set, s);
  return set;
}

sigset_t interrupt() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGINT);
  return set;
}

// The next pending request, or -1.
int take() {
  const sigset_t set = requests();
  const timespec now{};
  return ::sigtimedwait(&set, nullptr, &now);
}

std::string stop_file(const std::string& dir) { return dir + "/STOP"; }

class ObeyRequests final : public Observer {
 public:
  explicit ObeyRequests(StopRequests& requests) : requests_(requests) {}

  bool needs_engine(const TrainingRun&) const override { return asked_ != Request::none; }

  void on_start(TrainingRun& run) override {
    const std::string dir = run.config.checkpoint.directory();
    if (!dir.empty()) requests_.obey_interrupts();
    if (run.lead() && !dir.empty() && ::access(stop_file(dir).c_str(), F_OK) == 0)
      warn(stop_file(dir) + " asks this run to stop, and is removed then");
  }

  void during_evaluation(TrainingRun& run) override {
    agree(run);
    run.stop_requested = asked_ == Request::stop;
  }

  // What is asked for while the next step is launched already is obeyed after that one.
  void after_step(TrainingRun& run) override {
    agree(run);
    if (run.ahead) return;
    run.stop_requested = asked_ == Request::stop && !run.last();
    if (asked_ == Request::checkpoint && run.config.checkpoint.directory().empty() && run.lead())
      warn("a checkpoint was asked for, and checkpoint.dir is none: nothing is saved");
    run.save |= asked_ != Request::none;
    asked_ = Request::none;
  }

  void after_checkpoint(TrainingRun&, const WrittenCheckpoint& written) override {
    written_ = written.result.ok();
    last_ = Clock::now();
  }

  void at_end(TrainingRun& run) override {
    if (!run.lead()) return;
    const std::string dir = run.config.checkpoint.directory();
    if (!dir.empty() && written_) StopRequests::obeyed(dir);
    if (run.stop_requested)
      say("stopped on request after step " + std::to_string(run.step) +
          (dir.empty() ? "; checkpoint.dir is none, so nothing was saved" : ""));
  }

 private:
  using Clock = std::chrono::steady_clock;

  // A checkpoint that is due by time is a request of rank 0, whose clock counts.
  bool due_by_time(const config::CheckpointConfig& c) const {
    return !c.directory().empty() && c.every == 0 && c.every_minutes > 0 &&
           Clock::now() - last_ >= std::chrono::minutes(c.every_minutes);
  }

  void agree(const TrainingRun& run) {
    Request now = requests_.poll(run.lead() ? run.config.checkpoint.directory() : std::string());
    if (run.lead() && due_by_time(run.config.checkpoint)) now = std::max(now, Request::checkpoint);
    auto most = static_cast<std::int32_t>(std::max(asked_, now));
    run.mesh.world().all_reduce({&most, DType::i32, {1}}, comm::Collective::all_reduce_max);
    asked_ = static_cast<Request>(most);
  }

  StopRequests& requests_;
  Request asked_ = Request::none;  // of all ranks, and not yet obeyed
  bool written_ = true;            // the last checkpoint
  Clock::time_point last_ = Clock::now();
};

}  // namespace

StopRequests::StopRequests() {
  const sigset_t set = requests(), interrupts = interrupt();
  ::pthread_sigmask(SIG_BLOCK, &set, &before_);
  struct sigaction action {};
  if (::sigaction(SIGINT, nullptr, &action) != 0 || action.sa_handler == SIG_IGN) return;
  ::pthread_sigmask(SIG_BLOCK, &interrupts, nullptr);
  interrupts_ = std::jthread([this](const std::stop_token& stop) { watch_interrupts(stop); });
}

StopRequests::~StopRequests() {
  if (interrupts_.joinable()) {
    interrupts_.request_stop();
    ::pthread_kill(interrupts_.native_handle(), SIGINT);
    interrupts_.join();
  }
  while (take() > 0) {
  }
  ::pthread_sigmask(SIG_SETMASK, &before_, nullptr);
}

void StopRequests::watch_interrupts(const std::stop_token& stop) {
  const sigset_t set = interrupt();
  for (int signal = 0; ::sigwait(&set, &signal) == 0 && !stop.stop_requested();) {
    if (obeys_interrupts_ && !interrupted_.exchange(true)) continue;
    ::pthread_sigmask(SIG_UNBLOCK, &set, nullptr);
    ::raise(SIGINT);
  }
}

Request StopRequests::poll(const std::string& dir) {
  bool checkpoint = false;
  for (int signal = take(); signal > 0; signal = take())
    (signal == SIGUSR1 ? checkpoint : stop_) = true;
  if (interrupted_ || (!dir.empty() && ::access(stop_file(dir).c_str(), F_OK) == 0)) stop_ = true;
  return stop_ ? Request::stop : checkpoint ? Request::checkpoint : Request::none;
}

void StopRequests::obeyed(const std::string& dir) {
  std::error_code stays;
  std::filesystem::remove(stop_file(dir), stays);
}

std::unique_ptr<Observer> obey_requests(StopRequests& requests) {
  return std::make_unique<ObeyRequests>(requests);
}

}  // namespace tfm::train
