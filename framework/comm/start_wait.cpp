#include "comm/start_wait.h"

#include <pthread.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <csignal>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <fstream>
#include <future>
#include <initializer_list>
#include <map>
#include <mutex>
#include <string>
#include <system_error>
#include <thread>
#include <utility>

#include "core/error.h"
#include "core/host.h"

namespace tfm::comm {
namespace {

using Clock = std::chrono::steady_clock;
using Seconds = std::chrono::duration<double>;

const Clock::time_point process_start = Clock::now();
// For the launcher to end the job, or for another host to name a rank.
constexpr Seconds kGrace(5);

// A thread of this name, which /proc shows to the other ranks, says that this rank waits.
std::string thread_name(const char* what) { return ("tfm:" + std::string(what)).substr(0, 15); }

using Environment = std::map<std::string, std::string>;

// What the process was started with. Unlike what it says itself, it is there before main().
Environment environment_of(const std::string& process) {
  Environment environment;
  std::ifstream file(process + "/environ");
  for (std::string entry; std::getline(file, entry, '\0');)
    if (const auto end = entry.find('='); end != std::string::npos)
      environment.emplace(entry.substr(0, end), entry.substr(end + 1));
  return environment;
}

std::string first_of(const Environment& environment, std::initializer_list<const char*> names) {
  for (const char* name : names)
    if (const auto at = environment.find(name); at != environment.end()) return at->second;
  return {};
}

// The launcher's name of the job. Hydra has none, but one process starts all its ranks of a host.
std::string job_of(const std::string& process, const Environment& environment) {
  std::string job = first_of(environment, {"PMIX_NAMESPACE", "PMI_JOBID"});
  std::ifstream file(process + "/status");
  for (std::string line; job.empty() && std::getline(file, line);)
    if (line.starts_with("PPid:")) job = "child of " + line.substr(6);
  return job;
}

std::string own_job() { return job_of("/proc/self", environment_of("/proc/self")); }

struct Processes {  // of one rank
  int pid = 0;
  bool stopped = false, waiting = false;
};

bool waits(const std::string& process, const char* what) {
  std::error_code ended;
  for (std::filesystem::directory_iterator thread(process + "/task", ended), end;
       !ended && thread != end; thread.increment(ended)) {
    std::ifstream file(thread->path() / "comm");
    std::string name;
    if (std::getline(file, name) && name == thread_name(what)) return true;
  }
  return false;
}

// The ranks of this job that have processes on this host.
std::map<int, Processes> ranks_here(const char* what) {
  const std::string job = own_job();
  std::map<int, Processes> ranks;
  for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
    const std::string process = entry.path().string();
    const int pid = std::atoi(entry.path().filename().c_str());
    if (pid <= 0) continue;
    const Environment environment = environment_of(process);
    const std::string rank = first_of(environment, kRankVariables);
    if (rank.empty() || job_of(process, environment) != job) continue;
    Processes& of_rank = ranks[std::atoi(rank.c_str())];
    const bool stopped = process_stopped(pid);
    if (stopped || !of_rank.stopped) of_rank.pid = pid;
    of_rank.stopped |= stopped;
    of_rank.waiting |= waits(process, what);
  }
  return ranks;
}

struct Verdict {
  std::string text = "one of them hangs, or was not started";
  bool certain = false;  // it names a rank that all wait for
};

Verdict judge(const char* what) {
  const auto ranks = ranks_here(what);
  const std::string size =
      first_of(environment_of("/proc/self"), {"OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS",
                                              "PMI_LOCAL_SIZE", "MV2_COMM_WORLD_LOCAL_SIZE"});
  const int seen = static_cast<int>(ranks.size());
  const int here = size.empty() ? seen : std::atoi(size.c_str());
  // The others may be in containers of their own.
  if (!ranks.contains(rank_of_launch()) || (seen == 1 && here > 1)) return {};
  const bool one_host = here == ranks_of_launch();
  std::string missing;
  const auto add = [&](const std::string& who, const char* why) {
    missing += (missing.empty() ? "missing: " : ", ") + who + " (" + why + ")";
  };
  for (const auto& [rank, of_rank] : ranks)
    if (of_rank.stopped || !of_rank.waiting)
      add("rank " + std::to_string(rank) + ", process " + std::to_string(of_rank.pid),
          of_rank.stopped ? "stopped" : "does not wait");
  const bool certain = !missing.empty() && seen >= here;
  for (int rank = 0; one_host && rank < here; ++rank)
    if (!ranks.contains(rank)) add("rank " + std::to_string(rank), "no process in sight");
  if (!one_host && seen < here)
    add(std::to_string(here - seen) + " of " + std::to_string(here) + " ranks of this host",
        "no process in sight");
  if (missing.empty())
    missing = "all " + std::to_string(seen) + " ranks of this host wait: " +
              (one_host ? "one of them hangs" : "one of another host hangs, or was not started");
  return {missing, certain};
}

// Reading what belongs to a process that hangs in the kernel may hang, too.
Verdict judge_soon(const char* what) try {
  std::packaged_task<Verdict()> task([what] { return judge(what); });
  auto verdict = task.get_future();
  std::thread(std::move(task)).detach();
  return verdict.wait_for(kGrace) == std::future_status::ready ? verdict.get() : Verdict{};
} catch (const std::exception&) {  // no thread, or no /proc
  return {};
}

// The rank that speaks for those of its host. It has a name that one process has at a time, without
// a file.
class Speaker {
 public:
  Speaker() : socket_(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0)) {
    const std::string name = "tfm-start-wait-" + std::to_string(::geteuid()) + "-" + own_job();
    sockaddr_un address{.sun_family = AF_UNIX, .sun_path = {}};
    const auto length = name.copy(address.sun_path + 1, sizeof address.sun_path - 1);
    other_ = ::bind(socket_, reinterpret_cast<const sockaddr*>(&address),
                    static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + length)) != 0 &&
             errno == EADDRINUSE;
  }
  ~Speaker() { ::close(socket_); }
  Speaker(const Speaker&) = delete;
  Speaker& operator=(const Speaker&) = delete;

  bool is_other_rank() const { return other_; }

 private:
  int socket_;
  bool other_ = false;
};

bool asked_to_end() {  // by a SIGTERM, where it is blocked
  sigset_t pending;
  return ::sigpending(&pending) == 0 && ::sigismember(&pending, SIGTERM) == 1;
}

}  // namespace

struct StartWait::State {
  std::mutex mutex;
  std::condition_variable wake;
  bool done = false;  // guarded by mutex
  std::thread thread;

  void watch(const char* what, double timeout) {
    ::pthread_setname_np(::pthread_self(), thread_name(what).c_str());
    const Clock::time_point start = Clock::now();
    const Seconds limit(timeout + 10 * Seconds(start - process_start).count());
    std::unique_lock lock(mutex);
    constexpr Seconds slice(0.1);  // while this process is stopped it does not wait
    const auto over = [&](Seconds most) {
      for (Seconds waited(0); waited < most; waited += slice)
        if (wake.wait_for(lock, slice, [this] { return done; })) return false;
      return true;
    };
    if (!over(limit)) return;
    if (const Speaker speaker; speaker.is_other_rank()) {
      if (!over(3 * kGrace)) return;
    } else {
      Verdict verdict = judge_soon(what);
      if (!verdict.certain) {  // the launcher may be ending the job, another host may know more
        if (!over(kGrace)) return;
        verdict = judge_soon(what);
      }
      if (verdict.certain || !asked_to_end())
        std::fprintf(stderr,
                     "tfm: watchdog: rank %d on host %s has waited %.0f s for the other ranks in "
                     "%s; %s; ending the job with exit code 75\n",
                     rank_of_launch(), host_name().c_str(), limit.count(), what,
                     verdict.text.c_str());
    }
    std::fflush(stderr);
    std::_Exit(static_cast<int>(ExitCode::retryable));
  }
};

StartWait::StartWait(const char* what, double timeout)
    : state_(launched_by_mpi() ? std::make_unique<State>() : nullptr) {
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
