#include "text/jinja/parser.h"

#include <utility>

#include "text/jinja/expressions.h"
#include "text/jinja/token_stream.h"

namespace tfm::text::jinja {
namespace {

using Kind = Statement::Kind;
using Words = std::initializer_list<std::string_view>;

std::string one_of(Words words) { return join(std::vector<std::string_view>(words)); }

class Parser {
 public:
  explicit Parser(const std::string& source) : in_(tokens_of(source)), of_(in_) {}

  Body run() { return body({}); }

 private:
  // Statements up to a tag that begins with one of `ends`, at which the stream then stands; none:
  // up to the end of the template.
  Body body(Words ends) {
    if (++depth_ > kDeepest)
      throw Broken{"blocks are nested deeper than " + std::to_string(kDeepest) + " levels",
                   in_.now().at};
    Body all;
    using enum Token::Kind;
    while (!in_.is(end)) {
      Token token = in_.take();
      if (token.kind == text) {
        all.push_back({.kind = Kind::text, .at = token.at, .text = std::move(token.text)});
      } else if (token.kind == begin_print) {
        Statement print{.kind = Kind::print, .at = token.at};
        print.parts.push_back(of_.tuple());
        in_.expect(end_print, "an operator or }}");
        all.push_back(std::move(print));
      } else {
        if (in_.is_any_name(ends)) {
          --depth_;
          return all;
        }
        all.push_back(statement(ends));
        in_.expect(end_block, "an operator or %}");
      }
    }
    if (ends.size() > 0) in_.fail("{% " + one_of(ends) + " %}");
    --depth_;
    return all;
  }
  // The body of a tag and its end.
  void close(Statement& s, std::string_view end) {
    in_.expect(Token::Kind::end_block, "%}");
    s.bodies.push_back(body({end}));
    in_.take();
  }

  Statement statement(Words ends) {
    static const std::pair<std::string_view, Statement (Parser::*)(Statement)> all[] = {
        {"if", &Parser::branch},  {"for", &Parser::loop},
        {"set", &Parser::set},    {"macro", &Parser::macro},
        {"call", &Parser::call},  {"filter", &Parser::filter},
        {"with", &Parser::with},  {"generation", &Parser::generation},
        {"break", &Parser::stop}, {"continue", &Parser::next},
    };
    const Token name = in_.expect(Token::Kind::name, "the name of a tag");
    for (const auto& [word, parse] : all)
      if (name.text == word) return (this->*parse)({.kind = Kind::text, .at = name.at});
    std::string expected;
    for (const auto& [word, parse] : all)
      expected += (expected.empty() ? "" : ", ") + std::string(word);
    if (ends.size() > 0) expected += ", " + one_of(ends);
    throw Broken{"the tag " + in_quotes(name.text) + " is not supported; expected " + expected,
                 name.at};
  }

  Statement branch(Statement s) {
    s.kind = Kind::branch;
    do {
      s.parts.push_back(of_.tuple(false));
      in_.expect(Token::Kind::end_block, "an operator or %}");
      s.bodies.push_back(body({"elif", "else", "endif"}));
    } while (in_.skip_name("elif"));
    if (in_.skip_name("else"))
      close(s, "endif");
    else
      in_.take();
    return s;
  }

  Statement loop(Statement s) {
    s.kind = Kind::loop;
    s.parts.push_back(of_.target(false));
    in_.expect_name("in");
    s.parts.push_back(of_.tuple(false));
    s.parts.push_back(in_.skip_name("if") ? of_.expression() : nullptr);
    if (in_.is_name("recursive")) throw Broken{"recursive loops are not supported", in_.now().at};
    in_.expect(Token::Kind::end_block, "an operator or %}");
    ++loops_;
    s.bodies.push_back(body({"endfor", "else"}));
    --loops_;
    if (in_.skip_name("else"))
      close(s, "endfor");
    else
      in_.take();
    return s;
  }

  Statement set(Statement s) {
    s.parts.push_back(of_.target(true));
    if (in_.skip_sign("=")) {
      s.kind = Kind::set;
      s.parts.push_back(of_.tuple());
      return s;
    }
    s.kind = Kind::set_block;
    s.parts.push_back(of_.filters(nullptr));
    apart(s, "endset");
    return s;
  }

  // A body of which break and continue do not leave a loop around it.
  void apart(Statement& s, std::string_view end) {
    const int loops = std::exchange(loops_, 0);
    close(s, end);
    loops_ = loops;
  }

  void parameters(Statement& s) {
    in_.expect_sign("(");
    while (!in_.is_sign(")")) {
      s.names.push_back(in_.expect(Token::Kind::name, "the name of a parameter").text);
      if (in_.skip_sign("="))
        s.parts.push_back(of_.expression());
      else if (s.parts.size() > (s.kind == Kind::call_block ? 1 : 0))
        in_.fail("a default, as the parameter before it has");
      if (!in_.is_sign(")")) in_.expect_sign(",");
    }
    in_.take();
  }

  Statement macro(Statement s) {
    s.kind = Kind::macro;
    s.text = in_.expect(Token::Kind::name, "the name of the macro").text;
    parameters(s);
    apart(s, "endmacro");
    return s;
  }

  Statement call(Statement s) {
    s.kind = Kind::call_block;
    s.parts.push_back(nullptr);
    if (in_.is_sign("(")) parameters(s);
    const std::size_t at = in_.now().at;
    s.parts[0] = of_.expression();
    if (s.parts[0]->kind != Expression::Kind::call)
      throw Broken{"expected the call of a macro", at};
    apart(s, "endcall");
    return s;
  }

  Statement filter(Statement s) {
    s.kind = Kind::filter_block;
    s.parts.push_back(of_.filters(nullptr, true));
    apart(s, "endfilter");
    return s;
  }

  Statement with(Statement s) {
    s.kind = Kind::with;
    while (!in_.is(Token::Kind::end_block)) {
      if (!s.parts.empty()) in_.expect_sign(",");
      s.parts.push_back(of_.target(false));
      in_.expect_sign("=");
      s.parts.push_back(of_.expression());
    }
    close(s, "endwith");
    return s;
  }

  Statement generation(Statement s) {
    s.kind = Kind::generation;
    apart(s, "endgeneration");
    return s;
  }

  Statement stop(Statement s) { return leave(std::move(s), Kind::stop); }
  Statement next(Statement s) { return leave(std::move(s), Kind::next); }
  Statement leave(Statement s, Kind kind) {
    if (loops_ == 0) throw Broken{"this is not within a loop", s.at};
    s.kind = kind;
    return s;
  }

  TokenStream in_;
  ExpressionParser of_;
  int depth_ = 0, loops_ = 0;
};

}  // namespace

Body parse(const std::string& source) { return Parser(source).run(); }

}  // namespace tfm::text::jinja
