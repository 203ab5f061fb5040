#include "core/host.h"

#include <unistd.h>

#include <cstdlib>

namespace tfm {

std::string host_name() {
  char text[256] = {};
  ::gethostname(text, sizeof text - 1);
  return text;
}

bool launched_by_mpirun() {
  for (const char* name :
       {"OMPI_COMM_WORLD_SIZE", "PMIX_RANK", "PMI_RANK", "PMI_SIZE", "MV2_COMM_WORLD_SIZE"})
    if (std::getenv(name)) return true;
  return false;
}

int rank_of_launch() {
  for (const char* name : {"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK"})
    if (const char* rank = std::getenv(name)) return std::atoi(rank);
  return 0;
}

}  // namespace tfm
