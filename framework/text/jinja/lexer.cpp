#include "text/jinja/lexer.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <utility>

#include "core/strings.h"
#include "core/utf8.h"
#include "text/unicode.h"

namespace tfm::text::jinja {
namespace {

// Python's \s within ASCII, of which other whitespace in tags is an unexpected character.
bool is_space(char c) { return c == ' ' || (c >= '\t' && c <= '\r') || (c >= 0x1C && c <= 0x1F); }
bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_word(char c) {
  return is_digit(c) || (c | 0x20) == std::clamp<int>(c | 0x20, 'a', 'z') || c == '_' ||
         static_cast<unsigned char>(c) >= 0x80;
}

class Lexer {
 public:
  explicit Lexer(const std::string& source) : source_(source) {}

  std::vector<Token> run() {
    while (at_ < source_.size()) root();
    add(Token::Kind::end, "", source_.size());
    return std::move(tokens_);
  }

 private:
  [[noreturn]] static void fail(const std::string& what, std::size_t at) { throw Broken{what, at}; }
  char peek(std::size_t ahead = 0) const {
    return at_ + ahead < source_.size() ? source_[at_ + ahead] : '\0';
  }
  bool starts(std::string_view text) const {
    return std::string_view(source_).substr(at_).starts_with(text);
  }
  void add(Token::Kind kind, std::string text, std::size_t at) {
    tokens_.push_back({kind, std::move(text), at});
  }
  void skip_spaces() {
    while (at_ < source_.size() && is_space(source_[at_])) ++at_;
  }

  // Text up to a tag that begins with `sign` (-, + or nothing).
  void add_text(std::size_t begin, std::size_t end, char sign, bool print) {
    std::string_view text = std::string_view(source_).substr(begin, end - begin);
    if (sign == '-') {
      text = text::stripped(text, false, true);
    } else if (sign != '+' && !print) {
      const std::size_t line = text.rfind('\n') + 1;  // npos + 1 is 0
      if ((line > 0 || line_begins_) && std::ranges::all_of(text.substr(line), is_space))
        text = text.substr(0, line);
    }
    if (!text.empty()) add(Token::Kind::text, std::string(text), begin);
  }

  // The end of a tag, `close` with a sign before it: -, which takes the white space behind it, or,
  // of a block or a comment, +; else a block takes one line feed.
  bool take_end(std::string_view close, bool block) {
    const std::size_t signs = peek() == '-' || (block && peek() == '+') ? 1 : 0;
    const char sign = signs ? peek() : '\0';
    at_ += signs;
    if (!starts(close)) {
      at_ -= signs;
      return false;
    }
    at_ += close.size();
    if (sign == '-')
      skip_spaces();
    else if (sign == '\0' && block && peek() == '\n')
      ++at_;
    line_begins_ = source_[at_ - 1] == '\n';
    return true;
  }

  void root() {
    const std::size_t begin = at_;
    while (at_ < source_.size() &&
           !(peek() == '{' && (peek(1) == '%' || peek(1) == '{' || peek(1) == '#')))
      ++at_;
    if (at_ == source_.size()) return add(Token::Kind::text, source_.substr(begin), begin);
    const std::size_t tag = at_;
    const char type = peek(1);
    at_ += 2;
    const char sign = peek() == '-' || peek() == '+' ? peek() : '\0';
    add_text(begin, tag, sign, type == '{');
    at_ += sign != '\0';
    line_begins_ = false;
    if (type == '#') return comment(tag);
    if (type == '%' && raw(tag)) return;
    inside(tag, type == '%');
  }

  void comment(std::size_t tag) {
    for (; at_ < source_.size(); ++at_)
      if (take_end("#}", true)) return;
    fail("the comment does not end; expected #}", tag);
  }

  bool take_word(std::string_view word) {
    skip_spaces();
    if (!starts(word) || is_word(peek(word.size()))) return false;
    at_ += word.size();
    skip_spaces();
    return true;
  }

  bool raw(std::size_t tag) {
    const std::size_t back = at_;
    if (!take_word("raw") || !(starts("%}") || starts("-%}"))) {
      at_ = back;
      return false;
    }
    if (peek() == '-') {
      at_ += 3;
      skip_spaces();
    } else {
      at_ += 2;
    }
    line_begins_ = source_[at_ - 1] == '\n';
    const std::size_t begin = at_;
    for (; at_ < source_.size(); ++at_) {
      if (!starts("{%")) continue;
      const std::size_t end = at_;
      at_ += 2;
      const char sign = peek() == '-' || peek() == '+' ? peek() : '\0';
      at_ += sign != '\0';
      const bool begins = line_begins_;
      if (take_word("endraw") && take_end("%}", true)) {
        const bool after = std::exchange(line_begins_, begins);
        add_text(begin, end, sign, false);
        line_begins_ = after;
        return true;
      }
      at_ = end;
    }
    fail("the raw block does not end; expected {% endraw %}", tag);
  }

  void inside(std::size_t tag, bool block) {
    add(block ? Token::Kind::begin_block : Token::Kind::begin_print, block ? "{%" : "{{", tag);
    std::string open;  // brackets that wait for their other half
    while (at_ < source_.size()) {
      const std::size_t at = at_;
      if (open.empty() && take_end(block ? "%}" : "}}", block))
        return add(block ? Token::Kind::end_block : Token::Kind::end_print, block ? "%}" : "}}",
                   at);
      const char c = peek();
      if (is_space(c))
        ++at_;
      else if (is_digit(c))
        number();
      else if (is_word(c))
        word();
      else if (c == '\'' || c == '"')
        string(c);
      else
        sign(open);
    }
    fail(std::string("the tag does not end; expected ") + (block ? "%}" : "}}"), tag);
  }

  void word() {
    const std::size_t at = at_;
    while (at_ < source_.size() && is_word(source_[at_])) ++at_;
    add(Token::Kind::name, source_.substr(at, at_ - at), at);
  }

  // Digits, which single _ may part, into `digits`.
  bool take_digits(std::string& digits, bool (*is)(char) = is_digit) {
    const std::size_t before = digits.size();
    while (is(peek()) || (digits.size() > before && peek() == '_' && is(peek(1)))) {
      if (peek() != '_') digits += peek();
      ++at_;
    }
    return digits.size() > before;
  }

  void number() {
    const std::size_t at = at_;
    std::string digits;
    if (const char base = static_cast<char>(peek(1) | 0x20);
        peek() == '0' && (base == 'x' || base == 'o' || base == 'b')) {
      at_ += 2;
      static constexpr auto any = [](char c) {
        return is_digit(c) || ((c | 0x20) >= 'a' && (c | 0x20) <= 'f');
      };
      take_digits(digits, any);
      std::int64_t value = 0;
      const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value,
                                                base == 'x'   ? 16
                                                : base == 'o' ? 8
                                                              : 2);
      if (error != std::errc() || end != digits.data() + digits.size())
        fail("expected the digits of an integer of 64 bits", at);
      return add(Token::Kind::integer, std::to_string(value), at);
    }
    take_digits(digits);
    bool real = false;
    // A number behind a dot, as in x.0.1, is an index.
    const bool index =
        !tokens_.empty() && tokens_.back().text == "." && tokens_.back().kind == Token::Kind::sign;
    if (!index && peek() == '.' && is_digit(peek(1))) {
      real = true;
      digits += '.';
      ++at_;
      take_digits(digits);
    }
    const bool minus = peek(1) == '-' || peek(1) == '+';
    if (!index && (peek() | 0x20) == 'e' && is_digit(peek(minus ? 2 : 1))) {
      real = true;
      digits += 'e';
      if (peek(1) == '-') digits += '-';
      at_ += minus ? 2 : 1;
      take_digits(digits);
    }
    if (!real && digits.size() > 1 && digits[0] == '0' &&
        digits.find_first_not_of('0') != digits.npos)
      fail("an integer begins with 0", at);
    add(real ? Token::Kind::real : Token::Kind::integer, digits, at);
  }

  void sign(std::string& open) {
    static constexpr std::array<std::string_view, 25> signs = {
        "//", "**", "==", "!=", ">=", "<=", "+", "-", "/", "*", "%", "~", "[",
        "]",  "(",  ")",  "{",  "}",  ">",  "<", "=", ".", ":", "|", ","};
    const auto found =
        std::ranges::find_if(signs, [this](std::string_view s) { return starts(s); });
    if (found == signs.end())
      fail("found " +
               in_quotes(source_.substr(
                   at_, std::max<std::size_t>(1, utf8_length(source_.substr(at_, 4))))) +
               "; expected a name, a value or an operator",
           at_);
    constexpr std::string_view begin = "([{", end = ")]}";
    if (const auto opens = begin.find(*found); opens != begin.npos) open += end[opens];
    if (end.find(*found) != end.npos) {
      if (open.empty() || open.back() != found->front())
        fail("found '" + std::string(*found) + "'" +
                 (open.empty() ? " that nothing opens"
                               : std::string("; expected '") + open.back() + "'"),
             at_);
      open.pop_back();
    }
    add(Token::Kind::sign, std::string(*found), at_);
    at_ += found->size();
  }

  void string(char quote) {
    const std::size_t at = at_++;
    std::string text;
    while (peek() != quote || at_ >= source_.size()) {
      if (at_ >= source_.size()) fail("the string does not end", at);
      if (peek() == '\\')
        escape(text);
      else
        text += source_[at_++];
    }
    ++at_;
    add(Token::Kind::string, std::move(text), at);
  }

  void escape(std::string& text) {
    const std::size_t at = at_++;
    const char c = peek();
    ++at_;
    constexpr std::string_view from = "\\'\"abfnrtv", to = "\\'\"\a\b\f\n\r\t\v";
    if (c == '\n') return;
    if (const auto simple = from.find(c); simple != from.npos) {
      text += to[simple];
    } else if (c == 'x' || c == 'u' || c == 'U') {
      code_point(text, c == 'x' ? 2 : c == 'u' ? 4 : 8, 16, at);
    } else if (c >= '0' && c <= '7') {
      --at_;
      std::size_t digits = 1;
      while (digits < 3 && peek(digits) >= '0' && peek(digits) <= '7') ++digits;
      code_point(text, digits, 8, at);
    } else if (c == 'N') {
      fail("names of characters in strings are not supported; expected \\u and four digits", at);
    } else {
      text += '\\';
      --at_;
    }
  }

  void code_point(std::string& text, std::size_t digits, int base, std::size_t at) {
    std::uint32_t value = 0;
    const char* const begin = source_.data() + std::min(at_, source_.size());
    const char* const end =
        begin + std::min(digits, source_.size() - std::min(at_, source_.size()));
    const auto [stop, error] = std::from_chars(begin, end, value, base);
    if (error != std::errc() || stop != begin + digits || value > 0x10FFFF ||
        (value >= 0xD800 && value < 0xE000))
      fail("the escape in the string is no character", at);
    at_ += digits;
    append_utf8(text, value);
  }

  const std::string& source_;
  std::size_t at_ = 0;
  bool line_begins_ = true;  // the text after the last tag begins a line
  std::vector<Token> tokens_;
};

}  // namespace

std::string normal_source(std::string_view source) {
  std::string text;
  for (std::size_t i = 0; i < source.size(); ++i) {
    if (source[i] == '\r' && i + 1 < source.size() && source[i + 1] == '\n') continue;
    text += source[i] == '\r' ? '\n' : source[i];
  }
  if (text.ends_with('\n')) text.pop_back();
  return text;
}

std::vector<Token> tokens_of(const std::string& source) { return Lexer(source).run(); }

}  // namespace tfm::text::jinja
