// std::source_location for clang-tidy before version 16, which lacks the builtin behind it.
#pragma once

namespace std {

struct source_location {
  static constexpr source_location current(const char* file = __builtin_FILE(),
                                           const char* function = __builtin_FUNCTION(),
                                           unsigned line = __builtin_LINE()) {
    return {file, function, line};
  }
  constexpr const char* file_name() const { return file_; }
  constexpr const char* function_name() const { return function_; }
  constexpr unsigned line() const { return line_; }

  const char *file_ = "", *function_ = "";
  unsigned line_ = 0;
};

}  // namespace std
