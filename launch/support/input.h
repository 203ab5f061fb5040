#pragma once
// Standard input of rank 0, on every rank. While there is none, the others hear so every second: an
// empty input is no hang.
#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "comm/mesh.h"

namespace tfm::launch {

class Input {
 public:
  // The mesh must outlive this, and every rank make the same calls. Error(input) if standard input
  // cannot be read.
  explicit Input(const comm::Mesh& mesh) : mesh_(mesh) {}

  std::string text();  // all of it
  // Waits for a line, then takes what comes within a moment, at most `most` lines; empty at the
  // end.
  std::vector<std::string> lines(std::size_t most);

 private:
  using Clock = std::chrono::steady_clock;

  std::optional<std::string> take_all();
  std::optional<std::string> take_lines(std::size_t most);
  static bool ready(Clock::time_point until);
  bool read_more();

  const comm::Mesh& mesh_;
  std::string held_;  // read, not taken yet
  std::size_t last_ = 0;
};

}  // namespace tfm::launch
