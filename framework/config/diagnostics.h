#pragma once
// Collects problems of a text that a user wrote and prints them as a compiler does: place, line,
// caret, what was expected, help.
#include <string>
#include <vector>

#include "core/error.h"
#include "core/strings.h"

namespace tfm::config {

// A place in a source: line and column count from 1, the column in characters. Line 0: the source
// as a whole.
struct Mark {
  int line = 0, column = 0, source = 0;
};

class Diagnostics {
 public:
  static constexpr std::size_t kShown = 50;  // problems printed; further ones are counted

  // Both return the index for Mark::source. An override is printed as `override 'a.b=c'`, without
  // line and caret.
  int add_file(std::string name, std::string text);
  int add_override(std::string argument);
  const std::string& text(int source) const {
    return sources_[static_cast<std::size_t>(source)].text;
  }

  void error(Mark at, std::string message, std::string help = {}, ExitCode code = ExitCode::usage);
  bool empty() const { return count_ == 0; }
  bool full() const { return problems_.size() >= kShown; }
  std::size_t count() const { return count_; }

  std::string str() const;  // every problem, in the order of the text
  // Throws an Error with str() unless empty(): of code usage if any problem is, otherwise with the
  // code of the first problem.
  void throw_if_any() const;

 private:
  struct Source {
    std::string name, text;
    bool has_lines;
  };
  struct Problem {
    Mark at;
    std::string message, help;
    ExitCode code;
  };
  std::string format(const Problem& problem) const;

  std::vector<Source> sources_;
  std::vector<Problem> problems_;
  std::size_t count_ = 0;
};

}  // namespace tfm::config
