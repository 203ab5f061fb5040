#include "train/stop_requests.h"

#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <cstdlib>
#include <ctime>

namespace tfm::train {
namespace {

sigset_t requests() {
  sigset_t set;
  sigemptyset(&set);
  for (int s : {SIGUSR1, SIGUSR2, SIGTERM}) sigaddset(&set, s);
  return set;
}

// The next pending request, or -1.
int take() {
  const sigset_t set = requests();
  const timespec now{};
  return ::sigtimedwait(&set, nullptr, &now);
}

std::string stop_file(const std::string& dir) { return dir + "/STOP"; }

}  // namespace

StopRequests::StopRequests() {
  const sigset_t set = requests();
  ::pthread_sigmask(SIG_BLOCK, &set, &before_);
}

StopRequests::~StopRequests() {
  while (take() > 0) {
  }
  ::pthread_sigmask(SIG_SETMASK, &before_, nullptr);
}

Request StopRequests::poll(const std::string& dir) {
  bool checkpoint = false;
  for (int signal = take(); signal > 0; signal = take())
    (signal == SIGUSR1 ? checkpoint : stop_) = true;
  if (!dir.empty() && ::access(stop_file(dir).c_str(), F_OK) == 0) stop_ = true;
  return stop_ ? Request::stop : checkpoint ? Request::checkpoint : Request::none;
}

void StopRequests::obeyed(const std::string& dir) { ::unlink(stop_file(dir).c_str()); }

void die_with_parent() {
  bool launched = false;
  for (const char* name : {"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK"})
    launched |= std::getenv(name) != nullptr;
  if (!launched) return;
  const pid_t parent = ::getppid();
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent) ::raise(SIGKILL);  // it died in between
}

}  // namespace tfm::train
