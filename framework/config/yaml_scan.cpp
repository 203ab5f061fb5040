// A pass over the characters of a YAML text. Finds errors that the parser would accept silently or
// report far from their cause.
#include <cstdint>
#include <tuple>

#include "config/yaml.h"
#include "core/utf8.h"

namespace tfm::config {
namespace {

class Scanner {
 public:
  Scanner(Diagnostics& out, int source) : out_(out), text_(out.text(source)), source_(source) {}
  bool run();

 private:
  enum class Where : std::uint8_t { token, plain, after_quote };

  char at(std::size_t i) const { return i < text_.size() ? text_[i] : '\n'; }
  bool blank(std::size_t i) const { return at(i) == ' ' || at(i) == '\t' || at(i) == '\n'; }
  bool line_has_content(std::size_t i) const {
    while (at(i) == ' ' || at(i) == '\t') ++i;
    return at(i) != '\n' && at(i) != '#';
  }
  void problem(std::size_t i, std::string message, std::string help = {}, bool fatal = true);
  void start_line();
  void token();
  void plain();
  void not_closed();
  void quoted();
  void bracket();
  void property(std::string name, std::string help);
  bool ends_key(std::size_t i) const;

  Diagnostics& out_;
  const std::string& text_;
  int source_;
  int line_ = 1;
  std::size_t line_start_ = 0, i_ = 0;
  Where where_ = Where::token;
  bool good_ = true, content_ = false, document_ = false;
  struct Open {
    std::size_t at, line_start;
    int line;
  };
  std::vector<Open> open_;
};

int column_of(std::string_view text, std::size_t line_start, std::size_t i) {
  int column = 1;
  for (std::size_t k = line_start; k < i; ++k) column += !continues_utf8(text[k]);
  return column;
}

void Scanner::problem(std::size_t i, std::string message, std::string help, bool fatal) {
  const int column = out_.full() ? 1 : column_of(text_, line_start_, i);
  out_.error({line_, column, source_}, std::move(message), std::move(help));
  if (fatal) good_ = false;
}

// Indentation and document markers; leaves i_ at the first character to look at.
void Scanner::start_line() {
  line_start_ = i_;
  if (where_ != Where::token && open_.empty()) where_ = Where::token;
  while (at(i_) == ' ') ++i_;
  if (at(i_) == '\t' && line_has_content(i_))
    problem(i_, "a tab is used as indentation; expected spaces");
  if (i_ != line_start_) return;
  const std::string_view mark = std::string_view(text_).substr(i_, 3);
  if ((mark == "---" || mark == "...") && blank(i_ + 3)) {
    if (mark == "---" && (content_ || document_))
      problem(i_, "a second document starts here; expected one document per file");
    document_ = true;
    i_ += 3;
  } else if (at(i_) == '%') {
    problem(i_, "YAML directives are not supported; expected a key", "remove this line");
    while (at(i_) != '\n') ++i_;
  }
}

void Scanner::property(std::string name, std::string help) {
  problem(i_, name + " not supported; expected the value itself", std::move(help), false);
  while (!blank(i_) &&
         (open_.empty() || std::string_view(",[]{}").find(at(i_)) == std::string_view::npos))
    ++i_;
}

void Scanner::quoted() {
  const char quote = at(i_);
  const std::size_t from = i_++;
  for (; at(i_) != '\n'; ++i_) {
    if (quote == '"' && at(i_) == '\\') {
      if (at(i_ + 1) != '\n' &&
          std::string_view("0abtnvfre \"/\\N_LPxuU").find(at(i_ + 1)) == std::string_view::npos)
        problem(i_, "unknown escape sequence; expected \\n, \\t, \\\\, \\\" or another YAML escape",
                "in single quotes, a backslash is literal");
      if (at(i_ + 1) != '\n') ++i_;
    } else if (at(i_) == quote) {
      if (quote == '\'' && at(i_ + 1) == '\'') {
        ++i_;
      } else {
        ++i_;
        where_ = Where::after_quote;
        return;
      }
    }
  }
  problem(from, std::string("unterminated quote; expected another ") + quote + " on this line");
}

void Scanner::bracket() {
  const char c = at(i_);
  where_ = Where::token;
  if (c == '[' || c == '{') {
    if (open_.size() >= static_cast<std::size_t>(kYamlDepth)) {
      problem(i_, "nested deeper than " + std::to_string(kYamlDepth) + " levels; expected fewer");
      i_ = text_.size();
      return;
    }
    open_.push_back({i_, line_start_, line_});
  } else if (open_.empty() || (at(open_.back().at) == '[') != (c == ']')) {
    problem(i_, std::string("'") + c + "' has no opening bracket; expected " +
                    (open_.empty()                ? "no closing bracket"
                     : at(open_.back().at) == '[' ? "']'"
                                                  : "'}'") +
                    " here");
    i_ = text_.size();
    open_.clear();
    return;
  } else {
    open_.pop_back();
    where_ = Where::after_quote;
  }
  ++i_;
}

bool Scanner::ends_key(std::size_t i) const {
  if (at(i) != ':') return false;
  return blank(i + 1) ||
         (!open_.empty() && std::string_view(",[]{}").find(at(i + 1)) != std::string_view::npos);
}

void Scanner::token() {
  const char c = at(i_);
  content_ = true;
  if (c == '"' || c == '\'') return quoted();
  if (c == '[' || c == ']' || c == '{' || c == '}') return bracket();
  if (c == '&') return property("anchors (&name) are", "");
  if (c == '*') return property("aliases (*name) are", "put text that starts with '*' in quotes");
  if (c == '!') return property("tags (!name) are", "put text that starts with '!' in quotes");
  if ((c == '|' || c == '>') && open_.empty()) {
    problem(i_,
            "block scalars (| and >) are not supported; expected the text on one line, in quotes");
  } else if (c == '@' || c == '`' || c == '%' || c == '|' || c == '>') {
    problem(i_, std::string("a value cannot start with '") + c + "'; expected text in quotes");
  } else if (c == '?' && blank(i_ + 1)) {
    problem(i_, "'? ' keys are not supported; expected `key: value`");
  } else if (c == ',' || (c == '-' && blank(i_ + 1)) || ends_key(i_)) {
    ++i_;
    return;
  }
  where_ = Where::plain;
  ++i_;
}

// The innermost bracket that is open.
void Scanner::not_closed() {
  const Open& open = open_.back();
  const auto here = std::pair(line_, line_start_);
  std::tie(line_, line_start_) = std::pair(open.line, open.line_start);
  const char c = at(open.at);
  problem(open.at,
          std::string("'") + c + "' is not closed; expected a '" + (c == '[' ? ']' : '}') + "'");
  std::tie(line_, line_start_) = here;
}

void Scanner::plain() {
  const char c = at(i_);
  if (where_ == Where::after_quote && at(i_) == ':') {
    where_ = Where::token;
    ++i_;
  } else if (!open_.empty() && (c == ',' || c == '[' || c == ']' || c == '{' || c == '}')) {
    if (c == ',') {
      where_ = Where::token;
      ++i_;
    } else {
      bracket();
    }
  } else if (where_ == Where::after_quote && !open_.empty() && i_ == line_start_) {
    not_closed();  // and here is a key of the file
    open_.clear();
    where_ = Where::token;
  } else if (where_ == Where::after_quote) {
    problem(i_, "unexpected text after the value; expected the end of the line" +
                    std::string(open_.empty() ? " or ':'" : ", ',' or a closing bracket"));
    where_ = Where::plain;
  } else {
    if (ends_key(i_)) where_ = Where::token;
    ++i_;
  }
}

bool Scanner::run() {
  start_line();
  while (i_ < text_.size()) {
    const char c = text_[i_];
    if (c == '\n') {
      ++i_;
      ++line_;
      start_line();
    } else if (c == ' ' || c == '\t') {
      ++i_;
    } else if (c == '#' && (i_ == line_start_ || blank(i_ - 1))) {
      while (at(i_) != '\n') ++i_;
    } else if (where_ == Where::token) {
      token();
    } else {
      plain();
    }
  }
  if (!open_.empty() && good_) not_closed();
  if (good_ && !content_) {
    line_ = 1;
    line_start_ = 0;
    problem(0,
            "the file is empty; expected keys with values, in a configuration 'model:', 'data:' "
            "and others");
  }
  return good_;
}

}  // namespace

bool scan_yaml(Diagnostics& out, int source) { return Scanner(out, source).run(); }

}  // namespace tfm::config
