#pragma once
#include <csignal>
#include <string>

namespace tfm::launch {

struct CommandEnd {
  int code = 0;     // exit code, as of a shell: 128 and the signal that killed it
  int request = 0;  // signal by which this program was asked to end meanwhile; 0: none
};

// Runs a command by a shell in a process group of its own and waits for it. A signal that asks this
// program to end (SIGINT, SIGTERM, SIGHUP, SIGUSR2) gives the group `pass_on` instead, a second one
// SIGKILL. Error(environment) if there is no shell.
CommandEnd run_command(const std::string& command, int pass_on = SIGTERM);

}  // namespace tfm::launch
