#include "text/regex.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <algorithm>
#include <mutex>
#include <vector>

#include "core/error.h"
#include "core/utf8.h"
#include "io/file.h"
#include "text/unicode.h"

namespace tfm::text {
namespace {

// Limits on backtracking steps of PCRE2: each match has some free ones, all matches of a text share
// a number that grows with its bytes.
constexpr std::uint32_t free_steps = 1000;
constexpr std::uint64_t shared_steps = 1'000'000, shared_steps_a_byte = 1000;
constexpr std::uint32_t max_heap = 256 << 10;  // KiB
constexpr std::size_t max_pattern = 10'000;

struct CodeFree {
  void operator()(pcre2_code* code) const { pcre2_code_free(code); }
};
using CodeOwner = std::unique_ptr<pcre2_code, CodeFree>;

CodeOwner compile(const std::string& pattern, std::uint32_t options, int* error) {
  PCRE2_SIZE offset = 0;
  return CodeOwner(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(),
                                 PCRE2_UTF | PCRE2_UCP | PCRE2_NEVER_BACKSLASH_C | options, error,
                                 &offset, nullptr));
}

// Unicode's White_Space (PCRE2's own \s also holds U+180E), as parts of a set.
constexpr std::string_view space = "\\p{Z}\\t-\\r\\x{85}";

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
      return in_set ? "\\S" : set(space, true);
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
  const bool letter_or_digit = (letter >= '0' && letter <= '9') ||
                               (letter >= 'a' && letter <= 'z') || (letter >= 'A' && letter <= 'Z');
  if (letter_or_digit && std::string_view("nrtfaexAz").find(letter) == std::string_view::npos)
    throw Error(ExitCode::input, where + "\\" + letter + " is not supported by this version");
  return {'\\', letter};
}

// In PCRE2 \p{Greek} means Script_Extensions; \p{sc:Greek} is the script itself.
bool is_script(std::string_view name) {
  const bool word = std::all_of(name.begin(), name.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
  });
  int error = 0;
  return word && name.size() > 2 && compile("\\p{sc:" + std::string(name) + "}", 0, &error);
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

}  // namespace

std::string pcre2_pattern(std::string_view pattern, const std::string& where) {
  std::string out;
  bool in_set = false;
  for (std::size_t i = 0; i < pattern.size(); ++i) {
    const std::string_view rest = pattern.substr(i);
    if (rest[0] == '\\' && rest.size() > 1) {
      if (rest[1] != 'p' && rest[1] != 'P') {
        out += escape(pattern[++i], in_set, where);
        continue;
      }
      const std::size_t end = rest.find('}');
      if (rest.substr(2, 1) != "{" || end == rest.npos)
        throw Error(ExitCode::input, where + "\\" + rest[1] + " is not followed by {property}");
      const bool turned = rest[3] == '^';
      out +=
          property(rest.substr(3 + turned, end - 3 - turned), (rest[1] == 'P') != turned, in_set);
      i += end;
      continue;
    }
    if (!in_set && rest[0] == '[') {
      in_set = true;
      out += '[';
      if (rest.substr(1).starts_with('^')) out += pattern[++i];
      if (pattern.substr(i + 1).starts_with(']')) out += pattern[++i];
      continue;
    }
    if (in_set && rest.starts_with("[:")) {
      const std::size_t end = rest.find(":]");
      if (end == rest.npos)
        throw Error(ExitCode::input, where + "the character class is not closed");
      out += posix(rest.substr(2, end - 2), where);
      i += end + 1;
      continue;
    }
    if (in_set && (rest[0] == '[' || rest.starts_with("&&")))
      throw Error(ExitCode::input,
                  where + "nested character classes and && are not supported by this version");
    if (in_set && rest[0] == ']') in_set = false;
    out += rest[0];
  }
  return out;
}

namespace {

// Match state of one thread.
class Match {
 public:
  explicit Match(const pcre2_code* code)
      : code_(code),
        data_(pcre2_match_data_create_from_pattern(code, nullptr)),
        limits_(pcre2_match_context_create(nullptr)) {
    TFM_CHECK(data_ && limits_, "out of memory");
    pcre2_set_heap_limit(limits_, max_heap);
  }
  ~Match() {
    pcre2_match_data_free(data_);
    pcre2_match_context_free(limits_);
  }
  Match(const Match&) = delete;
  Match& operator=(const Match&) = delete;

  void start(std::string_view text) {
    text_ = text;
    steps_left_ = shared_steps + shared_steps_a_byte * text.size();
  }
  // The first match at `at` or later, or PCRE2's error. The limit grows with each failure, as PCRE2
  // reports steps by failing only.
  int find(std::size_t at) {
    std::uint64_t limit = free_steps;
    for (bool first = true;; first = false, limit = std::min(8 * limit, steps_left_)) {
      pcre2_set_match_limit(limits_,
                            static_cast<std::uint32_t>(std::min<std::uint64_t>(limit, UINT32_MAX)));
      int result = run(at, 0);
      if (result == PCRE2_ERROR_JIT_STACKLIMIT)
        result = run(at, PCRE2_NO_JIT);  // which uses the heap
      if (!first) steps_left_ -= limit;
      if (result != PCRE2_ERROR_MATCHLIMIT || steps_left_ == 0) return result;
    }
  }
  std::size_t begin() const { return pcre2_get_ovector_pointer(data_)[0]; }
  std::size_t end() const { return pcre2_get_ovector_pointer(data_)[1]; }

 private:
  int run(std::size_t at, std::uint32_t options) {
    return pcre2_match(code_, reinterpret_cast<PCRE2_SPTR>(text_.data()), text_.size(), at,
                       PCRE2_NO_UTF_CHECK | options, data_, limits_);
  }

  const pcre2_code* code_;
  pcre2_match_data* data_;
  pcre2_match_context* limits_;
  std::string_view text_;
  std::uint64_t steps_left_ = 0;
};

}  // namespace

struct Regex::Code {
  Code(const std::string& pattern, std::uint32_t options) {
    int error = 0;
    code = compile(pattern, options, &error);
    if (!code) {
      PCRE2_UCHAR text[256];
      pcre2_get_error_message(error, text, sizeof(text));
      problem = reinterpret_cast<const char*>(text);
      return;
    }
    pcre2_jit_compile(code.get(),
                      PCRE2_JIT_COMPLETE);  // where there is no JIT, pcre2_match interprets
  }

  std::unique_ptr<Match> take() {
    const std::lock_guard lock(mutex);
    if (idle.empty()) return std::make_unique<Match>(code.get());
    std::unique_ptr<Match> match = std::move(idle.back());
    idle.pop_back();
    return match;
  }
  void put(std::unique_ptr<Match> match) {
    const std::lock_guard lock(mutex);
    idle.push_back(std::move(match));
  }

  CodeOwner code;
  std::string problem, where;
  std::mutex mutex;  // guards idle
  std::vector<std::unique_ptr<Match>> idle;
};

Regex::Regex(std::unique_ptr<Code> code) : code_(std::move(code)) {}
Regex::Regex(Regex&&) noexcept = default;
Regex::~Regex() = default;

Regex::Regex(const std::string& pattern, const std::string& where) {
  if (pattern.size() > max_pattern) throw Error(ExitCode::input, where + "the pattern is too long");
  code_ = std::make_unique<Code>(pcre2_pattern(pattern, where), PCRE2_MULTILINE);
  if (!code_->problem.empty())
    throw Error(ExitCode::input, where + in_quotes(pattern) + ": " + code_->problem);
  code_->where = where;
}

Regex Regex::anchored(const std::string& pattern) {
  auto code = std::make_unique<Code>(pcre2_pattern(pattern, ""), PCRE2_ANCHORED);
  TFM_CHECK(code->problem.empty(), code->problem);
  return Regex(std::move(code));
}

void Regex::find_all(std::string_view text,
                     const std::function<void(std::size_t, std::size_t)>& sink) const {
  std::unique_ptr<Match> match = code_->take();
  match->start(text);
  for (std::size_t at = 0; at < text.size();) {
    const int result = match->find(at);
    if (result == PCRE2_ERROR_NOMATCH) break;
    if (result < 0)
      throw Error(ExitCode::input, code_->where + "matching the pattern takes too many steps (" +
                                       std::to_string(result) + ")");
    const std::size_t begin = match->begin(), end = match->end();
    if (end > begin && begin >= at) {
      sink(begin, end);
      at = end;
    } else {  // an empty match: on to the next code point
      for (at = std::max(at, end) + 1; at < text.size() && continues_utf8(text[at]);) ++at;
    }
  }
  code_->put(std::move(match));
}

}  // namespace tfm::text
