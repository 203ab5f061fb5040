#pragma once
// One case for every op and option that changes its arithmetic. The harness derives all checks from this list.
#include <functional>
#include <string>
#include <vector>

#include "ops/ops.h"

namespace tfm::test {

struct OpCase {
  std::string kind;  // Op::kind() of the op under test
  std::string name;
  std::vector<Shape> inputs;  // differentiable inputs, filled with random numbers
  std::function<Value(Recorder&, const std::vector<Value>&)> build;
};

// Ids and labels of the cases: an int32 input named "ids" with these contents.
inline const std::vector<std::int32_t> kIds{3, 0, 6, 3, -1, 5, 2, 1};

const std::vector<OpCase>& op_cases();

}  // namespace tfm::test
