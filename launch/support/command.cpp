#include "launch/support/command.h"

#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <ctime>
#include <system_error>

#include "core/error.h"

namespace tfm::launch {

CommandEnd run_command(const std::string& command, int pass_on) {
  sigset_t ends, before;
  sigemptyset(&ends);
  for (const int s : {SIGINT, SIGTERM, SIGHUP, SIGUSR2}) sigaddset(&ends, s);
  pthread_sigmask(SIG_BLOCK, &ends, &before);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK);
  posix_spawnattr_setsigmask(&attributes, &before);
  std::string words[] = {"sh", "-c", command};
  char* arguments[] = {words[0].data(), words[1].data(), words[2].data(), nullptr};
  pid_t child = 0;
  const int error = posix_spawn(&child, "/bin/sh", nullptr, &attributes, arguments, environ);
  posix_spawnattr_destroy(&attributes);
  int status = 0;
  CommandEnd end;
  const timespec moment{0, 20'000'000};
  while (error == 0 && ::waitpid(child, &status, WNOHANG) == 0)
    if (const int s = ::sigtimedwait(&ends, nullptr, &moment); s > 0)
      ::kill(-child, end.request == 0 ? pass_on : SIGKILL), end.request = s;
  for (int i = 0; end.request != 0 && i < 500 && ::kill(-child, 0) == 0; ++i)
    ::nanosleep(&moment, nullptr);
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (error != 0)
    throw Error(ExitCode::environment,
                "a shell cannot be started: " + std::generic_category().message(error));
  end.code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return end;
}

}  // namespace tfm::launch
