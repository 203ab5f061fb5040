#pragma once
// Problems of a text somebody wrote, collected and printed as a compiler does: place, line, caret, what was expected, help.
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tfm {

// A place in a source: line and column count from 1, the column in characters. Line 0: the source as a whole.
struct Mark {
  int line = 0, column = 0, source = 0;
};

class Diagnostics {
 public:
  static constexpr std::size_t kShown = 50;  // problems printed; further ones are counted

  // Both return the number that Mark::source holds. An argument is printed as `override 'a.b=c'`, without line and caret.
  int add_file(std::string name, std::string text);
  int add_override(std::string argument);
  const std::string& text(int source) const { return sources_[static_cast<std::size_t>(source)].text; }

  void error(Mark at, std::string message, std::string help = {});
  bool empty() const { return count_ == 0; }
  bool full() const { return problems_.size() >= kShown; }
  std::size_t count() const { return count_; }

  std::string str() const;    // every problem, in the order of the text
  void throw_if_any() const;  // Error(usage) with str()

 private:
  struct Source {
    std::string name, text;
    bool has_lines;
  };
  struct Problem {
    Mark at;
    std::string message, help;
  };
  std::string format(const Problem& problem) const;

  std::vector<Source> sources_;
  std::vector<Problem> problems_;
  std::size_t count_ = 0;
};

// The fewest insertions, deletions, substitutions and swaps of neighbours that turn a into b.
int edit_distance(std::string_view a, std::string_view b);
// The candidate nearest to `word` within `limit` edits (1 for words of three letters or fewer); empty: none. Case and `-` against
// `_` do not count.
std::string_view nearest(std::string_view word, const std::vector<std::string_view>& candidates, int limit = 2);
std::string join(const std::vector<std::string_view>& words);  // "a, b, c"
std::string join(const std::vector<std::int64_t>& numbers);
std::string shorten(std::string_view text, std::size_t length = 60);  // for messages: printable, cut with "..."
std::string quoted(std::string_view text);                            // the same in single quotes
std::string number_text(double x);                                    // shortest decimal that reads back to x

}  // namespace tfm
