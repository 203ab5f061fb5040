#include "text/oniguruma.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <algorithm>
#include <initializer_list>
#include <vector>

#include "core/error.h"
#include "core/strings.h"
#include "core/utf8.h"
#include "text/unicode.h"

namespace tfm::text {
namespace {

// Unicode's White_Space (PCRE2's own \s also holds U+180E), as parts of a set.
constexpr std::string_view space = "\\p{Z}\\t-\\r\\x{85}";

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }
bool is_one_of(char c, std::string_view set) { return set.find(c) != set.npos; }

// General categories, as parts of a set.
std::string categories(std::initializer_list<std::string_view> names) {
  std::string parts;
  for (const std::string_view name : names) parts.append("\\p{").append(name).append("}");
  return parts + newer_code_points(names);
}

// Oniguruma's word characters: alphabetic ones, marks, decimal digits, connectors; outside a set
// the other numbers of Latin-1, too.
std::string word(bool in_set) {
  return categories({"L", "M", "Nd", "Nl", "Pc"}) +
         (in_set ? "" : "\\x{B2}\\x{B3}\\x{B9}\\x{BC}-\\x{BE}") +
         "\\x{24B6}-\\x{24E9}\\x{1F130}-\\x{1F149}\\x{1F150}-\\x{1F169}\\x{1F170}-\\x{1F189}";
}

// PCRE2's equivalent of [:name:] in a set.
std::string posix(std::string_view name, const std::string& where) {
  if (name == "digit") return categories({"Nd"});
  if (name == "punct") return categories({"P", "S"});
  if (name == "word") return word(true);
  if (name == "space") return std::string(space);
  if (name == "cntrl") return "\\p{Cc}";
  if (name == "xdigit") return "0-9a-fA-F";
  throw Error(ExitCode::input, where + "[:" + std::string(name) +
                                   ":] is not supported by this version; expected digit, punct, "
                                   "word, space, cntrl or xdigit");
}

// PCRE2's equivalent of the escape `letter`, outside a set or in one.
std::string escape(char letter, bool in_set, const std::string& where) {
  const auto set = [&](std::string_view parts, bool negated) {
    if (in_set && negated)
      throw Error(
          ExitCode::input,
          where + "\\" + letter + " inside a character class is not supported by this version");
    return in_set ? std::string(parts) : (negated ? "[^" : "[") + std::string(parts) + "]";
  };
  switch (letter) {
    case 's':
      return set(space, false);
    case 'S':
      return in_set ? "\\S\\x{180E}" : set(space, true);
    case 'd':
      return set(categories({"Nd"}), false);
    case 'D':
      return in_set ? "\\D" : set(categories({"Nd"}), true);
    case 'w':
      return set(word(in_set), false);
    case 'W':
      return set(word(in_set), true);
    case 'h':
      return set("0-9a-fA-F", false);
    case 'H':
      return set("0-9a-fA-F", true);
    case 'v':
      return "\\x0B";
  }
  if ((is_digit(letter) || is_letter(letter)) && !is_one_of(letter, "nrtfaeAz"))
    throw Error(ExitCode::input, where + "\\" + letter + " is not supported by this version");
  return {'\\', letter};
}

// In PCRE2 \p{Greek} means Script_Extensions; \p{sc:Greek} is the script itself.
bool is_script(std::string_view name) {
  const bool word =
      std::all_of(name.begin(), name.end(), [](char c) { return is_letter(c) || c == '_'; });
  if (!word || name.size() <= 2) return false;
  const std::string pattern = "\\p{sc:" + std::string(name) + "}";
  int error = 0;
  PCRE2_SIZE offset = 0;
  pcre2_code* code = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(),
                                   PCRE2_UTF | PCRE2_UCP, &error, &offset, nullptr);
  pcre2_code_free(code);
  return code;
}

// PCRE2's equivalent of \p{name} or \P{name}.
std::string property(std::string_view name, bool negated, bool in_set) {
  const std::string known = (is_script(name) ? "{sc:" : "{") + std::string(name) + "}";
  const std::string newer =
      name == "LC" ? newer_code_points({"Lu", "Ll", "Lt"}) : newer_code_points({name});
  if ((name == "C" || name == "Cn") &&
      !in_set) {  // an older PCRE2 lists newer code points as unassigned
    const std::string assigned = "[" + newer_code_points({"Assigned"}) + "]",
                      own = newer.empty() ? "" : "[" + newer + "]";
    if (negated)
      return "(?:" + (own.empty() ? "" : "(?!" + own + ")") + assigned + "|\\P" + known + ")";
    return "(?:(?!" + assigned + ")\\p" + known + (own.empty() ? "" : "|" + own) + ")";
  }
  if (newer.empty() || (in_set && negated)) return (negated ? "\\P" : "\\p") + known;
  return in_set ? "\\p" + known + newer : (negated ? "[^\\p" : "[\\p") + known + newer + "]";
}

// Rewrites a pattern of Oniguruma's Ruby syntax (its doc/RE) in PCRE2's.
class Translator {
 public:
  Translator(std::string_view pattern, const std::string& where) : rest_(pattern), where_(where) {}

  std::string translated() {
    while (!rest_.empty()) {
      switch (rest_[0]) {
        case '\\':
          atom_ = out_.size();
          escaped(false);
          break;
        case '[':
          atom_ = out_.size();
          set();
          break;
        case '(':
          open();
          break;
        case ')':
          close();
          break;
        case '{':
          repetition();
          break;
        case '#':
          if (groups_.back().extended) {
            rest_.remove_prefix(std::min(rest_.find('\n'), rest_.size()));
            break;
          }
          [[fallthrough]];
        default:
          literal();
      }
    }
    return out_ + std::string(groups_.front().options, ')');
  }

 private:
  struct Group {
    std::size_t begin = 0;    // in out_
    bool extended = false;    // spaces and comments are ignored
    std::size_t options = 0;  // groups that options open, which end with this one
  };

  [[noreturn]] void refuse(const std::string& what) const {
    throw Error(ExitCode::input, where_ + what);
  }
  void copy(std::size_t bytes) {
    out_ += rest_.substr(0, bytes);
    rest_.remove_prefix(bytes);
  }

  void literal() {
    const bool space = groups_.back().extended && is_one_of(rest_[0], " \t\n\v\f\r");
    if (!space && !is_one_of(rest_[0], "*+?") && !continues_utf8(rest_[0])) atom_ = out_.size();
    copy(1);
  }

  void escaped(bool in_set) {
    if (rest_.size() == 1) return copy(1);
    const char letter = rest_[1];
    if (letter == 'p' || letter == 'P') {
      const std::size_t end = rest_.find('}');
      if (rest_.substr(2, 1) != "{" || end == rest_.npos)
        refuse(std::string("\\") + letter + " is not followed by {property}");
      const bool turned = rest_[3] == '^';
      out_ +=
          property(rest_.substr(3 + turned, end - 3 - turned), (letter == 'P') != turned, in_set);
      return rest_.remove_prefix(end + 1);
    }
    if (letter == 'x') return hexadecimal();
    out_ += escape(letter, in_set, where_);
    rest_.remove_prefix(2);
  }

  // \x{H...}, or \xHH, which from \x80 on is a byte of a character.
  void hexadecimal() {
    if (rest_.substr(2, 1) == "{") return copy(std::min(rest_.find('}'), rest_.size() - 1) + 1);
    std::string_view digits = rest_.substr(2, 2);
    digits = digits.substr(0, digits.find_first_not_of("0123456789abcdefABCDEF"));
    if (digits.size() == 2 && digits[0] >= '8')
      refuse("\\x" + std::string(digits) +
             ", a byte of a character, is not supported by this version; expected a code point, "
             "\\x{" +
             std::string(digits) + "}");
    copy(2 + digits.size());
  }

  void set() {
    copy(1);
    if (rest_.starts_with('^')) copy(1);
    if (rest_.starts_with(']')) copy(1);
    while (!rest_.empty() && rest_[0] != ']') {
      if (rest_[0] == '\\') {
        escaped(true);
      } else if (rest_.starts_with("[:")) {
        const std::size_t end = rest_.find(":]");
        if (end == rest_.npos) refuse("the character class is not closed");
        out_ += posix(rest_.substr(2, end - 2), where_);
        rest_.remove_prefix(end + 2);
      } else if (rest_[0] == '[' || rest_.starts_with("&&")) {
        refuse("nested character classes and && are not supported by this version");
      } else {
        copy(1);
      }
    }
    if (!rest_.empty()) copy(1);
  }

  // Options without a colon last to the end of the group around them, alternatives included.
  void open() {
    if (rest_.starts_with("(?#")) return comment();
    Group group{out_.size(), groups_.back().extended};
    const bool options =
        rest_.starts_with("(?") && rest_.size() > 2 && (is_letter(rest_[2]) || rest_[2] == '-');
    if (!options) {
      groups_.push_back(group);
      return copy(1);
    }
    const std::size_t end = std::min(rest_.find_first_not_of("imx-", 2), rest_.size());
    const std::string_view next = rest_.substr(end, 1);
    if (next != ":" && next != ")")
      refuse(in_quotes(rest_.substr(0, end + 1)) + " is not supported by this version");
    out_ += "(?";
    for (bool on = true; const char c : rest_.substr(2, end - 2)) {
      on &= c != '-';
      if (c == 'x' && on && group.extended) continue;  // (?xx) is another option of PCRE2
      if (c == 'x') group.extended = on;
      out_ += c == 'm' ? 's' : c;  // a dot also matches a line feed
    }
    out_ += ':';
    rest_.remove_prefix(end + 1);
    if (next == ":") return groups_.push_back(group);
    groups_.back().extended = group.extended;
    ++groups_.back().options;
  }

  void comment() {
    std::size_t at = 3;
    while (at < rest_.size() && rest_[at] != ')') at += rest_[at] == '\\' ? 2 : 1;
    if (at >= rest_.size()) refuse("the comment is not closed");
    rest_.remove_prefix(at + 1);
  }

  void close() {
    if (groups_.size() == 1) refuse("a parenthesis is closed and not opened");
    out_.append(groups_.back().options, ')');
    atom_ = groups_.back().begin;
    groups_.pop_back();
    copy(1);
  }

  // {n}, {n,}, {,m} or {n,m}; other braces are literal. No + after it makes it possessive, and no ?
  // makes {n} reluctant: they repeat the repetition.
  void repetition() {
    const std::string_view counts = rest_.substr(1, rest_.find_first_not_of("0123456789,", 1) - 1);
    const auto commas = std::ranges::count(counts, ',');
    if (commas > 1 || counts.size() <= static_cast<std::size_t>(commas) ||
        rest_.substr(1 + counts.size(), 1) != "}") {
      atom_ = out_.size();
      out_ += '\\';
      return copy(1);
    }
    out_.append(counts[0] == ',' ? "{0" : "{").append(counts).append("}");
    rest_.remove_prefix(counts.size() + 2);
    if (rest_.starts_with('+') || (commas == 0 && rest_.starts_with('?')))
      out_.insert(atom_, "(?:").append(")");
  }

  std::string_view rest_;
  const std::string& where_;
  std::string out_;
  std::size_t atom_ = 0;  // in out_: what a repetition would repeat
  std::vector<Group> groups_{Group{}};
};

}  // namespace

std::string pcre2_pattern(std::string_view pattern, const std::string& where) {
  return Translator(pattern, where).translated();
}

}  // namespace tfm::text
