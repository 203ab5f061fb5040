#include "launch/support/foreign_launcher.h"

#include <charconv>

#include "comm/links.h"
#include "core/strings.h"

namespace tfm::launch {
namespace {

std::optional<int> number_of(const std::string& text) {
  int n = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), n);
  if (error != std::errc{} || end != text.data() + text.size()) return {};
  return n;
}

}  // namespace

std::optional<ForeignLauncher> foreign_launcher(const std::optional<LauncherVariable>& place,
                                                const std::optional<LauncherVariable>& size,
                                                int rank, int ranks) {
  const auto disagrees = [&](const LauncherVariable& v, const std::string& says,
                             const std::string& sees) {
    return ForeignLauncher{
        says + " (" + v.name + "=" + shorten(v.text) + "), but MPI (" + comm::mpi_version() +
            ") sees " + sees + ": the launcher belongs to another MPI",
        "start with the mpirun of the MPI that tfm was built with, or with srun --mpi=pmix; where "
        "no launcher was used, unset " +
            v.name};
  };
  const auto started = size ? number_of(size->text) : std::optional(1);
  if (!started || *started > ranks)  // a part of a job may tell its own number
    return disagrees(
        *size, "the launcher started " + (started ? std::to_string(*started) : "?") + " processes",
        counted(ranks, "rank") + " in each");
  if (place && number_of(place->text) != rank)
    return disagrees(*place, "the launcher gives this process another rank",
                     "rank " + std::to_string(rank) + " of " + std::to_string(ranks));
  return {};
}

}  // namespace tfm::launch
