#pragma once
// Enumerates for searches the layouts in which a configuration can run on a number of ranks: the
// keys that distribute a run and its memory over ranks, with all values that they admit. A new axis
// or choice is a line of the tables in layouts.cpp.
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "config/config.h"

namespace tfm::plan {

// The value of a key at which its enumeration starts.
enum class From : std::uint8_t {
  first,  // all values, and all micro-batch sizes in ascending order
  // The configured value and those after it; micro-batches of the configured size and smaller ones,
  // the largest first.
  given,
};

struct LayoutKey;

class Layouts {
 public:
  // `given`: the configuration as it was read.
  Layouts(config::Config given, int ranks, From from);

  // The number of ranks along each axis. The micro-batch is as given.
  struct Grid {
    config::Config config;
    std::string refusal;  // why the ranks cannot run it; empty: they can
  };
  std::vector<Grid> grids() const;
  // The pipeline schedules of a grid that is not refused.
  std::vector<Grid> schedules(const Grid& grid) const;
  // The memory variants of a grid that is not refused: ZeRO stages in ascending order, and of each
  // the ways to recompute, from none to full.
  std::vector<config::Config> zero_stages(const Grid& grid) const;
  std::vector<config::Config> recomputations(const config::Config& config) const;
  // Divisors of a batch rank's sequences; for batches by length, numbers of tokens, or powers of
  // two if the size is given in sequences. resolve() applies the remaining rules.
  std::vector<config::Config> micro_batches(const config::Config& config) const;

  // The configuration resolved for the ranks; nullopt, with the reason in `refusal`, if they cannot
  // run it.
  std::optional<config::Config> resolve(const config::Config& config,
                                        std::string* refusal = nullptr) const;
  // Differences from the given configuration: "section.key=value" for each key of a layout.
  std::vector<std::string> changes(const config::Config& to) const;

 private:
  std::vector<config::Config> variants(const config::Config& config, const LayoutKey& key) const;

  config::Config given_;
  std::map<std::string, std::string> given_settings_;
  int ranks_;
  From from_;
};

}  // namespace tfm::plan
