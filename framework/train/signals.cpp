#include "train/signals.h"

#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>

#include "core/error.h"

namespace tfm {
namespace {

constexpr int handled[] = {SIGUSR1, SIGUSR2, SIGTERM};
std::atomic<bool> checkpoint_wanted{false}, stop_wanted{false}, installed{false};
static_assert(std::atomic<bool>::is_always_lock_free, "a signal handler may touch nothing else");
struct sigaction previous[std::size(handled)];

void note(int signal) { (signal == SIGUSR1 ? checkpoint_wanted : stop_wanted).store(true, std::memory_order_relaxed); }

std::string stop_file(const std::string& dir) { return dir + "/STOP"; }

}  // namespace

StopRequests::StopRequests() {
  TFM_CHECK(!installed.exchange(true), "only one StopRequests at a time");
  checkpoint_wanted = stop_wanted = false;
  struct sigaction action {};
  action.sa_handler = note;
  action.sa_flags = SA_RESTART;
  sigemptyset(&action.sa_mask);
  for (std::size_t i = 0; i < std::size(handled); ++i) ::sigaction(handled[i], &action, &previous[i]);
}

StopRequests::~StopRequests() {
  for (std::size_t i = 0; i < std::size(handled); ++i) ::sigaction(handled[i], &previous[i], nullptr);
  installed = false;
}

Request StopRequests::poll(const std::string& dir) {
  if (!dir.empty() && ::access(stop_file(dir).c_str(), F_OK) == 0) stop_wanted = true;
  const bool checkpoint = checkpoint_wanted.exchange(false);
  return stop_wanted ? Request::stop : checkpoint ? Request::checkpoint : Request::none;
}

void StopRequests::obeyed(const std::string& dir) { ::unlink(stop_file(dir).c_str()); }

void die_with_parent() {
  bool launched = false;
  for (const char* name : {"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK"}) launched |= std::getenv(name) != nullptr;
  if (!launched) return;
  const pid_t parent = ::getppid();
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent) ::raise(SIGKILL);  // it died in between
}

}  // namespace tfm
