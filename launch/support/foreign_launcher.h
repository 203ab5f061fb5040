#pragma once
#include <optional>
#include <string>

#include "core/host.h"

namespace tfm::launch {

struct ForeignLauncher {
  std::string found, remedy;
};

// Set if the launcher says otherwise than MPI, which sees this process as `rank` of `ranks`: it is
// another MPI's, each of whose processes would do all the work alone, or its variables were left
// behind. `place`, `size`: launcher_rank() and launcher_ranks() before MPI started, which may set
// such variables; a launcher that says nothing agrees.
std::optional<ForeignLauncher> foreign_launcher(const std::optional<LauncherVariable>& place,
                                                const std::optional<LauncherVariable>& size,
                                                int rank, int ranks);

}  // namespace tfm::launch
