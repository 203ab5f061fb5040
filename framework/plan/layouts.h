#pragma once
// Enumerates for searches the layouts in which a configuration can run on a number of ranks.
#include <optional>
#include <string>
#include <vector>

#include "plan/layout_choice.h"

namespace tfm::plan {

// The value of a key at which its enumeration starts.
enum class From : std::uint8_t {
  first,  // all values, and all micro-batch sizes in ascending order
  // The configured value and those after it; micro-batches of the configured size and smaller ones,
  // the largest first.
  given,
};

class Layouts {
 public:
  // `given`: the configuration as it was read.
  Layouts(config::Config given, int ranks, From from);

  // The number of ranks along each axis. The micro-batch is as given.
  struct Grid {
    LayoutChoice choice;
    std::string refusal;  // why the ranks cannot run it; empty: they can
  };
  std::vector<Grid> grids() const;
  // The pipeline schedules of a grid that is not refused.
  std::vector<Grid> schedules(const LayoutChoice& grid) const;
  // The memory variants of a grid that is not refused: ZeRO stages in ascending order, and of each
  // the ways to recompute, from none to full.
  std::vector<LayoutChoice> zero_stages(const LayoutChoice& grid) const;
  std::vector<LayoutChoice> recomputations(const LayoutChoice& choice) const;
  // Divisors of a batch rank's sequences; for batches by length, numbers of tokens, or powers of
  // two if the size is given in sequences. resolve() applies the remaining rules.
  std::vector<LayoutChoice> micro_batches(const LayoutChoice& choice) const;
  // `size` is in tokens or sequences, whichever the configuration counts with `choice`.
  LayoutChoice with_micro_batch(LayoutChoice choice, std::int64_t size) const;

  // The configuration resolved for the ranks; nullopt, with the reason in `refusal`, if they cannot
  // run it.
  std::optional<config::Config> resolve(const LayoutChoice& choice,
                                        std::string* refusal = nullptr) const;

 private:
  // Choices with each of `values` that the rules between keys admit. `detail`: a key that is auto
  // unless `key` is as given.
  template <class T>
  std::vector<LayoutChoice> with_each(const LayoutChoice& choice, T LayoutChoice::*key,
                                      std::vector<T> values,
                                      std::int64_t LayoutChoice::*detail = nullptr) const;
  Grid grid_of(const LayoutChoice& choice) const;
  bool counts_tokens(const LayoutChoice& choice) const;
  config::Config with(const LayoutChoice& choice) const;

  config::Config given_;
  LayoutChoice start_;  // as given; recompute auto starts at none
  int ranks_;
  From from_;
};

}  // namespace tfm::plan
