#include "text/regex.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <algorithm>
#include <mutex>
#include <vector>

#include "core/error.h"
#include "core/strings.h"
#include "core/utf8.h"
#include "text/oniguruma.h"

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
    pcre2_pattern_info(code.get(), PCRE2_INFO_MATCHEMPTY, &matches_empty);
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
  std::uint32_t matches_empty = 0;  // 1: the pattern may match the empty string
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
  // One past the last place where a match may begin.
  const std::size_t places = text.empty() ? 0 : text.size() + code_->matches_empty;
  std::unique_ptr<Match> match = code_->take();
  match->start(text);
  std::size_t previous = text.npos;  // end of the last match
  for (std::size_t at = 0; at < places;) {
    const int result = match->find(at);
    if (result == PCRE2_ERROR_NOMATCH) break;
    if (result < 0)
      throw Error(ExitCode::input, code_->where + "matching the pattern takes too many steps (" +
                                       std::to_string(result) + ")");
    const std::size_t begin = match->begin(), end = match->end();
    if (begin < end || end != previous) sink(begin, end);
    previous = at = end;
    if (begin == end) do
        ++at;
      while (at < text.size() && continues_utf8(text[at]));
  }
  code_->put(std::move(match));
}

}  // namespace tfm::text
