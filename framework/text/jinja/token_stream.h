#pragma once
#include <algorithm>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "core/strings.h"
#include "text/jinja/lexer.h"

namespace tfm::text::jinja {

class TokenStream {
 public:
  explicit TokenStream(std::vector<Token> tokens) : tokens_(std::move(tokens)) {}

  const Token& now() const { return tokens_[at_]; }
  const Token& ahead() const { return tokens_[std::min(at_ + 1, tokens_.size() - 1)]; }
  Token take() {
    Token token = now();
    if (at_ + 1 < tokens_.size()) ++at_;
    return token;
  }
  bool is(Token::Kind kind) const { return now().kind == kind; }
  bool is_sign(std::string_view text) const { return is(Token::Kind::sign) && now().text == text; }
  bool is_name(std::string_view text) const { return is(Token::Kind::name) && now().text == text; }
  bool is_any_name(std::initializer_list<std::string_view> names) const {
    return is(Token::Kind::name) && std::ranges::find(names, now().text) != names.end();
  }
  bool skip_sign(std::string_view text) { return is_sign(text) && (take(), true); }
  bool skip_name(std::string_view text) { return is_name(text) && (take(), true); }
  void expect_sign(const std::string& text) {
    if (!skip_sign(text)) fail("'" + text + "'");
  }
  void expect_name(const std::string& text) {
    if (!skip_name(text)) fail(text);
  }
  Token expect(Token::Kind kind, const std::string& what) {
    if (!is(kind)) fail(what);
    return take();
  }
  [[noreturn]] void fail(const std::string& expected) const {
    using enum Token::Kind;
    const bool bare = is(end) || is(end_print) || is(end_block);
    throw Broken{"found " +
                     (is(end) ? "the end of the template"
                      : bare  ? now().text
                              : in_quotes(now().text)) +
                     "; expected " + expected,
                 now().at};
  }

 private:
  std::vector<Token> tokens_;
  std::size_t at_ = 0;
};

}  // namespace tfm::text::jinja
