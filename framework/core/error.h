#pragma once
// Errors that end a run: the message, and the exit code of the process.
#include <cstdint>
#include <source_location>
#include <stdexcept>
#include <string>

namespace tfm {

enum class ExitCode : int {
  ok = 0,           // done, or stopped on request after a checkpoint
  failed = 1,       // the check or the run failed
  usage = 2,        // bad command line or configuration
  input = 3,        // bad data, tokenizer or checkpoint
  environment = 4,  // device, driver, NCCL, MPI
  numerical = 5,    // non-finite loss
  retryable = 75,   // a rank hung or died, I/O
};

class Error : public std::runtime_error {
 public:
  Error(ExitCode code, const std::string& message) : std::runtime_error(message), code_(code) {}
  ExitCode code() const { return code_; }

 private:
  ExitCode code_;
};

// Throws for a violated invariant of tfm itself. The message names the source location.
[[noreturn]] void internal_error(const std::string& message,
                                 std::source_location at = std::source_location::current());

// a / b; an internal error if the division leaves a remainder.
std::int64_t div_exact(std::int64_t a, std::int64_t b,
                       std::source_location at = std::source_location::current());
inline std::int64_t ceil_div(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }
inline std::int64_t round_up(std::int64_t a, std::int64_t b) { return ceil_div(a, b) * b; }

}  // namespace tfm

#define TFM_CHECK(condition, message)                                                  \
  do {                                                                                 \
    if (!(condition)) ::tfm::internal_error(std::string(#condition ": ") + (message)); \
  } while (0)
