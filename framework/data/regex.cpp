#include "data/regex.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <mutex>
#include <vector>

#include "core/error.h"
#include "core/posix_file.h"

namespace tfm {
namespace {

constexpr std::uint32_t max_steps = 100'000'000;
constexpr std::uint32_t max_heap = 256 << 10;  // KiB
constexpr std::size_t max_pattern = 10'000;

// Unicode's White_Space (PCRE2's own \s also holds U+180E), and Oniguruma's word characters: alphabetic ones, marks, decimal
// digits, connectors, and the other numbers of Latin-1. Both as parts of a set.
constexpr std::string_view space = "\\p{Z}\\t-\\r\\x{85}";
constexpr std::string_view word = "\\p{L}\\p{M}\\p{Nd}\\p{Nl}\\p{Pc}\\x{B2}\\x{B3}\\x{B9}\\x{BC}-\\x{BE}\\x{24B6}-\\x{24E9}"
                                  "\\x{1F130}-\\x{1F149}\\x{1F150}-\\x{1F169}\\x{1F170}-\\x{1F189}";

// What stands for the escape `letter` outside a set, or in one.
std::string escape(char letter, bool in_set, const std::string& where) {
  const auto set = [&](std::string_view parts, bool negated) {
    if (in_set && negated)
      throw Error(ExitCode::input, where + "\\" + letter + " in a set is not supported by this version");
    return in_set ? std::string(parts) : (negated ? "[^" : "[") + std::string(parts) + "]";
  };
  switch (letter) {
    case 's': return set(space, false);
    case 'S': return in_set ? "\\S" : set(space, true);
    case 'w': return set(word, false);
    case 'W': return set(word, true);
    case 'h': return set("0-9a-fA-F", false);
    case 'H': return set("0-9a-fA-F", true);
    case 'v': return "\\x0B";
  }
  const bool letter_or_digit = (letter >= '0' && letter <= '9') || (letter >= 'a' && letter <= 'z') || (letter >= 'A' && letter <= 'Z');
  if (letter_or_digit && std::string_view("dDpPnrtfaexAz").find(letter) == std::string_view::npos)
    throw Error(ExitCode::input, where + "\\" + letter + " is not supported by this version");
  return {'\\', letter};
}

}  // namespace

std::string pcre2_pattern(std::string_view pattern, const std::string& where) {
  std::string out;
  bool in_set = false;
  for (std::size_t i = 0; i < pattern.size(); ++i) {
    const std::string_view rest = pattern.substr(i);
    if (rest[0] == '\\' && rest.size() > 1) {
      out += escape(pattern[++i], in_set, where);
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
      if (end == rest.npos) throw Error(ExitCode::input, where + "the set is not closed");
      out += rest.substr(0, end + 2);
      i += end + 1;
      continue;
    }
    if (in_set && (rest[0] == '[' || rest.starts_with("&&")))
      throw Error(ExitCode::input, where + "a set inside a set and && are not supported by this version");
    if (in_set && rest[0] == ']') in_set = false;
    out += rest[0];
  }
  return out;
}

struct Regex::Code {
  Code(const std::string& pattern, std::uint32_t options) {
    int error = 0;
    PCRE2_SIZE offset = 0;
    code = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(),
                         PCRE2_UTF | PCRE2_UCP | PCRE2_NEVER_BACKSLASH_C | options, &error, &offset, nullptr);
    if (!code) {
      PCRE2_UCHAR text[256];
      pcre2_get_error_message(error, text, sizeof(text));
      problem = reinterpret_cast<const char*>(text);
      return;
    }
    pcre2_jit_compile(code, PCRE2_JIT_COMPLETE);  // where there is no JIT, pcre2_match interprets
    limits = pcre2_match_context_create(nullptr);
    pcre2_set_match_limit(limits, max_steps);
    pcre2_set_heap_limit(limits, max_heap);
  }
  ~Code() {
    for (pcre2_match_data* match : idle) pcre2_match_data_free(match);
    pcre2_match_context_free(limits);
    pcre2_code_free(code);
  }
  Code(const Code&) = delete;
  Code& operator=(const Code&) = delete;

  pcre2_match_data* take() {
    const std::lock_guard lock(mutex);
    if (idle.empty()) return pcre2_match_data_create_from_pattern(code, nullptr);
    pcre2_match_data* match = idle.back();
    idle.pop_back();
    return match;
  }
  void put(pcre2_match_data* match) {
    const std::lock_guard lock(mutex);
    idle.push_back(match);
  }

  pcre2_code* code = nullptr;
  pcre2_match_context* limits = nullptr;
  std::string problem, where;
  std::mutex mutex;  // guards idle
  std::vector<pcre2_match_data*> idle;
};

Regex::Regex(std::unique_ptr<Code> code) : code_(std::move(code)) {}
Regex::Regex(Regex&&) noexcept = default;
Regex::~Regex() = default;

Regex::Regex(const std::string& pattern, const std::string& where) {
  if (pattern.size() > max_pattern) throw Error(ExitCode::input, where + "the pattern is too long");
  code_ = std::make_unique<Code>(pcre2_pattern(pattern, where), PCRE2_MULTILINE);
  if (!code_->problem.empty()) throw Error(ExitCode::input, where + in_quotes(pattern) + ": " + code_->problem);
  code_->where = where;
}

Regex Regex::anchored(const std::string& pcre2_pattern) {
  auto code = std::make_unique<Code>(pcre2_pattern, PCRE2_ANCHORED);
  TFM_CHECK(code->problem.empty(), code->problem);
  return Regex(std::move(code));
}

void Regex::find_all(std::string_view text, const std::function<void(std::size_t, std::size_t)>& sink) const {
  const std::unique_ptr<pcre2_match_data, std::function<void(pcre2_match_data*)>> match(
      code_->take(), [this](pcre2_match_data* used) { code_->put(used); });
  TFM_CHECK(match, "out of memory");
  const auto* subject = reinterpret_cast<PCRE2_SPTR>(text.data());
  const PCRE2_SIZE* range = pcre2_get_ovector_pointer(match.get());
  for (std::size_t at = 0; at < text.size();) {
    const auto match_at = [&](std::uint32_t options) {
      return pcre2_match(code_->code, subject, text.size(), at, PCRE2_NO_UTF_CHECK | options, match.get(), code_->limits);
    };
    int result = match_at(0);
    if (result == PCRE2_ERROR_JIT_STACKLIMIT) result = match_at(PCRE2_NO_JIT);  // which uses the heap
    if (result == PCRE2_ERROR_NOMATCH) return;
    if (result < 0)
      throw Error(ExitCode::input, code_->where + "the pattern takes too many steps on a text (" + std::to_string(result) + ")");
    const std::size_t begin = range[0], end = range[1];
    if (end > begin && begin >= at) {
      sink(begin, end);
      at = end;
    } else {  // an empty match: on to the next code point
      for (at = std::max(at, end) + 1; at < text.size() && (static_cast<unsigned char>(text[at]) & 0xC0u) == 0x80u;) ++at;
    }
  }
}

}  // namespace tfm
