#pragma once
// Shared by the checks of memory (verify.cpp) and of collectives (verify_exchanges.cpp).
#include "graph/program.h"

namespace tfm::graph {

// Description of a buffer for error messages.
std::string describe(const Program& p, int buffer);

inline const Op& op_of(const Program& p, const Instruction& s) {
  return *p.recording().nodes()[s.node].op;
}

inline bool makes_outputs(const Program& p, const Instruction& s) {
  return s.phase != Phase::backward || op_of(p, s).forward_with_backward();
}

// An internal error unless the collectives are those declared, no other step touches what a pending
// one uses, each bucket is reduced once after its gradients are final, and parameters are gathered
// before they are read.
void verify_exchanges(const Program& program);

}  // namespace tfm::graph
