#include "core/error.h"

namespace tfm {

void internal_error(const std::string& message, std::source_location at) {
  throw Error(ExitCode::failed, std::string("internal error at ") + at.file_name() + ":" +
                                    std::to_string(at.line()) + " in " + at.function_name() + ": " +
                                    message);
}

std::int64_t div_exact(std::int64_t a, std::int64_t b, std::source_location at) {
  if (b == 0 || a % b != 0)
    internal_error(std::to_string(a) + " is not divisible by " + std::to_string(b), at);
  return a / b;
}

}  // namespace tfm
