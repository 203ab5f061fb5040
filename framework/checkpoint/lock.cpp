#include "checkpoint/lock.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <sstream>

#include "core/error.h"
#include "core/host.h"
#include "io/file.h"

namespace tfm::checkpoint {
namespace {

// The kernel's ENOTSUPP, which NFS and DVS let out and <cerrno> does not have.
constexpr int kernel_enotsupp = 524;

struct Owner {
  std::string host, boot;
  long pid = 0;
  // Of Slurm: the job, and how often it was queued again. It runs once at a time.
  std::string job;
  long restarts = 0;
  std::string str() const {
    return "pid " + std::to_string(pid) + " on " +
           (host.empty() ? "an unknown host" : in_quotes(host));
  }
};

Owner own() {
  Owner me{host_name(), boot_id(), static_cast<long>(::getpid())};
  if (const char* job = std::getenv("SLURM_JOB_ID")) me.job = job;
  if (const char* restarts = std::getenv("SLURM_RESTART_COUNT")) me.restarts = std::atol(restarts);
  return me;
}

Owner owner_of(int fd) {
  char text[1024];
  const ssize_t n = ::pread(fd, text, sizeof text, 0);
  std::istringstream in(std::string(text, n > 0 ? static_cast<std::size_t>(n) : 0));
  Owner owner;
  std::string key;
  while (in >> key)
    if (key == "host")
      in >> owner.host;
    else if (key == "pid")
      in >> owner.pid;
    else if (key == "boot")
      in >> owner.boot;
    else if (key == "job")
      in >> owner.job >> owner.restarts;
  return owner;
}

}  // namespace

RunLock::RunLock(const std::string& dir) : path_(dir + "/run.lock") {
  io::create_directories(dir);
  const auto refuse = [&](const std::string& text, ExitCode code = ExitCode::environment) {
    if (fd_ >= 0) ::close(fd_);
    throw Error(code, path_ + ": " + text);
  };
  bool locks = true;  // whether the file system has locks
  // Again where the previous owner removed the file between open and lock; not for ever, on a file
  // system whose numbers of files change.
  for (int tries = 1;; ++tries) {
    fd_ = ::open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    if (fd_ < 0 && errno == EISDIR)
      refuse("is a directory; remove it, or set another checkpoint.dir", ExitCode::usage);
    const bool lasts = fd_ < 0 && (errno == EACCES || errno == EPERM || errno == EROFS);
    if (fd_ < 0)
      refuse("cannot be opened: " + errno_text() +
                 (lasts ? "; choose a directory that you may write to" : ""),
             lasts ? ExitCode::usage : ExitCode::retryable);
    if (::flock(fd_, LOCK_EX | LOCK_NB) != 0) {
      if (errno == EWOULDBLOCK)
        refuse("another run is using this directory (" + owner_of(fd_).str() +
               "); stop it or set another checkpoint.dir");
      locks = errno != ENOSYS && errno != EOPNOTSUPP && errno != ENOLCK && errno != kernel_enotsupp;
      if (locks) refuse("cannot be locked: " + errno_text(), ExitCode::retryable);
    }
    if (io::is_named(fd_, path_) || tries == 100) break;
    ::close(fd_);
  }
  const Owner me = own(), old = owner_of(fd_);
  const bool before_me = !me.job.empty() && me.job == old.job && me.restarts > old.restarts;
  // Another machine's kernel may not tell ours of its lock.
  if (old.pid != 0 && old.boot != me.boot && old.host != me.host && !before_me)
    refuse("locked by " + old.str() +
           " on another machine; remove this file if that run has ended");
  const bool ended =
      old.host == me.host && old.boot == me.boot &&
      (old.pid == me.pid || (::kill(static_cast<pid_t>(old.pid), 0) != 0 && errno == ESRCH));
  if (!locks && old.pid != 0 && !ended && !before_me)
    refuse("another run may be using this directory (" + old.str() +
           "), and its file system has no locks; stop it, remove this file if it has ended, or "
           "set another checkpoint.dir");
  std::string text =
      "host " + me.host + "\npid " + std::to_string(me.pid) + "\nboot " + me.boot + "\n";
  if (!me.job.empty()) text += "job " + me.job + " " + std::to_string(me.restarts) + "\n";
  if (::ftruncate(fd_, 0) != 0 ||
      ::pwrite(fd_, text.data(), text.size(), 0) != static_cast<ssize_t>(text.size()))
    refuse("cannot be written: " + errno_text(), ExitCode::retryable);
}

RunLock::~RunLock() {
  ::unlink(path_.c_str());
  ::close(fd_);
}

}  // namespace tfm::checkpoint
