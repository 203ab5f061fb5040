#pragma once
// What the checks of memory (verify.cpp) and of collectives (verify_exchanges.cpp) share.
#include "graph/program.h"

namespace tfm::graph {

// A buffer in the words of a message.
std::string describe(const Program& p, int buffer);

inline const Op& op_of(const Program& p, const Instruction& s) {
  return *p.recording().nodes()[s.node].op;
}

inline bool makes_outputs(const Program& p, const Instruction& s) {
  return s.phase != Phase::backward || op_of(p, s).forward_with_backward();
}

// Refuses a program whose collectives are not those declared, or use what other steps touch.
void verify_exchanges(const Program& program);

}  // namespace tfm::graph
