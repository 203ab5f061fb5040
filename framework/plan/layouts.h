#pragma once
// The layouts that a configuration may run in on a number of ranks, for searches over them: the
// keys that share a run out among ranks and their memory, with all values that these admit. A new
// axis or choice is a line of the tables in layouts.cpp.
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "config/config.h"

namespace tfm::plan {

// What the values of a key are tried from.
enum class From : std::uint8_t {
  first,  // all of them, and all sizes of a micro-batch in ascending order
  given,  // the configuration's and those that follow; micro-batches of its size and smaller ones,
          // the largest first
};

struct LayoutKey;

class Layouts {
 public:
  // `given`: as it was read.
  Layouts(config::Config given, int ranks, From from);

  // Where the ranks are along each axis. The micro-batch of a grid is as given.
  struct Grid {
    config::Config config;
    std::string refusal;  // why `ranks` cannot have it; empty: they can
  };
  std::vector<Grid> grids() const;
  // Of a grid that is not refused: the orders of a pipeline's micro-batches.
  std::vector<Grid> schedules(const Grid& grid) const;
  // What ranks of a grid that is not refused keep, one variant after the other: ZeRO stages in
  // ascending order, of each the ways to recompute from none to full.
  std::vector<config::Config> zero_stages(const Grid& grid) const;
  std::vector<config::Config> recomputations(const config::Config& config) const;
  // Sizes that divide a replica's sequences, or of batches by length numbers of tokens; the last
  // rules about them are resolve()'s.
  std::vector<config::Config> micro_batches(const config::Config& config) const;

  // The configuration for the ranks; none, with the reason, where they cannot have it.
  std::optional<config::Config> resolve(const config::Config& config,
                                        std::string* refusal = nullptr) const;
  // From the given one: "section.key=value" for each key of a layout that differs.
  std::vector<std::string> changes(const config::Config& to) const;

 private:
  std::vector<config::Config> variants(const config::Config& config, const LayoutKey& key) const;

  config::Config given_;
  std::map<std::string, std::string> given_settings_;
  int ranks_;
  From from_;
};

}  // namespace tfm::plan
