#include "core/host.h"

#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>

namespace tfm {

std::string host_name() {
  char text[256] = {};
  ::gethostname(text, sizeof text - 1);
  return text;
}

std::string boot_id() {
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string id;
  std::getline(file, id);
  return id;
}

std::string machine_id() { return host_name() + "/" + boot_id(); }

bool launched_by_mpi() {
  for (const char* name :
       {"OMPI_COMM_WORLD_SIZE", "PMIX_RANK", "PMI_RANK", "PMI_SIZE", "MV2_COMM_WORLD_SIZE"})
    if (std::getenv(name)) return true;
  return false;
}

int ranks_of_launch() {
  for (const char* name : {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "MV2_COMM_WORLD_SIZE"})
    if (const char* size = std::getenv(name)) return std::atoi(size);
  // Tasks of a Slurm step. A batch script runs outside of any step, as one process.
  const char* step = std::getenv("SLURM_STEP_NUM_TASKS");
  return step && std::getenv("SLURM_STEP_ID") ? std::atoi(step) : 1;
}

int rank_of_launch() {
  if (!launched_by_mpi()) return 0;  // a rank that was left behind in the environment
  for (const char* name : kRankVariables)
    if (const char* rank = std::getenv(name)) return std::atoi(rank);
  return 0;
}

void die_with_parent() {
  if (!launched_by_mpi()) return;
  const pid_t parent = ::getppid();
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent) ::raise(SIGKILL);  // it died in between
}

bool process_stopped(int pid) {  // proc(5): field 3 of stat, after the name in parentheses
  std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
  std::string text;
  std::getline(file, text);
  const auto name_end = text.rfind(')');
  return name_end != std::string::npos && name_end + 2 < text.size() &&
         (text[name_end + 2] == 'T' || text[name_end + 2] == 't');
}

}  // namespace tfm
